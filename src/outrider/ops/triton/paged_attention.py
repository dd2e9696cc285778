"""Attention of each query over the paged caches: selected compressed entries and the sliding window, read in place.

The keys of the query at position p, one list: its entries (the top-k list's, or all that are visible), ascending, then
the window's positions max(first, p - window + 1) .. p, ascending. The list is a function of the query's own position
and top-k row, so prefill, decode and verify rows are one kernel and one result; a verify row cannot see a later draft.

Invalid input: a query with position < 0 or request < 0 (a padded row of a captured batch) gives 0 and reads no table.
An entry that is -1, not visible at p, or whose page lies outside the cache is no key; nothing is read out of bounds.

Floor: 4 H D FLOP a key and query; bytes of the distinct cache rows once, q and out once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.ops.reference import paged_attention as reference
from outrider.ops.reference.paged_attention import EntryKeys, PagedRows, Queries
from outrider.ops.reference.rope import Rotation
from outrider.ops.triton.key_rows import key_arguments, key_format, load_keys
from outrider.ops.triton.launching import cdiv, has_kernels, has_ptx, launch, next_power_of_2, tiles_for
from outrider.ops.triton.softmax_tiles import LOG2_E, fold_tile, load_query, load_sink, output_angles, query_and_heads
from outrider.ops.triton.splits import finish_or_leave, launches, merge, part_of
from outrider.platforms.tiles import AttentionTiles


@triton.jit
def page_slots(table, index, wanted, table_width, num_slots, PER_PAGE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Row `index` [N] of a request whose pages are table[0 .. table_width) -> (cache slot int64, whether it exists)."""
    page_index = index // PER_PAGE
    wanted = wanted & (index >= 0) & (page_index < table_width)
    page = tl.load(table + page_index, mask=wanted, other=-1).to(tl.int64)
    slot = page * PER_PAGE + index % PER_PAGE
    exists = wanted & (page >= 0) & (slot < num_slots)
    return tl.where(exists, slot, 0), exists


