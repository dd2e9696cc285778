"""How many drafts a step should carry, and whose.

    rate(B, d) = (c + sum of survival of the B best slots) / (verify_ms[c + B] + draft_ms[d][c])
    off        =  c / decode_ms[c]

c requests, depth at most d. Costs are staircases, so every B is tried: the first fall is not the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.cost_tables import CostTables


@dataclass(frozen=True)
class DraftBudget:
    """The best step that drafts. rate and off_rate: expected tokens a millisecond of it and of a plain step.

    count: drafts of all requests together; depth: the most of one request. None are wanted where no request may draft.
    """

    count: int
    depth: int
    rate: float
    off_rate: float


def best_budget(survival: NDArray[np.float64], tables: CostTables) -> DraftBudget:
    """survival: [R, max_depth], R > 0; 0 where a request may not draft."""
    requests = survival.shape[0]
    best = DraftBudget(0, 0, 0.0, requests / tables.decode_ms(requests))
    negative = -survival
    for depth in range(1, survival.shape[1] + 1):
        slots = negative[:, :depth].ravel()
        slots.sort()
        room = min(len(slots), tables.max_rows - requests)
        if room <= 0 or slots[0] == 0:
            continue
        # a slot that may not be used adds rows and no tokens: never better than the one before it
        rates = (requests - slots[:room].cumsum()) / tables.draft_step_ms(requests, depth, room)
        count = int(rates.argmax())
        rate = float(rates[count])
        if rate > best.rate:
            best = DraftBudget(count + 1, depth, rate, best.off_rate)
    return best


def share_budget(survival: NDArray[np.float64], budget: DraftBudget) -> NDArray[np.int64]:
    """[R] depth of each request: the `count` slots that are likeliest to stand, which are a prefix of each request.

    Among equals the earlier position comes first, then the earlier request.
    """
    slots = survival[:, : budget.depth]
    least = np.partition(slots, slots.size - budget.count, axis=None)[slots.size - budget.count]
    depths = (slots > least).sum(1)
    ties = np.flatnonzero(least == slots.T)[: budget.count - int(depths.sum())]
    np.add.at(depths, ties % len(slots), 1)
    return depths
