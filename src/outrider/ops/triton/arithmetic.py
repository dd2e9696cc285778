"""Conversions and products that mean the same on a GPU and in Triton's interpreter.

The interpreter keeps bfloat16 as 16-bit integers: it truncates where hardware rounds to nearest even, misreads
subnormals, and multiplies the integers in `tl.dot`. There these functions work on bit patterns and float32 instead.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton import knobs

INTERPRETED = tl.constexpr(bool(knobs.runtime.interpret))


@triton.jit
def as_float32(x):  # type: ignore[no-untyped-def]
    """bfloat16 or float32 -> float32, exact."""
    if INTERPRETED and x.dtype == tl.bfloat16:
        return (x.to(tl.int16, bitcast=True).to(tl.int32) << 16).to(tl.float32, bitcast=True)
    else:
        return x.to(tl.float32)


@triton.jit
def as_bfloat16(x):  # type: ignore[no-untyped-def]
    """float32 -> bfloat16, to nearest, ties to even."""
    if INTERPRETED:
        bits = x.to(tl.int32, bitcast=True)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        rounded = tl.where(x != x, 0x7FC0, rounded)
        return rounded.to(tl.int16).to(tl.bfloat16, bitcast=True)
    else:
        return x.to(tl.bfloat16)


@triton.jit
def cast_like(x, like):  # type: ignore[no-untyped-def]
    """float32 -> the dtype of `like` (bfloat16 or float32)."""
    if like == tl.bfloat16:
        return as_bfloat16(x)
    else:
        return x


@triton.jit
def product(a, b):  # type: ignore[no-untyped-def]
    """a @ b, accumulated in float32. Both bfloat16, or both float32 (then without TF32)."""
    if INTERPRETED:
        return tl.dot(as_float32(a), as_float32(b), input_precision="ieee")
    else:
        return tl.dot(a, b, input_precision="ieee")


@triton.jit
def add_product(a, b, total):  # type: ignore[no-untyped-def]
    """total + a @ b in float32; dtypes as in `product`."""
    if INTERPRETED:
        return tl.dot(as_float32(a), as_float32(b), total, input_precision="ieee")
    else:
        return tl.dot(a, b, total, input_precision="ieee")
