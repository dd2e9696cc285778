"""Walsh-Hadamard transform of rows in registers, in the order of the reference's additions: the same bits."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _butterfly(x, R: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr):  # type: ignore[no-untyped-def]
    """Dims i and i + HALF of every 2 HALF -> their sum and difference."""
    pairs = tl.reshape(x, (R, D // (2 * HALF), 2, HALF))
    even, odd = tl.split(tl.permute(pairs, (0, 1, 3, 2)))
    return tl.reshape(tl.permute(tl.join(even + odd, even - odd), (0, 1, 3, 2)), (R, D))


@triton.jit
def hadamard(x, R: tl.constexpr, D: tl.constexpr, LOG2_D: tl.constexpr, SCALE: tl.constexpr):  # type: ignore[no-untyped-def]
    """x: [R, D] float32, D = 2^LOG2_D, SCALE = D^-0.5 -> orthonormal transform of each row, Sylvester order."""
    for stage in tl.static_range(LOG2_D):
        x = _butterfly(x, R, D, 1 << stage)
    return x * SCALE
