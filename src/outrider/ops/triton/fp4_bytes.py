"""FP4 E2M1 codes by integer arithmetic: s ee m, bias 1, neither infinity nor NaN; 0, .5, 1, 1.5, 2, 3, 4, 6.

A block of values has one E8M0 scale (`fp8_bytes`), s = 2^ceil(log2(max(amax, 6 * 2^-126) / 6)); a block with NaN or
infinity gets scale byte 255, which makes all of it NaN.
"""

from __future__ import annotations

import triton
import triton.language as tl

from outrider.ops.triton.fp8_bytes import SCALE_NAN

_MAGNITUDE = tl.constexpr(0x7FFFFFFF)
_INFINITY = tl.constexpr(0x7F800000)
_FLOOR = tl.constexpr(0x01C00000)  # bits of 6 * 2^-126, the smallest amax of a block (official kernel: fp4_act_quant)


@triton.jit
def decode_e2m1(codes):  # type: ignore[no-untyped-def]
    """Codes 0 .. 15, int32 -> float32, exact. Exponent and mantissa, moved to float32's places, are off by 2^126."""
    shifted = ((codes & 8) << 28) | ((codes & 7) << 22)
    return shifted.to(tl.float32, bitcast=True) * 8.507059173023462e37


@triton.jit
def encode_e2m1(x):  # type: ignore[no-untyped-def]
    """float32, already divided by the block's scale -> code, int32: to nearest, ties to even, saturating at +-6."""
    bits = x.to(tl.int32, bitcast=True)
    magnitude = bits & _MAGNITUDE
    rounded = (magnitude + 0x1FFFFF + ((magnitude >> 22) & 1)) >> 22
    normal = tl.minimum(rounded - (126 << 1), 7)
    # below 1 the grid is even, in steps of 0.5: the last place of a float32 at 2^22
    small = (magnitude.to(tl.float32, bitcast=True) + 4194304.0).to(tl.int32, bitcast=True) - 0x4A800000
    return tl.where(magnitude < 0x3F800000, small, normal) | ((bits >> 28) & 8)


@triton.jit
def fp4_block_scale(amax_bits):  # type: ignore[no-untyped-def]
    """Largest magnitude of a block, as bits -> scale byte, int32: smallest s with amax <= 6 s; 255 if not finite."""
    byte = ((tl.maximum(amax_bits, _FLOOR) + (0x7FFFFF - 0x400000)) >> 23) - 2  # 6 = 1.5 * 2^2
    return tl.where(amax_bits >= _INFINITY, SCALE_NAN, byte)
