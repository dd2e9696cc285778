"""Keys as tiles: rows of a cache, plain or FP8, loaded as the matrix that a product takes."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.ops.kv_rows import KvRows, fp8_shape
from outrider.ops.triton.arithmetic import as_bfloat16
from outrider.ops.triton.fp8_bytes import decode_e4m3, decode_e8m0
from outrider.platforms.architectures import Fp8Dialect

FORMATS = {None: "plain", Fp8Dialect.OCP: "ocp", Fp8Dialect.FNUZ: "fnuz"}

# Four codes are spread over two registers and moved to bfloat16's places, where they are the values times 2^-120; then
# multiplied by each one's block's scale times 2^80 (the four need not share a block), and by 2^40. All exact.
_OCP_PTX = tl.constexpr(
    """{
    .reg .b32 lower, upper, code, scale, rest;
    mov.b32 rest, 0x53805380;
    prmt.b32 lower, $2, 0, 0x1404;
    shr.u32 code, lower, 4;
    and.b32 code, code, 0x07F007F0;
    lop3.b32 code, lower, 0x80008000, code, 0xEA;
    prmt.b32 scale, $3, $4, 0x5410;
    mul.bf16x2 code, code, scale;
    mul.bf16x2 $0, code, rest;
    prmt.b32 upper, $2, 0, 0x3424;
    shr.u32 code, upper, 4;
    and.b32 code, code, 0x07F007F0;
    lop3.b32 code, upper, 0x80008000, code, 0xEA;
    prmt.b32 scale, $5, $6, 0x5410;
    mul.bf16x2 code, code, scale;
    mul.bf16x2 $1, code, rest;
    }"""
)


@triton.jit
def _scale_factor(scale):  # type: ignore[no-untyped-def]
    """Scale bytes -> int32 of two bfloat16, each 2^(byte - 127 + 80); infinity above 2^47, NaN for 255.

    Codes that are NaN are read as numbers: a block that is not finite is stored with scale 255.
    """
    field = tl.minimum(scale.to(tl.int32), 175) + 80
    return tl.where(scale == 255, 0x7FC07FC0, field * 0x00800080)


@triton.jit
def load_keys(  # type: ignore[no-untyped-def]
    rows,
    codes,
    scales,
    valid,
    D: tl.constexpr,
    NOPE: tl.constexpr,
    QUANT_BLOCK: tl.constexpr,
    FORMAT: tl.constexpr,
    PTX: tl.constexpr,
):
    """One key a row: pointers [N] to its values and (FP8) to its bytes and block scales -> [N, D]; 0 where not valid.

    FORMAT "plain": D values. "ocp", "fnuz": NOPE bytes, then D - NOPE bfloat16; FP8 values are exact in bfloat16.
    PTX: OCP codes are moved and scaled four at a time.
    """
    if FORMAT == "plain":
        dims = tl.arange(0, D)
        return tl.load(rows[:, None] + dims[None, :], mask=valid[:, None], other=0.0)
    else:
        # three dims, so that a scale is loaded once a block
        N: tl.constexpr = rows.shape[0]
        BLOCKS: tl.constexpr = D // QUANT_BLOCK
        blocks = tl.arange(0, BLOCKS)
        dims = blocks[:, None] * QUANT_BLOCK + tl.arange(0, QUANT_BLOCK)[None, :]
        # of dims that are not coded, bytes of the same row are decoded and then not used: fewer masks, fewer registers
        here = valid[:, None, None]
        code = tl.load(codes[:, None, None] + dims[None, :, :], mask=here, other=0)
        coded_block = tl.minimum(blocks, NOPE // QUANT_BLOCK - 1)
        scale = tl.load(scales[:, None] + coded_block[None, :], mask=valid[:, None], other=127)
        if PTX and FORMAT == "ocp":
            factor = tl.broadcast_to(_scale_factor(scale)[:, :, None], (N, BLOCKS, QUANT_BLOCK))
            value = tl.inline_asm_elementwise(
                _OCP_PTX, "=r,=r,r,r,r,r,r", [code, factor], dtype=tl.bfloat16, is_pure=True, pack=4
            )
        else:
            value = as_bfloat16(decode_e4m3(code, FORMAT == "fnuz") * decode_e8m0(scale)[:, :, None])
        rotated = tl.load(rows[:, None, None] + (dims - NOPE // 2)[None, :, :], mask=here & (dims >= NOPE), other=0.0)
        return tl.reshape(tl.where((dims < NOPE)[None, :, :], value, rotated), (N, D))


class KeyArguments(NamedTuple):
    """What a kernel takes of a cache. Strides in elements: of `values` (bytes are at twice as many), of `scales`."""

    values: Tensor
    codes: Tensor
    scales: Tensor
    slots: int
    row_stride: int
    scale_stride: int


def key_arguments(rows: KvRows) -> KeyArguments:
    if rows.scales is None:  # codes and scales are never loaded
        return KeyArguments(rows.data, rows.data, rows.data, rows.data.shape[0], rows.data.stride(0), 0)
    values = rows.data.view(torch.bfloat16)
    return KeyArguments(values, rows.data, rows.scales, values.shape[0], values.stride(0), rows.scales.stride(0))


def key_format(rows: KvRows, q: Tensor) -> dict[str, object]:
    """Constants of a kernel that reads these rows for queries q [T, H, D].

    ValueError for a combination that the kernels do not serve: it names the tensor and what would do.
    """
    head_dim = q.shape[-1]
    if head_dim < 16 or head_dim & (head_dim - 1):
        raise ValueError(f"q: head dim {head_dim}; the kernels take a power of two from 16 on")
    if q.dtype not in (torch.bfloat16, torch.float32):
        raise ValueError(f"q: {q.dtype}; the kernels take bfloat16 or float32")
    if rows.scales is None:
        if rows.data.dtype != q.dtype or rows.data.shape[1] != head_dim or rows.data.stride(1) != 1:
            raise ValueError(
                f"plain cache rows: {rows.data.dtype} of {rows.data.shape[1]}, expected contiguous rows of {q.dtype} "
                f"with q's head dim {head_dim}"
            )
        return {"FORMAT": "plain", "D": head_dim, "NOPE": head_dim, "QUANT_BLOCK": head_dim}
    shape = fp8_shape(rows, head_dim)
    if q.dtype != torch.bfloat16:
        raise ValueError(f"q: {q.dtype}; FP8 cache rows are served with bfloat16 queries")
    if shape.block & (shape.block - 1) or head_dim % shape.block or shape.nope % 2:
        raise ValueError(f"FP8 cache rows: blocks of {shape.block} in {head_dim} dims; expected a power of two")
    return {"FORMAT": FORMATS[rows.dialect], "D": head_dim, "NOPE": shape.nope, "QUANT_BLOCK": shape.block}
