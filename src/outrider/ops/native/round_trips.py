"""Rounding of activations as E4M3 and E2M1 would hold them, with the same bits as `formats` gives.

A value of magnitude m is rounded to nearest even on the grid of its format by adding and taking away a power of two
whose unit in the last place is the grid's step there. Blocks of the last dim share a power-of-two scale.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from outrider.ops import formats as reference
from outrider.ops.native.compilation import kernel, part
from outrider.ops.native.rows import is_plain, row_view
from outrider.ops.native.vector import FLOAT_BYTES, bits_float, float_bits, floats

_MAGNITUDE, _EXPONENT, _SIGN = np.int32(0x7FFFFFFF), np.int32(0x7F800000), np.int32(-0x80000000)
_NAN = np.float32(np.nan)


@part
def _amax_bits(x, block, floor):  # type: ignore[no-untyped-def]
    """Bits of the largest magnitude of a block, at least `floor`; NaN and infinity compare above everything."""
    top = float_bits(np.float32(floor))
    for i in range(block):
        bits = float_bits(x[i]) & _MAGNITUDE
        top = max(top, bits)
    return top


@kernel
def _round_trip(x, pitch, rows, width, block, floor, mantissa_limit, exponent, lowest, ulp_bits, out):  # type: ignore[no-untyped-def]
    """lowest: smallest normal of the format; ulp_bits: exponent of 2^23 * step over the value's own power of two."""
    smallest = np.float32(lowest)
    carry = np.int32(0x7FFFFF - mantissa_limit)
    drop = np.int32(exponent << 23)
    raise_to_step = np.int32(ulp_bits << 23)
    for row in range(rows):
        for start in range(0, width, block):
            source = floats(x + row * pitch + start * FLOAT_BYTES)
            target = floats(out + (row * width + start) * FLOAT_BYTES)
            top = _amax_bits(source, block, floor)
            if top >= _EXPONENT:
                for i in range(block):
                    target[i] = _NAN
                continue
            scale = bits_float(((top + carry) & _EXPONENT) - drop)
            for i in range(block):
                scaled = source[i] / scale
                bits = float_bits(scaled)
                size = bits_float(bits & _MAGNITUDE)
                power = max(size, smallest)
                grid = bits_float((float_bits(power) & _EXPONENT) + raise_to_step)
                rounded = (size + grid) - grid
                signed = bits_float(float_bits(rounded) | (bits & _SIGN))
                target[i] = signed * scale


def _run(x: Tensor, block: int, floor: float, mantissa_limit: int, exponent: int, lowest: float, bits: int) -> Tensor:
    rows, count, pitch = row_view(x)
    out = x.new_empty(x.shape)
    _round_trip(
        rows.data_ptr(),
        pitch,
        count,
        x.shape[-1],
        block,
        floor,
        mantissa_limit,
        exponent,
        lowest,
        bits,
        out.data_ptr(),
    )
    return out


def round_trip_fp8(x: Tensor, block: int) -> Tensor:
    """[..., K] float -> float32 rounded as E4M3 with one E8M0 scale per `block` values of the last dim.

    s = 2^ceil(log2(max(amax, 1e-4) / 448)), x -> e4m3(x / s) * s. A block that holds NaN or infinity becomes NaN.
    """
    if not is_plain(x) or x.shape[-1] % block:
        return reference.round_trip_fp8(x, block)
    # 448 = 1.75 * 2^8; three bits of mantissa: the step is 2^-3 of the value's power of two
    return _run(x, block, reference.ACTIVATION_FLOOR_FP8, 0x600000, 8, 2.0**-6, 23 - 3)


def round_trip_fp4(x: Tensor, block: int) -> Tensor:
    """[..., K] float -> float32 rounded as E2M1 with one E8M0 scale per `block` values of the last dim.

    s = 2^ceil(log2(max(amax, 6 * 2^-126) / 6)), x -> e2m1(x / s) * s. A block that holds NaN or infinity becomes NaN.
    """
    if not is_plain(x) or x.shape[-1] % block:
        return reference.round_trip_fp4(x, block)
    # 6 = 1.5 * 2^2; one bit of mantissa
    return _run(x, block, reference.ACTIVATION_FLOOR_FP4, 0x400000, 2, 1.0, 23 - 1)
