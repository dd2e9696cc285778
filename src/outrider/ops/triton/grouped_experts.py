"""The chosen experts of every token: inputs staged, pairs sorted by expert, two grouped products, one sum a token.

Formula and contract: ops/reference/grouped_experts.py. Five launches and the sort's two, no synchronisation with the
host: the grid has room for the most blocks that so many pairs can need, and those that are not needed end at once.

Floor: bytes of the experts that anyone chose, from some hundred tokens on 6 d I FLOP a pair.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from outrider.ops.expert_bank import ExpertBank
from outrider.ops.reference import grouped_experts as reference
from outrider.ops.reference.expert_routing import ExpertOrder, Routes
from outrider.ops.reference.grouped_experts import check_experts
from outrider.ops.triton.expert_order import order_by_expert
from outrider.ops.triton.expert_products import (
    ROWS,
    combine_experts_kernel,
    expert_down_kernel,
    expert_gate_up_kernel,
)
from outrider.ops.triton.key_rows import FORMATS
from outrider.ops.triton.launching import cdiv, expert_tiles_for, has_kernels, has_ptx, launch
from outrider.ops.triton.stage_inputs import COLUMNS, stage_inputs_kernel
from outrider.platforms.tiles import ExpertTiles


class Format(NamedTuple):
    """How a bank's weights are read. parts: codes of a 16-bit word."""

    name: str
    parts: int


def bank_format(bank: ExpertBank) -> Format:
    """ "fp4", or the dialect of FP8."""
    return Format("fp4", 4) if bank.dialect is None else Format(FORMATS[bank.dialect], 2)


def _scale_words(scales: Tensor, bank: ExpertBank) -> Tensor:
    """As the kernels load them: four FP4 scales of a row at a time."""
    return scales.view(torch.int32) if bank.dialect is None else scales


def stage_inputs(x: Tensor, parts: int, *, round_trip: bool) -> Tensor:
    """x: [T, K] bfloat16 or float32, K a multiple of 128 -> [T, K] bfloat16, columns by code of a word."""
    tokens, columns = x.shape
    staged = torch.empty(tokens, columns, dtype=torch.bfloat16, device=x.device)
    if tokens:
        launch(
            stage_inputs_kernel,
            (tokens, cdiv(columns, COLUMNS)),
            x.contiguous(),
            staged,
            K=columns,
            PARTS=parts,
            ROUND_TRIP=round_trip,
            COLUMNS=COLUMNS,
            num_warps=4,
        )
    return staged


def launch_products(
    staged: Tensor,
    routes: Routes,
    order: ExpertOrder,
    bank: ExpertBank,
    limit: float,
    tiles: ExpertTiles,
    *,
    round_trip: bool,
) -> Tensor:
    """The two products alone. staged: [T, d] -> float32 [T * k, d], rows of pairs that go nowhere unwritten."""
    name, _ = bank_format(bank)
    topk = routes.selected.shape[1]
    pairs, blocks = routes.selected.numel(), order.block_experts.numel()
    d, width = bank.hidden_size, bank.width
    hidden = torch.empty(pairs, width, dtype=torch.bfloat16, device=staged.device)
    partial = torch.empty(pairs, d, device=staged.device)
    cut = {"K_TILE": tiles.k_tile, "TOKEN_TILE": tiles.token_tile, "PTX": has_ptx(staged.device), "FORMAT": name}
    options = {"num_warps": tiles.num_warps, "num_stages": tiles.num_stages}
    blocks_of = (order.pairs, order.offsets, order.block_experts, order.block_starts)
    if blocks:
        launch(
            expert_gate_up_kernel,
            (blocks * (width // ROWS),),
            staged,
            bank.gate_up.view(torch.int16),
            _scale_words(bank.gate_up_scales, bank),
            routes.shares.contiguous(),
            *blocks_of,
            hidden,
            limit,
            K=d,
            WIDTH=width,
            TOPK=topk,
            ROUND_TRIP=round_trip,
            **cut,
            **options,
        )
        launch(
            expert_down_kernel,
            (blocks * (d // ROWS),),
            hidden,
            bank.down.view(torch.int16),
            _scale_words(bank.down_scales, bank),
            *blocks_of,
            partial,
            D=d,
            K=width,
            **cut,
            **options,
        )
    return partial


def combine_experts(partial: Tensor, selected: Tensor, shared: Tensor | None, dtype: torch.dtype) -> Tensor:
    """partial: [T * k, d] float32, selected: [T, k], shared: [T, d] or None -> [T, d] of `dtype`."""
    tokens, topk = selected.shape
    d = partial.shape[1]
    out = torch.empty(tokens, d, dtype=dtype, device=partial.device)
    if tokens:
        launch(
            combine_experts_kernel,
            (tokens, cdiv(d, COLUMNS)),
            partial,
            selected,
            partial if shared is None else shared.contiguous(),
            out,
            D=d,
            TOPK=topk,
            SHARED=shared is not None,
            COLUMNS=COLUMNS,
            num_warps=4,
        )
    return out


def grouped_experts(
    x: Tensor,
    routes: Routes,
    bank: ExpertBank,
    limit: float,
    shared: Tensor | None = None,
    *,
    round_trip: bool,
    tiles: ExpertTiles | None = None,
) -> Tensor:
    """As the reference. `tiles` are the architecture's for so many pairs unless a test or benchmark asks for others."""
    if not has_kernels(x):
        return reference.grouped_experts(x, routes, bank, limit, shared, round_trip=round_trip)
    check_experts(x, routes, bank, shared)
    routes = Routes(routes.selected.contiguous(), routes.shares)
    if tiles is None:
        tiles = expert_tiles_for(x.device, routes.selected.numel(), bank.experts)
    order = order_by_expert(routes.selected, bank.experts, tiles.token_tile)
    staged = stage_inputs(x, bank_format(bank).parts, round_trip=round_trip)
    partial = launch_products(staged, routes, order, bank, limit, tiles, round_trip=round_trip)
    return combine_experts(partial, routes.selected, shared, x.dtype)
