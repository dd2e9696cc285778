"""Attention of each query over cache rows: by page tables, or by a list of rows of a gathered buffer. Keys are values.

    s_i = (q . k_i) * scale;   o = sum_i exp(s_i) k_i / (sum_i exp(s_i) + exp(sink)),   then inverse rope if asked for

Keys of the query at position p, in this order: its compressed entries (the top-k list's, or all that are visible,
j < (p + 1) // ratio), then positions max(first, p - window + 1) .. p. A list that is a function of the query's own
position and top-k row: the same in prefill, decode and verify, whatever else is in the batch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from outrider.ops.kv_rows import KvRows, read_rows
from outrider.ops.reference.attention import attend
from outrider.ops.reference.rope import Rotation, apply_rope


class PagedRows(NamedTuple):
    """Rows of a cache by request: row i of request r is at slot table[r, i // per_page] * per_page + i % per_page.

    table: [R, pages] int32; per_page: rows a page. A page that lies outside the cache (-1, say) holds no key.
    """

    rows: KvRows
    table: Tensor
    per_page: int


class Queries(NamedTuple):
    """Which query each row of q is. Both [T] int32; -1 in either: a padded row, whose output is 0."""

    positions: Tensor
    requests: Tensor


class EntryKeys(NamedTuple):
    """Compressed entries that queries attend, of a layer of this compression ratio.

    topk_indices: [T, topk] int32, a query's entries ascending, the first min((p + 1) // ratio, topk) columns count;
    one that is -1 or not visible is no key. None: all visible entries.
    """

    paged: PagedRows
    ratio: int
    topk_indices: Tensor | None


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
) -> Tensor:
    """q: [T, H, D] bfloat16 or float32; first_positions: [R] lowest position of a request that has a window row;
    sink: [H] float32, finite; max_seq_len: no position of the batch reaches it; rotation: of the queries, to rotate the
    output back. Returns [T, H, D] of q's dtype; a query without a key gives 0, one at or beyond max_seq_len NaN.
    """
    out = torch.zeros(q.shape, dtype=torch.float32)
    for row in range(q.shape[0]):
        position, request = int(queries.positions[row]), int(queries.requests[row])
        if position < 0 or request < 0:
            continue
        if position >= max_seq_len:
            out[row] = float("nan")
            continue
        found = []
        if entries is not None:
            found.append(_read(entries.paged, request, _entries(entries, row, position), q.shape[-1]))
        start = max(int(first_positions[request]), position + 1 - window_size)
        found.append(_read(window, request, torch.arange(min(start, position + 1), position + 1), q.shape[-1]))
        keys, exists = (torch.cat(parts) for parts in zip(*found, strict=True))
        _attend_one(q[row], keys, exists, sink, scale, out[row])
    if rotation is not None:
        out = apply_rope(out, rotation.inverse())
    return out.to(q.dtype)


def gathered_sparse_attention(
    q: Tensor,
    rows: KvRows,
    combined_indices: Tensor,
    combined_lens: Tensor,
    sink: Tensor,
    scale: float,
    rotation: Rotation | None = None,
) -> Tensor:
    """q: [T, H, D]; combined_indices: [T, width] int32 rows, in order, of which the first combined_lens [T] count; one
    outside the rows (-1) is no key. Otherwise as `paged_sparse_attention`."""
    out = torch.zeros(q.shape, dtype=torch.float32)
    for row in range(q.shape[0]):
        slots = combined_indices[row, : int(combined_lens[row])].long()
        exists = (slots >= 0) & (slots < rows.data.shape[0])
        _attend_one(q[row], read_rows(rows, slots, q.shape[-1]), exists, sink, scale, out[row])
    if rotation is not None:
        out = apply_rope(out, rotation.inverse())
    return out.to(q.dtype)


def _entries(entries: EntryKeys, row: int, position: int) -> Tensor:
    visible = (position + 1) // entries.ratio
    if entries.topk_indices is None:
        return torch.arange(visible)
    chosen = entries.topk_indices[row, :visible].long()
    return torch.where(chosen < visible, chosen, -1)


def paged_slots(paged: PagedRows, requests: Tensor, index: Tensor) -> Tensor:
    """Rows `index` of `requests` (int64, of shapes that broadcast) -> cache slots, -1 outside the cache. int64."""
    page_index = index // paged.per_page
    inside = (index >= 0) & (page_index < paged.table.shape[1])
    pages = paged.table[requests, page_index.masked_fill(~inside, 0)].long()
    slots = torch.where(inside & (pages >= 0), pages * paged.per_page + index % paged.per_page, -1)
    return slots.masked_fill(slots >= paged.rows.data.shape[0], -1)


def _read(paged: PagedRows, request: int, index: Tensor, head_dim: int) -> tuple[Tensor, Tensor]:
    """(keys [N, D] float32, whether each exists [N])."""
    slots = paged_slots(paged, index.new_full((1,), request), index)
    return read_rows(paged.rows, slots, head_dim), slots >= 0


def _attend_one(q: Tensor, keys: Tensor, exists: Tensor, sink: Tensor, scale: float, out: Tensor) -> None:
    keys = keys[exists]
    if keys.shape[0]:
        bias = torch.zeros(1, 1, keys.shape[0])
        attend(q[None].float(), keys[None], bias, sink.float(), scale, out[None])
