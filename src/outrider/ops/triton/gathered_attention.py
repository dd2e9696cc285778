"""Attention of each query over a list of rows of a gathered buffer, as `combine_topk_swa_indices` makes it.

The same splits, tiles and arithmetic as the paged kernel: a query whose list names the same keys gets the same bits.

Invalid input: an index outside the buffer (-1) is no key and nothing is read for it; a length beyond the list's width
is the width. Floor: 4 H D FLOP a key and query; bytes of the distinct rows, of q, of out and of the lists once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.ops.kv_rows import KvRows
from outrider.ops.reference import paged_attention as reference
from outrider.ops.reference.rope import Rotation
from outrider.ops.triton.key_rows import key_arguments, key_format, load_keys
from outrider.ops.triton.launching import cdiv, has_kernels, has_ptx, launch, tiles_for
from outrider.ops.triton.softmax_tiles import LOG2_E, fold_tile, load_query, load_sink, output_angles, query_and_heads
from outrider.ops.triton.splits import finish_or_leave, launches, merge, part_of
from outrider.platforms.tiles import AttentionTiles


@triton.jit(do_not_specialize=["combined_width", "num_rows", "max_splits"])
def gathered_attention_kernel(  # type: ignore[no-untyped-def]
    q,
    out,
    partial_acc,
    partial_top,
    partial_total,
    key_counts,
    sink,
    cos,
    sin,
    combined_indices,
    combined_lens,
    rows,
    codes,
    scales,
    num_heads,
    combined_width,
    combined_stride,
    num_rows,
    row_stride,
    scale_stride,
    max_splits,
    scale_log2e,
    FORMAT: tl.constexpr,
    PTX: tl.constexpr,
    D: tl.constexpr,
    NOPE: tl.constexpr,
    QUANT_BLOCK: tl.constexpr,
    ROPE_OUT: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SPLIT_KEYS: tl.constexpr,
):
    """Grid: (queries * head tiles, splits of the widest list)."""
    query, heads, live_heads = query_and_heads(num_heads, BLOCK_H)
    split = tl.program_id(1)
    key_count = tl.minimum(tl.load(combined_lens + query), combined_width)
    splits = tl.maximum(tl.cdiv(key_count, SPLIT_KEYS), 1)
    if split >= splits:
        return

    q_tile = load_query(q, query, num_heads, heads, live_heads, D)
    sink_log2 = load_sink(sink, heads, live_heads)

    top = sink_log2
    total = tl.zeros((BLOCK_H,), tl.float32)
    acc = tl.zeros((BLOCK_H, D), tl.float32)
    for start in range(split * SPLIT_KEYS, tl.minimum((split + 1) * SPLIT_KEYS, key_count), BLOCK_N):
        index = start + tl.arange(0, BLOCK_N)
        slot = tl.load(combined_indices + query * combined_stride + index, mask=index < key_count, other=-1)
        slot = slot.to(tl.int64)
        valid = (slot >= 0) & (slot < num_rows)
        slot = tl.where(valid, slot, 0)
        keys = load_keys(
            rows + slot * row_stride, codes + slot * row_stride * 2, scales + slot * scale_stride, valid,
            D, NOPE, QUANT_BLOCK, FORMAT, PTX,
        )  # fmt: skip
        top, total, acc = fold_tile(q_tile, keys, valid, start < key_count, top, total, acc, scale_log2e, PTX)

    finish_or_leave(
        out, partial_acc, partial_top, partial_total, key_counts, acc, top, total, sink_log2, query, split, splits,
        max_splits, key_count, num_heads, heads, live_heads, cos, sin, D, ROPE_OUT,
    )  # fmt: skip


def gathered_sparse_attention(
    q: Tensor,
    rows: KvRows,
    combined_indices: Tensor,
    combined_lens: Tensor,
    sink: Tensor,
    scale: float,
    rotation: Rotation | None = None,
    *,
    tiles: AttentionTiles | None = None,
) -> Tensor:
    """As the reference. `tiles` are the architecture's unless a test or benchmark asks for others."""
    if not has_kernels(q):
        return reference.gathered_sparse_attention(q, rows, combined_indices, combined_lens, sink, scale, rotation)
    if tiles is None:
        tiles = tiles_for(q.device, fp8=rows.scales is not None)
    heads = q.shape[1]
    constants = key_format(rows, q)
    keys = key_arguments(rows)
    split_keys = tiles.split_keys
    splits = max(1, cdiv(combined_indices.shape[1], split_keys))
    cos, sin, rope = output_angles(rotation, q)
    out = torch.empty_like(q)
    for part, parts in launches(out, splits):
        launch(
            gathered_attention_kernel,
            ((part.stop - part.start) * cdiv(heads, tiles.head_tile), splits),
            part_of(q, part),
            part_of(out, part),
            *parts,
            sink,
            part_of(cos, part),
            part_of(sin, part),
            part_of(combined_indices, part),
            part_of(combined_lens, part),
            keys.values,
            keys.codes,
            keys.scales,
            heads,
            combined_indices.shape[1],
            combined_indices.stride(0),
            keys.slots,
            keys.row_stride,
            keys.scale_stride,
            splits,
            scale * LOG2_E.value,
            ROPE_OUT=rope,
            BLOCK_H=tiles.head_tile,
            BLOCK_N=tiles.key_tile,
            PTX=has_ptx(q.device),
            SPLIT_KEYS=split_keys,
            num_warps=tiles.num_warps,
            num_stages=tiles.num_stages,
            **constants,
        )
        if splits > 1:
            merge(part_of(out, part), parts, sink, part_of(cos, part), part_of(sin, part), rope, split_keys)
    return out
