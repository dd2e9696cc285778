"""FP8 E4M3 and E8M0 as bytes, by integer arithmetic: the same source for OCP and FNUZ, on every GPU.

    OCP   s eeee mmm, bias 7, NaN = 0x7F / 0xFF, largest 448        FNUZ  bias 8, NaN = 0x80 alone, largest 240

A row is stored with one E8M0 scale a block. In FNUZ the same byte is half the value, so the scale is twice as large:
bytes are the OCP bytes (largest 224) with -0 written as 0, and both dialects hold equal numbers. A block with NaN or
infinity gets scale byte 255, which makes all of it NaN in either dialect.
"""

from __future__ import annotations

import triton
import triton.language as tl

SCALE_NAN = tl.constexpr(255)
SCALE_LARGEST = tl.constexpr(254)
_MAGNITUDE = tl.constexpr(0x7FFFFFFF)
_INFINITY = tl.constexpr(0x7F800000)
_FLOOR = tl.constexpr(0x38D1B717)  # bits of 1e-4, the smallest amax of a block (official kernel: act_quant)
_MANTISSA_OF_MAX = tl.constexpr(0x7FFFFF - 0x600000)  # 448 = 1.75 * 2^8, and 224 = 1.75 * 2^7


@triton.jit
def decode_e4m3(codes, FNUZ: tl.constexpr):  # type: ignore[no-untyped-def]
    """uint8 -> float32, exact. Exponent and mantissa, moved to float32's places, are off by a power of two alone."""
    code = codes.to(tl.int32)
    shifted = (((code & 0x80) << 24) | ((code & 0x7F) << 20)).to(tl.float32, bitcast=True)
    if FNUZ:
        return tl.where(code == 0x80, float("nan"), shifted * 6.646139978924579e35)  # 2^(127 - 8)
    else:
        return tl.where((code & 0x7F) == 0x7F, float("nan"), shifted * 1.329227995784916e36)  # 2^(127 - 7)


@triton.jit
def encode_e4m3(x, FNUZ: tl.constexpr):  # type: ignore[no-untyped-def]
    """float32, already divided by the block's OCP scale -> uint8: to nearest, ties to even, saturating at +-448.

    NaN has no byte of its own here: its block's scale says NaN.
    """
    bits = x.to(tl.int32, bitcast=True)
    magnitude = bits & _MAGNITUDE
    rounded = (magnitude + 0x7FFFF + ((magnitude >> 20) & 1)) >> 20
    normal = tl.minimum(rounded - (120 << 3), 0x7E)
    # below 2^-6 the grid is even, in steps of 2^-9: the last place of a float32 at 2^14
    small = (magnitude.to(tl.float32, bitcast=True) + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
    code = tl.where(magnitude < 0x3C800000, small, normal) | ((bits >> 24) & 0x80)
    if FNUZ:
        code = tl.where(code == 0x80, 0, code)
    return code.to(tl.uint8)


@triton.jit
def decode_e8m0(codes):  # type: ignore[no-untyped-def]
    """uint8 -> float32 power of two 2^(byte - 127); 255 -> NaN."""
    code = codes.to(tl.int32)
    bits = tl.where(code == 0, 0x00400000, code << 23)
    return tl.where(code == SCALE_NAN, 0x7FC00000, bits).to(tl.float32, bitcast=True)


@triton.jit
def magnitude_bits(x):  # type: ignore[no-untyped-def]
    """|x| as an int32 that orders as the floats do, with NaN above infinity: a maximum that no NaN escapes."""
    return x.to(tl.int32, bitcast=True) & _MAGNITUDE


@triton.jit
def block_scale(amax_bits):  # type: ignore[no-untyped-def]
    """Largest magnitude of a block, as bits -> OCP scale byte, int32: smallest s with amax <= 448 s; 255 if not finite.

    s = 2^ceil(log2(max(amax, 1e-4) / 448)).
    """
    byte = ((tl.maximum(amax_bits, _FLOOR) + _MANTISSA_OF_MAX) >> 23) - 8
    return tl.where(amax_bits >= _INFINITY, SCALE_NAN, byte)


@triton.jit
def reciprocal_scale(byte):  # type: ignore[no-untyped-def]
    """1 / 2^(byte - 127) for a finite scale byte of `block_scale`, exact."""
    return ((254 - tl.minimum(byte, 253)) << 23).to(tl.float32, bitcast=True)


@triton.jit
def stored_scale(byte, FNUZ: tl.constexpr):  # type: ignore[no-untyped-def]
    """OCP scale byte (int32) -> the uint8 that is stored: doubled in FNUZ, saturating below NaN."""
    if FNUZ:
        byte = tl.where(byte == SCALE_NAN, SCALE_NAN, tl.minimum(byte + 1, SCALE_LARGEST))
    return byte.to(tl.uint8)
