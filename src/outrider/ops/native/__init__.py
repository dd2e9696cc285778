"""The ops that decide the speed of a CPU, compiled by numba: float32, one pass, no intermediate tensors.

Row-invariant by construction: whatever number of rows shares a call, and however they are spread over threads, an
element is computed by the same instructions in the same order (see `dot_tiles`). Values agree with the reference up to
float32 rounding. Anything that is not float32 on the CPU, or that needs a gradient, goes to the reference.

Kernels take addresses, so that a call costs microseconds; the caller keeps the tensors alive. They are compiled at the
first call, a few seconds in all, and kept in numba's cache.
"""
