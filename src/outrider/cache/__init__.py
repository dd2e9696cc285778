"""What a model remembers of a request, paged by absolute position: nothing is a ring, nothing is updated in place.

A rejected draft token needs no undoing: whatever it wrote, the next token at its position overwrites, and until then
the position rule hides it.
"""
