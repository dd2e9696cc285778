"""Lightning indexer over a paged cache: queries made ready, their scores of the visible entries, the best of them.

    q       = round(hadamard(rope(q)))                                         keys are stored so already
    I[t, j] = sum_h w[t, h] * relu(q[t, h] . k[j])     for j < visible = (p + 1) // ratio
    top-k   = the topk largest of them, equal scores to the lowest index, ascending by index

A score is a function of the query's own row and one key, a list one of the query's own scores. NaN counts as the
largest (as in torch.sort): a fault in a key or a query then shows in the output instead of being passed over. -0 is 0.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from outrider.ops.formats import round_trip_fp4, round_trip_fp8
from outrider.ops.index_rows import read_index_rows
from outrider.ops.reference.indexer import hadamard, indexer_scores, top_entries
from outrider.ops.reference.paged_attention import PagedRows, Queries
from outrider.ops.reference.rope import Rotation, apply_rope

IndexerFormat = Literal["fp4", "fp8"]


def index_queries(q: Tensor, rotation: Rotation, indexer_format: IndexerFormat | None, block: int) -> Tensor:
    """q: [T, H, D] bfloat16 or float32, as projected; its last dims are rotated, then all of them by Hadamard and
    rounded as E2M1 or E4M3 with one E8M0 scale a block. None: neither, for plain keys: on both sides Hadamard cancels.

    Returns the values of those codes, [T, H, D] of q's dtype (both formats are exact in bfloat16). Rounded to q's dtype
    after the rope and after Hadamard, as the reference inference does. A block with NaN or infinity is NaN.
    """
    rotated = apply_rope(q.to(torch.float32, copy=True), rotation).to(q.dtype)
    if indexer_format is None:
        return rotated
    mixed = hadamard(rotated.float()).to(q.dtype)
    rounded = round_trip_fp4(mixed, block) if indexer_format == "fp4" else round_trip_fp8(mixed, block)
    return rounded.to(q.dtype)


def indexer_logits(
    q: Tensor, head_weights: Tensor, queries: Queries, keys: PagedRows, ratio: int, width: int, more_than: int = 0
) -> Tensor:
    """q: [T, H, D], ready; head_weights: [T, H] float32, may be negative; keys: a layer's indexer keys (`index_rows`),
    one an entry. Returns [T, width] float32.

    A row's first min(visible, width) columns are its scores, -inf where the entry's page lies outside the cache; the
    others hold anything. A row that sees no more than `more_than` entries is not scored, nor is a padded row (position
    or request -1).
    """
    logits = torch.full((q.shape[0], width), float("-inf"), device=q.device)
    for row in range(q.shape[0]):
        position, request = int(queries.positions[row]), int(queries.requests[row])
        visible = (position + 1) // ratio if request >= 0 else 0
        if visible <= max(more_than, 0):
            continue
        index = torch.arange(min(visible, width), device=q.device)
        page_index = index // keys.per_page
        inside = page_index < keys.table.shape[1]
        pages = keys.table[request, page_index.masked_fill(~inside, 0)].long()
        slots = torch.where(inside & (pages >= 0), pages * keys.per_page + index % keys.per_page, -1)
        exists = (slots >= 0) & (slots < keys.rows.data.shape[0])
        rows = read_index_rows(keys.rows, slots, q.shape[-1])
        scores = indexer_scores(q[row].float(), head_weights[row], rows)
        logits[row, : index.shape[0]] = scores.masked_fill(~exists, float("-inf"))
    return logits


def top_visible_entries(logits: Tensor, queries: Queries, ratio: int, topk: int) -> Tensor:
    """logits: [T, N] float32, of which a query's first (p + 1) // ratio columns count. Returns [T, topk] int32: a
    query's best entries, ascending, all it sees where that is not more than topk; then -1.

    A padded row has none; nor has a query that sees more than N (it lies beyond the length that was promised).
    """
    chosen = torch.full((logits.shape[0], topk), -1, dtype=torch.int32, device=logits.device)
    for row in range(logits.shape[0]):
        position, request = int(queries.positions[row]), int(queries.requests[row])
        visible = (position + 1) // ratio if request >= 0 else 0
        if visible <= topk:
            chosen[row, :visible] = torch.arange(visible, dtype=torch.int32, device=logits.device)
        elif visible <= logits.shape[1]:
            chosen[row] = top_entries(logits[row : row + 1, :visible], topk)[0].to(torch.int32)
    return chosen


def select_entries(
    q: Tensor,
    head_weights: Tensor,
    queries: Queries,
    keys: PagedRows,
    ratio: int,
    topk: int,
    max_seq_len: int,
) -> Tensor:
    """`indexer_logits`, then `top_visible_entries`: [T, topk] int32, what `paged_sparse_attention` takes as its list.

    max_seq_len: no position of the batch reaches it. A query beyond it that would select has no entries, and attention,
    given the same bound, answers NaN.
    """
    width = max(max_seq_len // ratio, 1)
    logits = indexer_logits(q, head_weights, queries, keys, ratio, width, topk)
    return top_visible_entries(logits, queries, ratio, topk)
