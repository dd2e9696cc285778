"""Lightning indexer: which compressed entries a query attends.

I[t, j] = sum_h w[t, h] * relu(q[t, h] . k[j])        then the top-k entries, equal scores to the lowest index
"""

from __future__ import annotations

import torch
from torch import Tensor

from outrider.ops.reference.linear import aligned


def hadamard(x: Tensor) -> Tensor:
    """Orthonormal Walsh-Hadamard transform (Sylvester order) over the last dim, a power of two. Float32."""
    n = x.shape[-1]
    half = 1
    while half < n:
        pairs = x.unflatten(-1, (n // (2 * half), 2, half))
        even, odd = pairs[..., 0, :], pairs[..., 1, :]
        x = torch.stack([even + odd, even - odd], dim=-2).flatten(-3)
        half *= 2
    return x * n**-0.5


def indexer_scores(q: Tensor, head_weights: Tensor, keys: Tensor) -> Tensor:
    """Scores of one query: q [H, D], head_weights [H], keys [N, D] -> [N] float32."""
    scores = torch.mm(aligned(q), aligned(keys).t()).clamp_min_(0.0).mul_(head_weights[:, None])
    return scores.sum(0)


def top_entries(scores: Tensor, topk: int) -> Tensor:
    """Indices of the `topk` best entries of each row, ascending; ties go to the lowest index.

    scores: [T, N] float32, -inf where an entry is not visible; every row has at least topk visible entries.
    Returns [T, topk] int64.
    """
    order = torch.sort(scores, dim=-1, descending=True, stable=True).indices
    return order[:, :topk].sort(dim=-1).values
