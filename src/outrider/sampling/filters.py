"""Filters that take tokens out of a distribution before the draw; each row is treated alone."""

from __future__ import annotations

import torch
from torch import Tensor

from outrider.sampling.params import SamplingParams


def filter_logits(scaled: Tensor, params: SamplingParams) -> Tensor:
    """Sets logits of left-out tokens to -inf. scaled: [M, V] float32, already divided by the temperature.

    top_k keeps the k best (equal scores: the lowest ids); top_p the smallest set of best tokens whose probability
    reaches p; min_p those with at least p times the best one's probability. The best token always stays.
    """
    if params.top_k and params.top_k < scaled.shape[-1]:
        scaled = _keep_first(scaled, torch.full((scaled.shape[0], 1), params.top_k))
    if params.top_p < 1.0:
        probabilities = torch.softmax(scaled, dim=-1).sort(dim=-1, descending=True, stable=True).values
        before = probabilities.cumsum(-1) - probabilities
        scaled = _keep_first(scaled, (before < params.top_p).sum(-1, keepdim=True).clamp_min(1))
    if params.min_p > 0.0:
        probabilities = torch.softmax(scaled, dim=-1)
        floor = probabilities.amax(-1, keepdim=True) * params.min_p
        scaled = scaled.masked_fill(probabilities < floor, float("-inf"))
    return scaled


def _keep_first(scaled: Tensor, counts: Tensor) -> Tensor:
    """Keeps the counts[m] best tokens of row m, ties to the lowest ids."""
    order = scaled.sort(dim=-1, descending=True, stable=True).indices
    rank = torch.empty_like(order).scatter_(1, order, torch.arange(order.shape[1]).expand_as(order))
    return scaled.masked_fill(rank >= counts, float("-inf"))
