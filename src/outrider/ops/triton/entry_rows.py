"""One compressed entry, or indexer key, from registers to its row of a cache: plain, FP8 in either dialect, or FP4."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from outrider.ops.formats import FP4_BLOCK
from outrider.ops.index_rows import check_index_rows, is_fp4
from outrider.ops.kv_rows import KvRows, fp8_shape
from outrider.ops.triton.arithmetic import cast_like
from outrider.ops.triton.fp4_bytes import encode_e2m1, fp4_block_scale
from outrider.ops.triton.fp8_bytes import (
    block_scale,
    decode_e4m3,
    decode_e8m0,
    encode_e4m3,
    magnitude_bits,
    reciprocal_scale,
    stored_scale,
)
from outrider.ops.triton.key_rows import FORMATS


@triton.jit
def store_entry(  # type: ignore[no-untyped-def]
    x,
    values,
    codes,
    scales,
    FORMAT: tl.constexpr,
    D: tl.constexpr,
    CODED: tl.constexpr,
    QUANT_BLOCK: tl.constexpr,
):
    """x: [D] float32, rounded to the dtype of `values` already; values, codes, scales: pointers to the row as such.

    FORMAT "plain": D values. "rounded": the same, the first CODED dims rounded as FP8 would. "ocp", "fnuz": CODED
    bytes, then D - CODED bfloat16. "fp4": D / 2 bytes.
    """
    dtype: tl.constexpr = values.dtype.element_ty
    BLOCKS: tl.constexpr = D // QUANT_BLOCK
    blocks = tl.arange(0, BLOCKS)
    dims = blocks[:, None] * QUANT_BLOCK + tl.arange(0, QUANT_BLOCK)[None, :]
    x = tl.reshape(x, (BLOCKS, QUANT_BLOCK))
    amax = tl.max(magnitude_bits(x), 1)
    if FORMAT == "plain":
        tl.store(values + dims, cast_like(x, dtype))
    elif FORMAT == "fp4":
        scale = fp4_block_scale(amax)
        code = encode_e2m1(x * reciprocal_scale(scale)[:, None])
        even, odd = tl.split(tl.reshape(code, (D // 2, 2)))
        tl.store(codes + tl.arange(0, D // 2), (even | (odd << 4)).to(tl.uint8))
        tl.store(scales + blocks, scale.to(tl.uint8))
    else:
        scale = block_scale(amax)
        scaled = x * reciprocal_scale(scale)[:, None]
        if FORMAT == "rounded":
            rounded = decode_e4m3(encode_e4m3(scaled, False), False) * decode_e8m0(scale)[:, None]
            tl.store(values + dims, cast_like(tl.where(dims < CODED, rounded, x), dtype))
        else:
            FNUZ: tl.constexpr = FORMAT == "fnuz"
            tl.store(codes + dims, encode_e4m3(scaled, FNUZ), mask=dims < CODED)
            tl.store(scales + blocks, stored_scale(scale, FNUZ), mask=blocks * QUANT_BLOCK < CODED)
            if CODED < D:  # the bfloat16 dims begin at byte CODED of the row
                tl.store(values + dims - CODED // 2, cast_like(x, dtype), mask=dims >= CODED)


def entry_format(rows: KvRows, head_dim: int, rope: int, block: int, *, round_trip: bool) -> dict[str, object]:
    """Constants of a kernel that writes latent entries to these rows. ValueError for rows that it cannot write."""
    _check_dims(head_dim)
    nope = head_dim - rope
    if block & (block - 1) or nope % block:
        raise ValueError(
            f"blocks of {block}; the kernel takes powers of two that divide the {nope} of {head_dim} dims that are not "
            "rotated"
        )
    name = "rounded" if round_trip else "plain"
    if rows.scales is not None:
        shape = fp8_shape(rows, head_dim)
        if (shape.nope, shape.block) != (nope, block):
            raise ValueError(
                f"entry rows of {shape.nope} quantised dims in blocks of {shape.block}, the rotation leaves {nope} and "
                f"blocks of {block} are asked for"
            )
        name = FORMATS[rows.dialect]
    elif rows.data.shape[1] != head_dim or rows.data.dtype not in (torch.bfloat16, torch.float32):
        raise ValueError(
            f"entry rows: {rows.data.dtype} of {rows.data.shape[1]}, expected bfloat16 or float32 of {head_dim}"
        )
    return {"FORMAT": name, "D": head_dim, "ROPE": rope, "CODED": nope, "QUANT_BLOCK": block, "HADAMARD": False}


def index_key_format(rows: KvRows, head_dim: int, rope: int) -> dict[str, object]:
    """As `entry_format`, of indexer keys: FP4 and FP8 ones code every dim, after Hadamard."""
    _check_dims(head_dim)
    check_index_rows(rows, head_dim)
    name = "fp4" if is_fp4(rows) else FORMATS[rows.dialect]
    if name == "plain" and rows.data.dtype not in (torch.bfloat16, torch.float32):
        raise ValueError(f"indexer keys: {rows.data.dtype}; plain rows are bfloat16 or float32")
    constants = {"FORMAT": name, "D": head_dim, "ROPE": rope, "CODED": head_dim, "HADAMARD": name != "plain"}
    return constants | {"QUANT_BLOCK": FP4_BLOCK if name == "fp4" else head_dim}


def _check_dims(head_dim: int) -> None:
    if head_dim < 16 or head_dim & (head_dim - 1):
        raise ValueError(f"norm_weight: {head_dim} dims; the kernel takes a power of two from 16 on")
