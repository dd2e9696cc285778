"""Inputs of the experts' products: rounded as FP8, kept as bfloat16, and laid out by code of a word.

Every FP8 value times its power-of-two scale is a bfloat16, which is what the product multiplies: stored so, the inner
loop has nothing to decode, and neither dialect shows. Column k goes to (k mod PARTS) * K / PARTS + k // PARTS, so that
the inputs of one code of consecutive words (`expert_codes`) are consecutive.

Floor: bytes of the input in, 2 K a token out.
"""

from __future__ import annotations

import triton
import triton.language as tl

from outrider.ops.triton.arithmetic import as_bfloat16, as_float32
from outrider.ops.triton.fp8_bytes import (
    block_scale,
    decode_e4m3,
    decode_e8m0,
    encode_e4m3,
    magnitude_bits,
    reciprocal_scale,
)

BLOCK = 128
"""Values that share a scale."""
_BLOCK = tl.constexpr(BLOCK)
COLUMNS = 1024
"""Columns of a row that a program stages."""


@triton.jit
def round_trip_blocks(x, AXIS: tl.constexpr):  # type: ignore[no-untyped-def]
    """float32 -> float32 rounded as E4M3, one E8M0 scale for all values along AXIS; NaN if one is not finite."""
    scale = tl.expand_dims(block_scale(tl.max(magnitude_bits(x), AXIS)), AXIS)
    return decode_e4m3(encode_e4m3(x * reciprocal_scale(scale), False), False) * decode_e8m0(scale)


@triton.jit
def staged_column(k, K: tl.constexpr, PARTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Where column k of an input lies."""
    return k % PARTS * (K // PARTS) + k // PARTS


@triton.jit
def stage_inputs_kernel(  # type: ignore[no-untyped-def]
    x, staged, K: tl.constexpr, PARTS: tl.constexpr, ROUND_TRIP: tl.constexpr, COLUMNS: tl.constexpr
):
    """Grid: (tokens, column tiles)."""
    token = tl.program_id(0).to(tl.int64)
    blocks = tl.program_id(1) * (COLUMNS // _BLOCK) + tl.arange(0, COLUMNS // _BLOCK)
    k = blocks[:, None] * _BLOCK + tl.arange(0, _BLOCK)[None, :]
    # rounded to bfloat16 first, as the norm before it or the product before that would have done
    value = as_bfloat16(as_float32(tl.load(x + token * K + k, mask=k < K, other=0.0)))
    if ROUND_TRIP:
        value = as_bfloat16(round_trip_blocks(as_float32(value), 1))
    tl.store(staged + token * K + staged_column(k, K, PARTS), value, mask=k < K)
