"""Mixture of experts of one layer: a router (learned, or a table by token id), routed experts, one shared expert."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from outrider import ops
from outrider.config import ModelConfig
from outrider.model.rounding import Rounding


class MixtureOfExperts:
    """`prefix`: official name up to and with `ffn.`."""

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, Tensor],
        prefix: str,
        rounding: Rounding,
        *,
        hash_routed: bool,
    ) -> None:
        self._topk = config.num_experts_per_tok
        self._scaling = config.routed_scaling_factor
        self._limit = config.swiglu_limit
        self._rounding = rounding
        self._router = ops.Linear(weights[prefix + "gate.weight"])
        self._table = weights[prefix + "gate.tid2eid"].long() if hash_routed else None
        self._bias = None if hash_routed else weights[prefix + "gate.bias"]
        self._experts = [_expert(weights, f"{prefix}experts.{e}.") for e in range(config.n_routed_experts)]
        self._shared = _expert(weights, prefix + "shared_experts.")

    def forward(self, x: Tensor, token_ids: Tensor) -> Tensor:
        """x: [T, d], token_ids: [T] int64 -> [T, d]."""
        scores = ops.routing_scores(self._router(x))
        if self._table is not None:
            selected = self._table[token_ids]
        else:
            assert self._bias is not None
            selected = ops.select_experts(scores, self._bias, self._topk)
        shares = ops.expert_weights(scores, selected, self._scaling)
        round_trip = self._rounding.linear_input
        x = round_trip(x)
        routed = ops.routed_experts(x, selected, shares, self._experts, self._limit, round_trip)
        return routed.add_(ops.expert_mlp(x, self._shared, self._limit, None, round_trip))


def _expert(weights: Mapping[str, Tensor], prefix: str) -> ops.ExpertWeights:
    gate_up = torch.cat([weights[prefix + "w1.weight"], weights[prefix + "w3.weight"]])
    return ops.ExpertWeights(ops.Linear(gate_up), ops.Linear(weights[prefix + "w2.weight"]))
