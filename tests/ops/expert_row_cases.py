"""Row cases of routing and of experts kept in FP4 or FP8. CASES here are all of them."""

from __future__ import annotations

from typing import Any

import torch
from tests.ops.dense_row_cases import CASES
from tests.ops.row_cases import ROWS, Built, case
from torch import Tensor, randn

from outrider.ops.expert_bank import quantize_experts
from outrider.platforms.architectures import Fp8Dialect

__all__ = ["CASES"]


def _some_padded(rows: int) -> Tensor:
    """Positions of rows, every ninth one padded."""
    positions = torch.arange(rows, dtype=torch.int32)
    return positions.masked_fill(positions % 9 == 8, -1)


def _route_tokens(ops: Any, experts: int) -> Built:
    bias = randn(experts)

    def call(logits: Tensor, positions: Tensor) -> tuple[Tensor, ...]:
        return tuple(ops.route_tokens(logits, bias, 6, 1.5, ops.Queries(positions, torch.zeros_like(positions))))

    return call, (randn(ROWS, experts), _some_padded(ROWS))


def _route_by_table(ops: Any, experts: int) -> Built:
    table = torch.stack([torch.randperm(experts)[:6] for _ in range(50)])

    def call(logits: Tensor, token_ids: Tensor, positions: Tensor) -> tuple[Tensor, ...]:
        queries = ops.Queries(positions, torch.zeros_like(positions))
        return tuple(ops.route_by_table(logits, table, token_ids, 1.5, queries))

    return call, (randn(ROWS, experts), torch.randint(0, 50, (ROWS,)), _some_padded(ROWS))


def _grouped_experts(ops: Any, dialect: Fp8Dialect | None) -> Built:
    experts, d, width = 5, 128, 128
    bank = quantize_experts(randn(experts, 2 * width, d) / 8, randn(experts, d, width) / 8, dialect)
    selected = torch.stack([torch.randperm(experts)[:2].sort().values for _ in range(ROWS)]).to(torch.int32)
    selected[8::9] = -1

    def call(x: Tensor, selected: Tensor, shares: Tensor, shared: Tensor) -> Tensor:
        return ops.grouped_experts(x, ops.Routes(selected, shares), bank, 10.0, shared, round_trip=True)

    return call, (randn(ROWS, d).bfloat16(), selected, torch.rand(ROWS, 2), randn(ROWS, d).bfloat16())


case("route_tokens", "256", _route_tokens, 256)
case("route_by_table", "256", _route_by_table, 256)
for name, dialect in (("fp4", None), ("ocp", Fp8Dialect.OCP), ("fnuz", Fp8Dialect.FNUZ)):
    case("grouped_experts", name, _grouped_experts, dialect)
