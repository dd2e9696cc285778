"""Tokens from logits: each row's own temperature, filters, mask and position-keyed noise.

    scaled = logits / T;   kept = min_p(top_p(top_k(scaled)));   token = argmax(scaled[kept] + g(seed, position))

g is the Gumbel noise of the word that Philox gives for (seed, position, token): u = ((w >> 9) + 0.5) 2^-23, g =
-log(-log u). T = 0 is the argmax of the logits, neither filtered nor with noise. top_k keeps the k best (equal scores:
the lowest ids), top_p the smallest set of best tokens whose probability reaches p, min_p those with at least p times
the best one's probability. This is what sampling.Sampler draws, for many requests at once.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from outrider.ops.reference.philox import philox_words


class Draws(NamedTuple):
    """What the rows of a batch ask for, all [M] on the device of the logits.

    seeds:        int64, the 64 bits of each request's seed
    positions:    int64, absolute, of the token that is sampled
    temperatures: float32; 0: greedy
    top_k:        int32; 0: off
    top_p:        float32 in (0, 1]; 1: off
    min_p:        float32; 0: off
    filtered:     whether any row has top_k, top_p or min_p (known on the host)
    allowed:      [M, V] bool or None: tokens that may be drawn
    """

    seeds: Tensor
    positions: Tensor
    temperatures: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    filtered: bool
    allowed: Tensor | None = None


def sample_tokens(logits: Tensor, draws: Draws) -> Tensor:
    """logits: [M, V] float32 -> [M] int64, the lowest id among equal best scores.

    V where nothing can be drawn: a NaN or +infinity among the allowed logits, or nothing above -infinity.
    """
    if draws.allowed is not None:
        logits = logits.masked_fill(~draws.allowed, -torch.inf)
    greedy = (draws.temperatures == 0)[:, None]
    scaled = logits / torch.where(greedy, 1.0, draws.temperatures[:, None])
    kept = _filtered(scaled, draws) if draws.filtered else scaled
    words = philox_words(draws.seeds, draws.positions, torch.arange(logits.shape[1], device=logits.device))
    noise = (words >> 9).to(torch.float32).add_(0.5).mul_(2.0**-23).log_().neg_().log_().neg_()
    return best_tokens(torch.where(greedy | scaled.isnan(), scaled, kept + noise))


def best_tokens(scores: Tensor) -> Tensor:
    """[M, V] float32 -> [M] int64: the lowest id among each row's best scores, V where the best is not finite."""
    best = scores.amax(-1, keepdim=True)
    ids = torch.arange(scores.shape[-1], device=scores.device)
    return torch.where((scores == best) & torch.isfinite(best), ids, scores.shape[-1]).amin(-1)


def _filtered(scaled: Tensor, draws: Draws) -> Tensor:
    """Left-out tokens at -infinity."""
    best_first = scaled.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(scaled.shape[-1], device=scaled.device)
    most = torch.where(draws.top_k > 0, draws.top_k, scaled.shape[-1])[:, None]
    ordered = best_first.values.masked_fill(rank >= most, -torch.inf)
    probabilities = torch.softmax(ordered, dim=-1)
    before = probabilities.cumsum(-1) - probabilities
    ordered = ordered.masked_fill(
        (before >= draws.top_p[:, None]) & (draws.top_p < 1.0)[:, None] & (rank > 0), -torch.inf
    )
    probabilities = torch.softmax(ordered, dim=-1)
    ordered = ordered.masked_fill(probabilities < probabilities[:, :1] * draws.min_p[:, None], -torch.inf)
    return torch.empty_like(scaled).scatter_(1, best_first.indices, ordered)