@triton.jit(
    do_not_specialize=[
        "topk_stride",
        "entry_limit",
        "window_slots",
        "window_table_width",
        "entry_slots",
        "entry_table_width",
        "max_splits",
        "max_seq_len",
    ]
)
def paged_attention_kernel(  # type: ignore[no-untyped-def]
    q,
    out,
    partial_acc,
    partial_top,
    partial_total,
    key_counts,
    sink,
    cos,
    sin,
    positions,
    requests,
    first_positions,
    topk_indices,
    window_rows,
    window_codes,
    window_scales,
    window_table,
    entry_rows,
    entry_codes,
    entry_scales,
    entry_table,
    num_heads,
    topk_stride,
    entry_limit,
    window_slots,
    window_row_stride,
    window_scale_stride,
    window_table_width,
    entry_slots,
    entry_row_stride,
    entry_scale_stride,
    entry_table_width,
    max_splits,
    max_seq_len,
    scale_log2e,
    WINDOW: tl.constexpr,
    RATIO: tl.constexpr,
    LISTED: tl.constexpr,
    PAGE_TOKENS: tl.constexpr,
    FORMAT: tl.constexpr,
    PTX: tl.constexpr,
    D: tl.constexpr,
    NOPE: tl.constexpr,
    QUANT_BLOCK: tl.constexpr,
    ROPE_OUT: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SPLIT_KEYS: tl.constexpr,
    SPLIT_CEIL: tl.constexpr,
):
    """Grid: (queries * head tiles, splits of the longest query). Strides are in elements of the rows' (or bytes of the
    scales') tensor; RATIO 0: no entries; LISTED: entries come from topk_indices, else they are 0, 1, ...; SPLIT_CEIL:
    SPLIT_KEYS or the next power of two."""
    query, heads, live_heads = query_and_heads(num_heads, BLOCK_H)
    split = tl.program_id(1)

    position = tl.load(positions + query).to(tl.int32)
    request = tl.load(requests + query).to(tl.int64)
    live = (position >= 0) & (request >= 0)
    request = tl.where(live, request, 0)
    visible = 0
    entry_count = 0
    if RATIO > 0:
        visible = tl.where(live, (position + 1) // RATIO, 0)
        entry_count = tl.minimum(visible, entry_limit)
    first = tl.maximum(tl.load(first_positions + request, mask=live, other=0).to(tl.int32), position + 1 - WINDOW)
    key_count = entry_count + tl.where(live, tl.maximum(position + 1 - first, 0), 0)
    # a query beyond the promised length has splits without a program: it gives NaN instead of leaving keys out
    promised = position < max_seq_len
    key_count = tl.where(promised, key_count, 0)
    splits = tl.maximum(tl.cdiv(key_count, SPLIT_KEYS), 1)
    if split >= splits:
        return

    q_tile = load_query(q, query, num_heads, heads, live_heads, D)
    sink_log2 = load_sink(sink, heads, live_heads)

    top = sink_log2
    total = tl.zeros((BLOCK_H,), tl.float32) + tl.where(promised, 0.0, float("nan"))
    acc = tl.zeros((BLOCK_H, D), tl.float32)
    # the slots of the whole split first: loads that wait for each other in the loop could not run ahead of its products
    listed = split * SPLIT_KEYS + tl.arange(0, SPLIT_CEIL)
    found, exists = page_slots(
        window_table + request * window_table_width, first + listed - entry_count,
        (listed >= entry_count) & (listed < key_count), window_table_width, window_slots, PAGE_TOKENS,
    )  # fmt: skip
    slots = tl.where(exists, found.to(tl.int32), -1)
    if RATIO > 0:
        entry = listed
        if LISTED:
            entry = tl.load(topk_indices + query * topk_stride + listed, mask=listed < entry_count, other=-1)
        found, exists = page_slots(
            entry_table + request * entry_table_width, entry, (listed < entry_count) & (entry < visible),
            entry_table_width, entry_slots, PAGE_TOKENS // RATIO,
        )  # fmt: skip
        slots = tl.where(exists, found.to(tl.int32), slots)

    for start in range(split * SPLIT_KEYS, tl.minimum((split + 1) * SPLIT_KEYS, key_count), BLOCK_N):
        index = start + tl.arange(0, BLOCK_N)
        slot = tl.gather(slots, index - split * SPLIT_KEYS, 0)
        valid = slot >= 0
        slot = tl.maximum(slot, 0).to(tl.int64)
        rows = window_rows + slot * window_row_stride
        codes = window_codes + slot * window_row_stride * 2
        scales = window_scales + slot * window_scale_stride
        if RATIO > 0:
            in_entries = index < entry_count
            rows = tl.where(in_entries, entry_rows + slot * entry_row_stride, rows)
            codes = tl.where(in_entries, entry_codes + slot * entry_row_stride * 2, codes)
            scales = tl.where(in_entries, entry_scales + slot * entry_scale_stride, scales)
        keys = load_keys(rows, codes, scales, valid, D, NOPE, QUANT_BLOCK, FORMAT, PTX)
        top, total, acc = fold_tile(q_tile, keys, valid, start < key_count, top, total, acc, scale_log2e, PTX)

    finish_or_leave(
        out, partial_acc, partial_top, partial_total, key_counts, acc, top, total, sink_log2, query, split, splits,
        max_splits, key_count, num_heads, heads, live_heads, cos, sin, D, ROPE_OUT,
    )  # fmt: skip


def paged_sparse_attention(
    q: Tensor,
    queries: Queries,
    window: PagedRows,
    first_positions: Tensor,
    window_size: int,
    entries: EntryKeys | None,
    sink: Tensor,
    scale: float,
    max_seq_len: int,
    rotation: Rotation | None = None,
    *,
    tiles: AttentionTiles | None = None,
) -> Tensor:
    """As the reference. `tiles` are the architecture's unless a test or benchmark asks for others."""
    if not has_kernels(q):
        return reference.paged_sparse_attention(
            q, queries, window, first_positions, window_size, entries, sink, scale, max_seq_len, rotation
        )
    if tiles is None:
        tiles = tiles_for(q.device, fp8=window.rows.scales is not None)
    heads = q.shape[1]
    constants = key_format(window.rows, q)
    keys = key_arguments(window.rows)
    entry_keys, entry_table, topk_indices, entry_limit, ratio = keys, window.table, queries.requests[:, None], 0, 0
    if entries is not None:
        if key_format(entries.paged.rows, q) != constants:
            raise ValueError("window and entries must be stored in one format")
        ratio = entries.ratio
        if entries.paged.per_page * ratio != window.per_page:
            raise ValueError(
                f"a page holds {window.per_page} tokens and {entries.paged.per_page} entries, expected "
                f"{window.per_page // ratio} at ratio {ratio}"
            )
        entry_keys, entry_table = key_arguments(entries.paged.rows), entries.paged.table
        entry_limit = entry_table.shape[1] * entries.paged.per_page
        if entries.topk_indices is not None:
            topk_indices = entries.topk_indices
            entry_limit = topk_indices.shape[1]
    longest = window_size + (min(entry_limit, max_seq_len // ratio) if ratio else 0)
    split_keys = tiles.split_keys
    splits = cdiv(longest, split_keys)
    cos, sin, rope = output_angles(rotation, q)
    out = torch.empty_like(q)
    for part, parts in launches(out, splits):
        launch(
            paged_attention_kernel,
            ((part.stop - part.start) * cdiv(heads, tiles.head_tile), splits),
            part_of(q, part),
            part_of(out, part),
            *parts,
            sink,
            part_of(cos, part),
            part_of(sin, part),
            part_of(queries.positions, part),
            part_of(queries.requests, part),
            first_positions,
            part_of(topk_indices, part),
            keys.values,
            keys.codes,
            keys.scales,
            window.table,
            entry_keys.values,
            entry_keys.codes,
            entry_keys.scales,
            entry_table,
            heads,
            topk_indices.stride(0),
            entry_limit,
            keys.slots,
            keys.row_stride,
            keys.scale_stride,
            window.table.shape[1],
            entry_keys.slots,
            entry_keys.row_stride,
            entry_keys.scale_stride,
            entry_table.shape[1],
            splits,
            max_seq_len,
            scale * LOG2_E.value,
            WINDOW=window_size,
            RATIO=ratio,
            LISTED=entries is not None and entries.topk_indices is not None,
            PAGE_TOKENS=window.per_page,
            ROPE_OUT=rope,
            BLOCK_H=tiles.head_tile,
            BLOCK_N=tiles.key_tile,
            PTX=has_ptx(q.device),
            SPLIT_KEYS=split_keys,
            SPLIT_CEIL=next_power_of_2(split_keys),
            num_warps=tiles.num_warps,
            num_stages=tiles.num_stages,
            **constants,
        )
        if splits > 1:
            merge(part_of(out, part), parts, sink, part_of(cos, part), part_of(sin, part), rope, split_keys)
    return out
