"""Speed as users see it: arms in alternation, in this process or over HTTP."""
