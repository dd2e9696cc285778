"""Router: scores, choice and shares of each token's experts; and the tokens that a table routes by their id.

Formula and contract: ops/reference/expert_routing.py. One program a row, in one warp: the largest s + bias is taken k
times, the lowest id of equals first, and what was taken is stored in ascending order of id.

Invalid input: a padded row (position or request < 0, or a token id outside the table) gets ids -1 and shares 0.
Floor: 4 E bytes a token.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.ops.reference import expert_routing as reference
from outrider.ops.reference.expert_routing import Routes, check_router_logits, check_table
from outrider.ops.reference.paged_attention import Queries
from outrider.ops.triton.launching import has_kernels, launch, next_power_of_2
from outrider.ops.triton.radix_select import sortable

_TERMS = tl.constexpr(8)
_LOWEST = tl.constexpr(-(1 << 31))


@triton.jit
def routing_score(x):  # type: ignore[no-untyped-def]
    """sqrt(log(1 + e^x)), float32, without overflow and without losing small e^x: log(1 + e) = 2 atanh(e / (2 + e))."""
    e = tl.exp(-tl.abs(x))
    ratio = e / (2.0 + e)
    square = ratio * ratio  # at most 1/9
    total = tl.zeros_like(x)
    for k in tl.static_range(_TERMS):
        total = total * square + 1.0 / (2 * (_TERMS - 1 - k) + 1)
    total = 2.0 * ratio * total + tl.where(x > 0.0, x, 0.0)
    return tl.where(x != x, x, tl.sqrt(total))


@triton.jit(do_not_specialize=["num_experts"])
def route_tokens_kernel(  # type: ignore[no-untyped-def]
    router_logits, bias, positions, requests, selected, shares, num_experts, scaling, TOPK: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Grid: (tokens,)."""
    token = tl.program_id(0).to(tl.int64)
    slots = tl.arange(0, BLOCK_K)
    if (tl.load(positions + token) < 0) | (tl.load(requests + token) < 0):
        tl.store(selected + token * TOPK + slots, -1, mask=slots < TOPK)
        tl.store(shares + token * TOPK + slots, 0.0, mask=slots < TOPK)
        return
    experts = tl.arange(0, BLOCK_E)
    exists = experts < num_experts
    score = routing_score(tl.load(router_logits + token * num_experts + experts, mask=exists, other=0.0))
    key = sortable(score + tl.load(bias + experts, mask=exists, other=0.0))
    free = exists
    for _ in tl.static_range(TOPK):
        # a free expert may have the lowest key there is: so the comparison is among free ones alone
        best = tl.max(tl.where(free, key, _LOWEST), 0)
        first = tl.min(tl.where(free & (key == best), experts, BLOCK_E), 0)
        free = free & (experts != first)
    taken = exists & ~free
    total = tl.sum(tl.where(taken, score, 0.0), 0)
    slot = tl.cumsum(taken.to(tl.int32), 0) - 1
    tl.store(selected + token * TOPK + slot, experts, mask=taken)
    tl.store(shares + token * TOPK + slot, score / total * scaling, mask=taken)


@triton.jit(do_not_specialize=["num_experts", "vocab"])
def route_by_table_kernel(  # type: ignore[no-untyped-def]
    router_logits, table, token_ids, positions, requests, selected, shares, num_experts, vocab, scaling,
    TOPK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Grid: (tokens,)."""
    token = tl.program_id(0).to(tl.int64)
    slots = tl.arange(0, BLOCK_K)
    name = tl.load(token_ids + token).to(tl.int64)
    padded = (tl.load(positions + token) < 0) | (tl.load(requests + token) < 0) | (name < 0) | (name >= vocab)
    if padded:
        tl.store(selected + token * TOPK + slots, -1, mask=slots < TOPK)
        tl.store(shares + token * TOPK + slots, 0.0, mask=slots < TOPK)
        return
    live = slots < TOPK
    expert = tl.load(table + name * TOPK + slots, mask=live, other=0).to(tl.int32)
    other = tl.load(table + name * TOPK + slots[None, :], mask=live[None, :], other=0).to(tl.int32)
    # a second copy of an id, which no table should hold, keeps its place behind the first
    before = (other < expert[:, None]) | ((other == expert[:, None]) & (slots[None, :] < slots[:, None]))
    slot = tl.sum((before & live[None, :]).to(tl.int32), 1)
    inside = live & (expert >= 0) & (expert < num_experts)
    score = routing_score(tl.load(router_logits + token * num_experts + expert, mask=inside, other=0.0))
    # summed by slot, so that the order in which the table lists them does not show
    by_slot = tl.sum(tl.where((slot[:, None] == slots[None, :]) & live[:, None], score[:, None], 0.0), 0)
    total = tl.sum(by_slot, 0)
    tl.store(selected + token * TOPK + slot, expert, mask=live)
    tl.store(shares + token * TOPK + slot, score / total * scaling, mask=live)


def route_tokens(router_logits: Tensor, bias: Tensor, topk: int, scaling: float, queries: Queries) -> Routes:
    """As the reference."""
    if not has_kernels(router_logits):
        return reference.route_tokens(router_logits, bias, topk, scaling, queries)
    check_router_logits(router_logits, queries, topk)
    tokens, experts = router_logits.shape
    if bias.shape != (experts,) or bias.dtype != torch.float32:
        raise ValueError(f"gate.bias: {list(bias.shape)} {bias.dtype}, expected [{experts}] float32")
    routes = _empty(router_logits, topk)
    if tokens:
        launch(
            route_tokens_kernel,
            (tokens,),
            router_logits.contiguous(),
            bias,
            queries.positions,
            queries.requests,
            *routes,
            experts,
            scaling,
            TOPK=topk,
            BLOCK_E=next_power_of_2(experts),
            BLOCK_K=next_power_of_2(topk),
            num_warps=1,
        )
    return routes


def route_by_table(router_logits: Tensor, table: Tensor, token_ids: Tensor, scaling: float, queries: Queries) -> Routes:
    """As the reference."""
    if not has_kernels(router_logits):
        return reference.route_by_table(router_logits, table, token_ids, scaling, queries)
    topk = table.shape[-1]
    check_router_logits(router_logits, queries, topk)
    check_table(table, token_ids, router_logits)
    routes = _empty(router_logits, topk)
    if router_logits.shape[0]:
        launch(
            route_by_table_kernel,
            (router_logits.shape[0],),
            router_logits.contiguous(),
            table.contiguous(),
            token_ids.contiguous(),
            queries.positions,
            queries.requests,
            *routes,
            router_logits.shape[1],
            table.shape[0],
            scaling,
            TOPK=topk,
            BLOCK_K=next_power_of_2(topk),
            num_warps=1,
        )
    return routes


def _empty(router_logits: Tensor, topk: int) -> Routes:
    tokens, device = router_logits.shape[0], router_logits.device
    return Routes(torch.empty(tokens, topk, dtype=torch.int32, device=device), torch.empty(tokens, topk, device=device))
