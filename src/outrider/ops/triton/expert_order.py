"""(token, expert) pairs in order of their expert, and the blocks of a grouped product.

Formula and contract: ops/reference/expert_routing.py. One program an expert reads all ids: it counts those of lower
experts, which is where its own pairs begin, and numbers its own by a running sum. Programs share nothing and wait for
nothing, so the order is the same every time. One more program marks what padded rows leave over. A second launch cuts
the experts' ranges into blocks.

Invalid input: ids < 0, or not below the number of experts, go nowhere.
Floor: 4 bytes a pair in and out; every expert's program reads the ids from L2.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.ops.reference import expert_routing as reference
from outrider.ops.reference.expert_routing import ExpertOrder, block_bound
from outrider.ops.triton.launching import has_kernels, launch, next_power_of_2

PAIR_TILE = 2048
"""Most ids that a program reads at a time. Changes speed alone."""


@triton.jit(do_not_specialize=["num_pairs", "num_experts"])
def order_pairs_kernel(selected, offsets, pairs, num_pairs, num_experts, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Grid: (experts + 1,). The last program has what is left over, as if it were one more expert."""
    own = tl.program_id(0)
    lanes = tl.arange(0, TILE)
    below = tl.zeros((TILE,), tl.int32)
    for first in range(0, num_pairs, TILE):
        pair = first + lanes
        expert = tl.load(selected + pair, mask=pair < num_pairs, other=-1)
        below += ((expert >= 0) & (expert < own)).to(tl.int32)
    begin = tl.sum(below, 0)
    tl.store(offsets + own, begin)
    for first in range(0, num_pairs, TILE):
        pair = first + lanes
        expert = tl.load(selected + pair, mask=pair < num_pairs, other=-1)
        nowhere = (expert < 0) | (expert >= num_experts)
        mine = tl.where(own == num_experts, nowhere, expert == own) & (pair < num_pairs)
        place = begin + tl.cumsum(mine.to(tl.int32), 0) - 1
        tl.store(pairs + place, tl.where(nowhere, -1, pair), mask=mine)
        begin += tl.sum(mine.to(tl.int32), 0)


@triton.jit(do_not_specialize=["num_experts", "num_blocks"])
def block_map_kernel(  # type: ignore[no-untyped-def]
    offsets, block_experts, block_starts, num_experts, num_blocks, TOKEN_TILE: tl.constexpr, BLOCK_E: tl.constexpr
):
    """Grid: (1,). The i-th block of every expert that has one is written at a time."""
    experts = tl.arange(0, BLOCK_E)
    exists = experts < num_experts
    begin = tl.load(offsets + experts, mask=exists, other=0)
    end = tl.load(offsets + experts + 1, mask=exists, other=0)
    blocks = (end - begin + TOKEN_TILE - 1) // TOKEN_TILE
    first = tl.cumsum(blocks, 0) - blocks
    for i in range(0, tl.max(blocks, 0)):
        tl.store(block_experts + first + i, experts, mask=i < blocks)
        tl.store(block_starts + first + i, begin + i * TOKEN_TILE, mask=i < blocks)
    for spare in range(tl.sum(blocks, 0), num_blocks, BLOCK_E):
        tl.store(block_experts + spare + experts, -1, mask=spare + experts < num_blocks)
        tl.store(block_starts + spare + experts, -1, mask=spare + experts < num_blocks)


def order_by_expert(selected: Tensor, experts: int, token_tile: int, *, pair_tile: int | None = None) -> ExpertOrder:
    """As the reference. `pair_tile` follows from the number of pairs unless a test asks for another."""
    if not has_kernels(selected):
        return reference.order_by_expert(selected, experts, token_tile)
    if selected.dtype != torch.int32:
        raise ValueError(f"selected: {selected.dtype}, expected [T, k] int32")
    count = selected.numel()
    blocks = block_bound(count, experts, token_tile)
    sizes = (experts + 1, count, blocks, blocks)
    order = ExpertOrder(*(torch.empty(n, dtype=torch.int32, device=selected.device) for n in sizes))
    if pair_tile is None:
        pair_tile = min(PAIR_TILE, max(32, next_power_of_2(count)))
    launch(
        order_pairs_kernel,
        (experts + 1,),
        selected.contiguous(),
        order.offsets,
        order.pairs,
        count,
        experts,
        TILE=pair_tile,
        num_warps=4,
    )
    if blocks:
        launch(
            block_map_kernel,
            (1,),
            order.offsets,
            order.block_experts,
            order.block_starts,
            experts,
            blocks,
            TOKEN_TILE=token_tile,
            BLOCK_E=next_power_of_2(experts),
            num_warps=4,
        )
    return order
