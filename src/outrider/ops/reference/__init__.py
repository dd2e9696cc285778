"""Every op in plain PyTorch, float32: readable, runs anywhere, and the oracle of the kernels.

All of them are *row-invariant*: the bits of a row depend on that row's inputs alone, never on how many rows share the
call. That is what makes speculative decoding lossless to the bit, and it needs care on a CPU: a matrix product picks
its kernel by the number of rows, and `sigmoid`, `silu` and `softplus` treat the end of a tensor by other code than its
body.
"""
