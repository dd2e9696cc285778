"""Splits of a query's keys: what a split leaves behind, and the merge.

Floor of the merge: 4 (D + 2) bytes a head and split in, the output once.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.ops.triton.launching import OPTIONS
from outrider.ops.triton.softmax_tiles import finish, load_sink

_MERGE_HEADS = 4
# Bounds the scratch memory of one launch; has no influence on any result.
_SCRATCH_BYTES = 512 << 20


class Scratch(NamedTuple):
    """acc: [T, S, H, D], top and total: [T, S, H] float32; key_counts: [T] int32. Written for queries with S > 1."""

    acc: Tensor
    top: Tensor
    total: Tensor
    key_counts: Tensor


def scratch(queries: int, splits: int, heads: int, head_dim: int, device: torch.device) -> Scratch:
    if splits == 1:  # nothing is written
        queries = 0
    shape = (queries, splits, heads)
    return Scratch(
        torch.empty(*shape, head_dim, device=device),
        torch.empty(shape, device=device),
        torch.empty(shape, device=device),
        torch.empty(queries, dtype=torch.int32, device=device),
    )


def queries_at_once(splits: int, heads: int, head_dim: int) -> int:
    """Queries whose scratch fits the bound; all of them where nothing is split."""
    if splits == 1:
        return 1 << 31
    return max(1, _SCRATCH_BYTES // (4 * splits * heads * head_dim))


@triton.jit
def store_split(partial_acc, partial_top, partial_total, acc, top, total, row, live_heads, D: tl.constexpr):  # type: ignore[no-untyped-def]
    """Leaves acc [H, D], top and total [H] at `row` [H] of the scratch."""
    dims = tl.arange(0, D)
    tl.store(partial_top + row, top, mask=live_heads)
    tl.store(partial_total + row, total, mask=live_heads)
    tl.store(partial_acc + row[:, None] * D + dims[None, :], acc, mask=live_heads[:, None])


@triton.jit(do_not_specialize=["max_splits"])
def merge_kernel(  # type: ignore[no-untyped-def]
    out,
    partial_acc,
    partial_top,
    partial_total,
    key_counts,
    sink,
    cos,
    sin,
    num_heads,
    max_splits,
    SPLIT_KEYS: tl.constexpr,
    D: tl.constexpr,
    ROPE: tl.constexpr,
    BLOCK_H: tl.constexpr,
):
    """Grid: (queries * head tiles,). Queries with one split are finished already."""
    head_tiles = tl.cdiv(num_heads, BLOCK_H)
    query = (tl.program_id(0) // head_tiles).to(tl.int64)
    splits = tl.cdiv(tl.load(key_counts + query), SPLIT_KEYS)
    if splits <= 1:
        return
    heads = tl.program_id(0) % head_tiles * BLOCK_H + tl.arange(0, BLOCK_H)
    live_heads = heads < num_heads
    dims = tl.arange(0, D)
    sink_log2 = load_sink(sink, heads, live_heads)
    top = sink_log2
    for split in range(splits):
        row = (query * max_splits + split) * num_heads + heads
        top = tl.maximum(top, tl.load(partial_top + row, mask=live_heads, other=0.0))
    total = tl.zeros((BLOCK_H,), tl.float32)
    acc = tl.zeros((BLOCK_H, D), tl.float32)
    for split in range(splits):
        row = (query * max_splits + split) * num_heads + heads
        decay = tl.exp2(tl.load(partial_top + row, mask=live_heads, other=0.0) - top)
        total += tl.load(partial_total + row, mask=live_heads, other=0.0) * decay
        part = tl.load(partial_acc + row[:, None] * D + dims[None, :], mask=live_heads[:, None], other=0.0)
        acc += part * decay[:, None]
    angle_row = query * (ROPE // 2)
    finish(
        out + query * num_heads * D, acc, top, total, sink_log2, heads, live_heads,
        cos + angle_row, sin + angle_row, D, ROPE,
    )  # fmt: skip


def merge(out: Tensor, parts: Scratch, sink: Tensor, cos: Tensor, sin: Tensor, rope: int, split_keys: int) -> None:
    """Finishes the rows of out [T, H, D] that have more than one split."""
    queries, heads, head_dim = out.shape
    merge_kernel[(queries * triton.cdiv(heads, _MERGE_HEADS),)](
        out,
        *parts,
        sink,
        cos,
        sin,
        heads,
        parts.top.shape[1],
        SPLIT_KEYS=split_keys,
        D=head_dim,
        ROPE=rope,
        BLOCK_H=_MERGE_HEADS,
        num_warps=4,
        **OPTIONS,
    )
