"""Indexer scores and the best of them, for as many queries at a time as their scores' memory allows."""

from __future__ import annotations

import torch
from torch import Tensor

from outrider.ops.reference import paged_indexer as reference
from outrider.ops.reference.paged_attention import PagedRows, Queries
from outrider.ops.triton.indexer_logits import indexer_logits
from outrider.ops.triton.launching import has_kernels
from outrider.ops.triton.radix_select import top_visible_entries

# Bounds the scores of one launch; has no influence on any result.
_SCRATCH_BYTES = 512 << 20


def select_entries(
    q: Tensor,
    head_weights: Tensor,
    queries: Queries,
    keys: PagedRows,
    ratio: int,
    topk: int,
    max_seq_len: int,
    *,
    scratch_bytes: int = _SCRATCH_BYTES,
) -> Tensor:
    """As the reference. `scratch_bytes` is for tests."""
    if not has_kernels(q):
        return reference.select_entries(q, head_weights, queries, keys, ratio, topk, max_seq_len)
    width = max(max_seq_len // ratio, 1)
    step = max(1, scratch_bytes // (4 * width))
    chosen = [torch.empty(0, topk, dtype=torch.int32, device=q.device)]
    for start in range(0, q.shape[0], step):
        part = slice(start, start + step)
        some = Queries(queries.positions[part], queries.requests[part])
        logits = indexer_logits(q[part], head_weights[part], some, keys, ratio, width, topk)
        chosen.append(top_visible_entries(logits, some, ratio, topk))
    return torch.cat(chosen)
