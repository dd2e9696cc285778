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

    count: drafts of all requests together; depth: the most of one request; least: the survival of the last of them.
    None are wanted where no request may draft.
    """

    count: int
    depth: int
    least: float
    rate: float
    off_rate: float


def best_budget(survival: NDArray[np.float32], tables: CostTables) -> DraftBudget:
    """survival: [max_depth, R], R > 0; 0 where a request may not draft."""
    max_depth, requests = survival.shape
    best = DraftBudget(0, 0, 0.0, 0.0, requests / tables.decode_ms(requests))
    room = min(survival.size, tables.max_rows - requests)
    if room <= 0:
        return best
    # The requests' own tokens are the first entry. Sorting, which begins with the smallest, leaves it there: all is
    # negative, it is at least 1, and survival is below 1.
    tokens = np.empty(1 + survival.size, np.float32)
    tokens[0] = -requests
    np.negative(survival.ravel(), out=tokens[1:])
    table, scales, draft_ms = tables.draft_steps(requests, room)
    for depth in range(1, max_depth + 1):
        ordered = tokens[: 1 + depth * requests].copy()
        ordered.sort()
        # a slot that may not be used adds rows and no tokens: never better than the one before it
        rates = ordered.cumsum()[1 : room + 1]
        rates /= table[: len(rates)] + draft_ms[depth] / scales[depth]
        count = int(rates.argmin())
        rate = -float(rates[count]) / scales[depth]
        if rate > best.rate and ordered[1] < 0:
            best = DraftBudget(count + 1, depth, -float(ordered[count + 1]), rate, best.off_rate)
    return best


def share_budget(survival: NDArray[np.float32], budget: DraftBudget) -> NDArray[np.int64]:
    """[R] depth of each request: the `count` slots that are likeliest to stand, which are a prefix of each request.

    Among equals the earlier position comes first, then the earlier request.
    """
    slots = survival[: budget.depth]
    depths = np.add.reduce(slots >= budget.least, axis=0, dtype=np.int64)
    excess = int(depths.sum()) - budget.count
    if excess:  # of those equal to the least; a request has one of them at most, since survival falls along it
        ties = np.flatnonzero(slots == budget.least)[-excess:]
        depths[ties % len(depths)] -= 1
    return depths
