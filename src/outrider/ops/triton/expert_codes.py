"""Weights of experts, from their bytes to bfloat16 operands of a product, two values at a time.

A word is 16 bits of a row: four FP4 codes, or two FP8 codes. Code i of every word of a tile is one operand, which
meets the inputs k with k mod PARTS = i (`stage_inputs` lays them out so): no value has to change places.
A code's bits, moved to bfloat16's places, are the value off by a power of two. The block's scale, itself a power of
two, is multiplied onto it, and with it 2^-40, so that no scale in use overflows; `UNSCALE` takes that back.

Exact for scales of 2^-86 to 2^40. What lies above, and the byte 255 that is NaN, gives infinity or NaN; what lies below
loses bits as subnormal numbers do. NaN codes of FP8 are read as numbers: weights have none (quantising refuses NaN).

On CUDA a pair of words lies in one register, and each code of both is moved and scaled by five instructions, without
which decoding, not memory, would set the pace. Elsewhere values go one by one through float32, with the same bits.
"""

from __future__ import annotations

import triton
import triton.language as tl

UNSCALE = tl.constexpr(float(1 << 40))

_FP4_PTX = tl.constexpr(
    """{
    .reg .b32 code, sign;
    shl.b32 code, $4, 6;
    and.b32 code, code, 0x01C001C0;
    shl.b32 sign, $4, 12;
    lop3.b32 code, sign, 0x80008000, code, 0xEA;
    mul.bf16x2 $0, code, $5;
    shl.b32 code, $4, 2;
    and.b32 code, code, 0x01C001C0;
    shl.b32 sign, $4, 8;
    lop3.b32 code, sign, 0x80008000, code, 0xEA;
    mul.bf16x2 $1, code, $5;
    shr.u32 code, $4, 2;
    and.b32 code, code, 0x01C001C0;
    shl.b32 sign, $4, 4;
    lop3.b32 code, sign, 0x80008000, code, 0xEA;
    mul.bf16x2 $2, code, $5;
    shr.u32 code, $4, 6;
    and.b32 code, code, 0x01C001C0;
    lop3.b32 code, $4, 0x80008000, code, 0xEA;
    mul.bf16x2 $3, code, $5;
    }"""
)
_FP8_PTX = tl.constexpr(
    """{
    .reg .b32 code, sign;
    shl.b32 code, $2, 4;
    and.b32 code, code, 0x07F007F0;
    shl.b32 sign, $2, 8;
    lop3.b32 code, sign, 0x80008000, code, 0xEA;
    mul.bf16x2 $0, code, $3;
    shr.u32 code, $2, 4;
    and.b32 code, code, 0x07F007F0;
    lop3.b32 code, $2, 0x80008000, code, 0xEA;
    mul.bf16x2 $1, code, $3;
    }"""
)


@triton.jit
def code_multiplier(scales, FORMAT: tl.constexpr, PTX: tl.constexpr):  # type: ignore[no-untyped-def]
    """Scale bytes -> what codes are multiplied by, as bits in an int32: two bfloat16 with PTX, else a float32.

    The exponent field that scale 2^-127 gets: 127 - 127 - 40, and what the codes' own bias is short of bfloat16's.
    """
    FIELD: tl.constexpr = 86 if FORMAT == "fp4" else (80 if FORMAT == "ocp" else 79)
    field = tl.minimum(scales.to(tl.int32), 255 - FIELD) + FIELD
    return field * 0x00800080 if PTX else field << 23


@triton.jit
def _exact_bfloat16(bits, multiplier):  # type: ignore[no-untyped-def]
    """float32 bits whose product is a bfloat16 already: the lower half is zero."""
    value = bits.to(tl.float32, bitcast=True) * multiplier.to(tl.float32, bitcast=True)
    return (value.to(tl.int32, bitcast=True) >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)


@triton.jit
def _fp4_operand(words, multiplier, PART: tl.constexpr):  # type: ignore[no-untyped-def]
    code = words.to(tl.int32) >> (4 * PART)
    return _exact_bfloat16(((code & 8) << 28) | ((code & 7) << 22), multiplier)


@triton.jit
def _fp8_operand(words, multiplier, PART: tl.constexpr):  # type: ignore[no-untyped-def]
    code = words.to(tl.int32) >> (8 * PART)
    return _exact_bfloat16(((code & 0x80) << 24) | ((code & 0x7F) << 20), multiplier)


@triton.jit
def fp4_operands(words, multiplier, PTX: tl.constexpr):  # type: ignore[no-untyped-def]
    """int16 [M, K / 4] and int32 of the same shape -> four bfloat16 operands [M, K / 4]. Neighbours share a scale."""
    if PTX:
        types: tl.constexpr = (tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16)
        return tl.inline_asm_elementwise(
            _FP4_PTX, "=r,=r,=r,=r,r,r,r", [words, multiplier], dtype=types, is_pure=True, pack=2
        )
    else:
        return (
            _fp4_operand(words, multiplier, 0),
            _fp4_operand(words, multiplier, 1),
            _fp4_operand(words, multiplier, 2),
            _fp4_operand(words, multiplier, 3),
        )


@triton.jit
def fp8_operands(words, multiplier, PTX: tl.constexpr):  # type: ignore[no-untyped-def]
    """int16 [M, K / 2] and int32 of the same shape -> two bfloat16 operands [M, K / 2]. Neighbours share a scale."""
    if PTX:
        types: tl.constexpr = (tl.bfloat16, tl.bfloat16)
        return tl.inline_asm_elementwise(
            _FP8_PTX, "=r,=r,r,r,r", [words, multiplier], dtype=types, is_pure=True, pack=2
        )
    else:
        return _fp8_operand(words, multiplier, 0), _fp8_operand(words, multiplier, 1)


@triton.jit
def spread(x, COUNT: tl.constexpr):  # type: ignore[no-untyped-def]
    """[M, G] -> [M, G * COUNT], each column COUNT times in a row."""
    M: tl.constexpr = x.shape[0]
    G: tl.constexpr = x.shape[1]
    return tl.reshape(tl.broadcast_to(x[:, :, None], (M, G, COUNT)), (M, G * COUNT))
