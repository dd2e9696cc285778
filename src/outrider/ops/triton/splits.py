"""Splits of a query's keys: what a split leaves behind, and the merge.

Floor of the merge: 4 (D + 2) bytes a head and split in, the output once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.ops.triton.launching import cdiv, launch
from outrider.ops.triton.softmax_tiles import finish, load_sink, query_and_heads

_MERGE_HEADS = 4
# Bounds the scratch memory of one launch; has no influence on any result.
_SCRATCH_BYTES = 512 << 20


class Scratch(NamedTuple):
    """acc: [T, S, H, D], top and total: [T, S, H] float32; key_counts: [T] int32. Written for queries with S > 1."""

    acc: Tensor
    top: Tensor
    total: Tensor
    key_counts: Tensor


def launches(out: Tensor, splits: int) -> Iterator[tuple[slice, Scratch]]:
    """The queries of out [T, H, D], as many at a time as the bound on their scratch allows (all where nothing is
    split), and that scratch."""
    queries, heads, head_dim = out.shape
    if splits == 1:
        if queries:
            unused = torch.empty(0, device=out.device)
            yield slice(0, queries), Scratch(unused, unused, unused, unused.view(torch.int32))
        return
    step = max(1, _SCRATCH_BYTES // (4 * splits * heads * head_dim))
    for start in range(0, queries, step):
        part = slice(start, min(start + step, queries))
        rows = part.stop - part.start
        acc, top, total = (torch.empty(rows, splits, heads, *d, device=out.device) for d in ((head_dim,), (), ()))
        yield part, Scratch(acc, top, total, torch.empty(rows, dtype=torch.int32, device=out.device))


def part_of(x: Tensor, part: slice) -> Tensor:
    """x[part]; x itself where that is all of it, since a view costs the host more than the comparison."""
    return x if part.stop - part.start == x.shape[0] else x[part]


@triton.jit
def finish_or_leave(  # type: ignore[no-untyped-def]
    out,
    partial_acc,
    partial_top,
    partial_total,
    key_counts,
    acc,
    top,
    total,
    sink,
    query,
    split,
    splits,
    max_splits,
    key_count,
    num_heads,
    heads,
    live_heads,
    cos,
    sin,
    D: tl.constexpr,
    ROPE: tl.constexpr,
):
    """The end of a split: a query's only one is finished, one of several leaves acc [H, D], top and total [H]."""
    if splits == 1:
        finish(out, acc, top, total, sink, query, num_heads, heads, live_heads, cos, sin, D, ROPE)
    else:
        row = (query * max_splits + split) * num_heads + heads
        tl.store(partial_top + row, top, mask=live_heads)
        tl.store(partial_total + row, total, mask=live_heads)
        tl.store(partial_acc + row[:, None] * D + tl.arange(0, D)[None, :], acc, mask=live_heads[:, None])
    if max_splits > 1:
        tl.store(key_counts + query, key_count)


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
    query, heads, live_heads = query_and_heads(num_heads, BLOCK_H)
    splits = tl.cdiv(tl.load(key_counts + query), SPLIT_KEYS)
    if splits <= 1:
        return
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
    finish(out, acc, top, total, sink_log2, query, num_heads, heads, live_heads, cos, sin, D, ROPE)


def merge(out: Tensor, parts: Scratch, sink: Tensor, cos: Tensor, sin: Tensor, rope: int, split_keys: int) -> None:
    """Finishes the rows of out [T, H, D] that have more than one split."""
    queries, heads, head_dim = out.shape
    launch(
        merge_kernel,
        (queries * cdiv(heads, _MERGE_HEADS),),
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
    )
