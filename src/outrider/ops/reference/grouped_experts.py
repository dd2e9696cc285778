"""The chosen experts of every token, from quantised weights.

    h[t, e] = share[t, e] * silu(min(w1_e x_t, L)) * clamp(w3_e x_t, -L, L)        y_t = sum_e w2_e h[t, e]

Inputs of both products are bfloat16 values, rounded further as FP8 with one power-of-two scale for 128 values when the
model was trained so (`round_trip`). Products and sums are float32; a token's experts are added in ascending order of
their ids, then the shared expert's output; the sum is rounded once, to x's dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import torch
from torch import Tensor

from outrider.ops.expert_bank import ExpertBank, check_bank, read_expert
from outrider.ops.formats import FP8_BLOCK, round_trip_fp8
from outrider.ops.reference.expert_routing import Routes
from outrider.ops.reference.experts import ExpertWeights, routed_experts
from outrider.ops.reference.linear import Linear


class _ReadWhenChosen(Sequence[ExpertWeights]):
    """Experts of a bank as float32, each decoded when it is asked for: all of them would fill the memory."""

    def __init__(self, bank: ExpertBank) -> None:
        self._bank = bank

    def __len__(self) -> int:
        return self._bank.experts

    @overload
    def __getitem__(self, expert: int) -> ExpertWeights: ...
    @overload
    def __getitem__(self, expert: slice) -> Sequence[ExpertWeights]: ...
    def __getitem__(self, expert: int | slice) -> ExpertWeights | Sequence[ExpertWeights]:
        if isinstance(expert, slice):
            return [self[e] for e in range(*expert.indices(len(self)))]
        gate_up, down = read_expert(self._bank, expert)
        return ExpertWeights(Linear(gate_up), Linear(down))


def check_experts(x: Tensor, routes: Routes, bank: ExpertBank, shared: Tensor | None) -> None:
    """ValueError, naming the tensor, if they do not fit."""
    check_bank(bank)
    if x.ndim != 2 or x.shape[1] != bank.hidden_size or x.dtype not in (torch.bfloat16, torch.float32):
        raise ValueError(
            f"x: {list(x.shape)} {x.dtype}, expected [T, {bank.hidden_size}] bfloat16 or float32 for these experts"
        )
    shape = routes.selected.shape
    if len(shape) != 2 or shape[0] != x.shape[0] or routes.shares.shape != shape:
        raise ValueError(
            f"routes: selected {list(shape)}, shares {list(routes.shares.shape)}, "
            f"expected [T, k] for {x.shape[0]} tokens"
        )
    if routes.selected.dtype != torch.int32 or routes.shares.dtype != torch.float32:
        raise ValueError(
            f"routes: selected {routes.selected.dtype}, shares {routes.shares.dtype}, expected int32 and float32"
        )
    if shared is not None and (shared.shape != x.shape or shared.dtype not in (torch.bfloat16, torch.float32)):
        raise ValueError(f"shared: {list(shared.shape)} {shared.dtype}, expected {list(x.shape)}, bfloat16 or float32")


def grouped_experts(
    x: Tensor, routes: Routes, bank: ExpertBank, limit: float, shared: Tensor | None = None, *, round_trip: bool
) -> Tensor:
    """x: [T, d] bfloat16 or float32, shared: [T, d] (output of the shared expert) -> [T, d], x's dtype.

    limit: `swiglu_limit`. A padded row (expert ids -1) reaches no expert: its output is that of the shared one, or 0.
    """
    check_experts(x, routes, bank, shared)

    def as_input(values: Tensor) -> Tensor:
        values = values.to(torch.bfloat16).float()
        return round_trip_fp8(values, FP8_BLOCK) if round_trip else values

    live = routes.selected[:, 0] >= 0
    out = torch.zeros(x.shape, device=x.device)
    selected, shares = routes.selected[live].long(), routes.shares[live]
    out[live] = routed_experts(as_input(x[live]), selected, shares, _ReadWhenChosen(bank), limit, as_input)
    if shared is not None:
        out += shared.float()
    return out.to(x.dtype)
