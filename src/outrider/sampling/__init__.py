"""Sampling as a pure function of logits, parameters, seed and absolute position.

    token = argmax( filtered_logits / temperature + gumbel(seed, position) )

The same function serves plain decode, the verifier and the drafter. A drafter that sees the same noise guesses the
token the target will pick, a draft is accepted exactly if it equals the target's token, and so the output never depends
on whether, or how well, anything was drafted.
"""
