"""The ops that decide the speed of a GPU, in Triton: one source for ROCm and CUDA.

What differs between GPUs (FP8 dialect, tiles) comes from `platforms` and reaches a kernel as a constexpr. Every kernel
is row-invariant by construction: which program computes a query, in which order it reads keys and where it splits them
follow from that query's own position. That is the strict mode and the only one: no faster prefill has other bits. Every
launch and every compilation turns floating-point contraction off (`launching.OPTIONS`), so that the bits of a result do
not depend on what a compiler release chooses to fuse.

The kernels run in Triton's interpreter (TRITON_INTERPRET=1, set before triton is imported), which needs no GPU, and
compile ahead of time for gfx942, gfx950 and sm_90 (`ahead_of_time`).
"""
