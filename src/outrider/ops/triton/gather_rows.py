"""Rows of a cache, by slot, as one plain buffer: what `combine_topk_swa_indices` indexes.

Invalid input: a slot outside the cache (-1) gives zeros and nothing is read for it.
Floor: bytes of the rows in, 2 D (bfloat16) a row out.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.ops.kv_rows import KvRows
from outrider.ops.reference import norm_rope_insert as reference
from outrider.ops.triton.key_rows import key_arguments, key_format, load_keys
from outrider.ops.triton.launching import cdiv, has_kernels, has_ptx, launch

_ROW_TILE = 16


@triton.jit(do_not_specialize=["num_rows", "num_slots"])
def gather_rows_kernel(  # type: ignore[no-untyped-def]
    out,
    slots,
    values,
    codes,
    scales,
    num_rows,
    num_slots,
    row_stride,
    scale_stride,
    FORMAT: tl.constexpr,
    D: tl.constexpr,
    NOPE: tl.constexpr,
    QUANT_BLOCK: tl.constexpr,
    PTX: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Grid: (ceil(rows / BLOCK_N),)."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    slot = tl.load(slots + row, mask=row < num_rows, other=-1).to(tl.int64)
    valid = (slot >= 0) & (slot < num_slots)
    slot = tl.where(valid, slot, 0)
    found = load_keys(
        values + slot * row_stride, codes + slot * row_stride * 2, scales + slot * scale_stride, valid,
        D, NOPE, QUANT_BLOCK, FORMAT, PTX,
    )  # fmt: skip
    tl.store(out + row[:, None] * D + tl.arange(0, D)[None, :], found, mask=(row < num_rows)[:, None])


def gather_rows(cache: KvRows, slots: Tensor, head_dim: int) -> Tensor:
    """As the reference."""
    if not has_kernels(cache.data):
        return reference.gather_rows(cache, slots, head_dim)
    dtype = torch.bfloat16 if cache.scales is not None else cache.data.dtype
    out = torch.empty(slots.shape[0], head_dim, dtype=dtype, device=slots.device)
    if slots.shape[0] == 0:
        return out
    rows = key_arguments(cache)
    launch(
        gather_rows_kernel,
        (cdiv(slots.shape[0], _ROW_TILE),),
        out,
        slots,
        rows.values,
        rows.codes,
        rows.scales,
        slots.shape[0],
        rows.slots,
        rows.row_stride,
        rows.scale_stride,
        BLOCK_N=_ROW_TILE,
        PTX=has_ptx(slots.device),
        num_warps=8,
        **key_format(cache, out[:, None]),
    )
    return out
