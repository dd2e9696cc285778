"""Which experts each token goes to, and the order in which a grouped product takes (token, expert) pairs.

s        = sqrt(softplus(router logits))
selected = top-k of s + bias, or the table's row of the token id;  in ascending order of expert id
shares   = s[selected] / sum(s[selected]) * scaling

Pair t * k + i is choice i of token t. Pairs are ordered by expert, and by number within one: every pair of a live token
once, in an order that is a function of `selected` alone. The pairs of an expert are cut into blocks of at most
`token_tile`, of which a program of the grouped product takes one. Nothing here needs the host to know a count.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from outrider.ops.reference.experts import expert_weights, routing_scores, select_experts
from outrider.ops.reference.paged_attention import Queries


class Routes(NamedTuple):
    """selected: [T, k] int32, ascending, -1 throughout a padded row; shares: [T, k] float32, there 0."""

    selected: Tensor
    shares: Tensor


class ExpertOrder(NamedTuple):
    """Pairs by expert. All int32.

    offsets:       [E + 1], the pairs of expert e are pairs[offsets[e] : offsets[e + 1]]
    pairs:         [T k], then -1 for what padded rows leave over
    block_experts: [blocks], expert of each block, ascending, then -1 for blocks that are not needed
    block_starts:  [blocks], index in `pairs` of each block's first; it ends after token_tile or where its expert does
    """

    offsets: Tensor
    pairs: Tensor
    block_experts: Tensor
    block_starts: Tensor


def block_bound(pairs: int, experts: int, token_tile: int) -> int:
    """The most blocks that so many pairs can need, however they are spread over experts."""
    touched = min(pairs, experts)
    return touched + (pairs - touched) // token_tile


def check_router_logits(router_logits: Tensor, queries: Queries, topk: int) -> None:
    """ValueError, naming the tensor, if they do not fit."""
    if router_logits.ndim != 2 or router_logits.dtype != torch.float32:
        raise ValueError(
            f"router_logits: {list(router_logits.shape)} {router_logits.dtype}, expected [T, E] float32: the router "
            "is not rounded"
        )
    if not 1 <= topk <= router_logits.shape[1]:
        raise ValueError(f"num_experts_per_tok {topk}: expected 1 .. {router_logits.shape[1]}, the number of experts")
    if queries.positions.shape != queries.requests.shape or queries.positions.shape != router_logits.shape[:1]:
        raise ValueError(
            f"queries: positions {list(queries.positions.shape)}, requests {list(queries.requests.shape)} for "
            f"{router_logits.shape[0]} rows of router_logits"
        )


def check_table(table: Tensor, token_ids: Tensor, router_logits: Tensor) -> None:
    """ValueError, naming the tensor, if they do not fit."""
    if table.ndim != 2 or table.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"tid2eid: {list(table.shape)} {table.dtype}, expected [vocab, k] int32 or int64")
    if token_ids.shape != router_logits.shape[:1]:
        raise ValueError(f"token_ids: {list(token_ids.shape)} for {router_logits.shape[0]} rows of router_logits")


def route_tokens(router_logits: Tensor, bias: Tensor, topk: int, scaling: float, queries: Queries) -> Routes:
    """router_logits: [T, E] float32, bias: [E] float32. Equal sums go to the lowest id; NaN counts as largest."""
    check_router_logits(router_logits, queries, topk)
    scores = routing_scores(router_logits)
    return _routes(scores, select_experts(scores, bias, topk), scaling, queries)


def route_by_table(router_logits: Tensor, table: Tensor, token_ids: Tensor, scaling: float, queries: Queries) -> Routes:
    """table: [vocab, k] int32 or int64, distinct expert ids a row; token_ids: [T]. An id outside it: a padded row."""
    check_router_logits(router_logits, queries, table.shape[-1])
    check_table(table, token_ids, router_logits)
    known = (token_ids >= 0) & (token_ids < table.shape[0])
    selected = table[token_ids.masked_fill(~known, 0).long()].long().sort(dim=-1).values
    queries = queries._replace(positions=queries.positions.masked_fill(~known, -1))
    return _routes(routing_scores(router_logits), selected, scaling, queries)


def _routes(scores: Tensor, selected: Tensor, scaling: float, queries: Queries) -> Routes:
    shares = expert_weights(scores, selected, scaling)
    padded = ((queries.positions < 0) | (queries.requests < 0))[:, None]
    return Routes(selected.masked_fill(padded, -1).to(torch.int32), shares.masked_fill(padded, 0.0))


def order_by_expert(selected: Tensor, experts: int, token_tile: int) -> ExpertOrder:
    """selected: [T, k] int32; an id outside 0 .. experts - 1 (-1, say) goes nowhere."""
    flat = selected.flatten().long()
    live = (flat >= 0) & (flat < experts)
    order = torch.sort(flat.masked_fill(~live, experts), stable=True).indices
    counts = torch.bincount(flat[live], minlength=experts)
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    blocks = -(-counts // token_tile)
    owners = torch.repeat_interleave(torch.arange(experts, device=flat.device), blocks)
    first = torch.cat([blocks.new_zeros(1), blocks.cumsum(0)])[owners]
    starts = offsets[owners] + (torch.arange(owners.numel(), device=flat.device) - first) * token_tile
    bound = block_bound(flat.numel(), experts, token_tile)
    padding = starts.new_full((bound - owners.numel(),), -1)
    pairs = order.masked_fill(torch.arange(order.numel(), device=flat.device) >= int(offsets[-1]), -1)
    found = (offsets, pairs, torch.cat([owners, padding]), torch.cat([starts, padding]))
    return ExpertOrder(*(x.to(torch.int32) for x in found))
