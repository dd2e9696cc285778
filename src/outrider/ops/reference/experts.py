"""Mixture of experts: routing, and the clamped SwiGLU of the experts that were chosen.

s   = sqrt(softplus(gate @ x))
sel = tid2eid[token]  or  top-k of (s + bias)         the bias selects and never weighs
w   = s[sel] / sum(s[sel]) * routed_scaling_factor
y   = sum_e w2_e @ (w_e * silu(min(w1_e x, L)) * clamp(w3_e x, -L, L))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from outrider.ops.reference.activations import clamped_swiglu, softplus
from outrider.ops.reference.linear import Linear


class ExpertWeights(NamedTuple):
    """gate_up: [2 I, d], rows of w1 first, then w3; down: [d, I]."""

    gate_up: Linear
    down: Linear


def routing_scores(router_logits: Tensor) -> Tensor:
    """sqrt(softplus(x)), float32 [T, E]."""
    return softplus(router_logits).sqrt_()


def select_experts(scores: Tensor, bias: Tensor, topk: int) -> Tensor:
    """Ids of the `topk` experts of largest scores + bias, ascending; ties go to the lowest id. [T, topk] int64."""
    order = torch.sort(scores + bias, dim=-1, descending=True, stable=True).indices
    return order[:, :topk].sort(dim=-1).values


def expert_weights(scores: Tensor, selected: Tensor, scaling: float) -> Tensor:
    """Share of each selected expert: its score over the sum of the selected ones, times `scaling`. [T, topk]."""
    chosen = scores.gather(1, selected)
    return chosen / chosen.sum(-1, keepdim=True) * scaling


def expert_mlp(
    x: Tensor,
    weights: ExpertWeights,
    limit: float,
    share: Tensor | None,
    round_trip: Callable[[Tensor], Tensor],
) -> Tensor:
    """One expert. x: [T, d], already as its linear takes it; share: [T, 1] or None; -> [T, d].

    The share multiplies before the down projection, as in the reference; `round_trip` is what the down projection's
    input goes through (activation FP8, or nothing).
    """
    gate, up = weights.gate_up(x).chunk(2, dim=-1)
    hidden = clamped_swiglu(gate, up, limit)
    if share is not None:
        hidden.mul_(share)
    return weights.down(round_trip(hidden))


def routed_experts(
    x: Tensor,
    selected: Tensor,
    shares: Tensor,
    experts: Sequence[ExpertWeights],
    limit: float,
    round_trip: Callable[[Tensor], Tensor],
) -> Tensor:
    """Sum over each token's experts, in ascending order of expert id. x: [T, d], selected, shares: [T, k] -> [T, d]."""
    out = torch.zeros_like(x)
    flat = selected.flatten()
    k = selected.shape[1]
    for expert in sorted(set(flat.tolist())):
        pairs = (flat == expert).nonzero()[:, 0]
        tokens = pairs // k
        share = shares.flatten()[pairs, None]
        y = expert_mlp(x[tokens], experts[expert], limit, share, round_trip)
        out.index_add_(0, tokens, y)
    return out
