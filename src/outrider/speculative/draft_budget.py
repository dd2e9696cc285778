"""How many drafts a step should carry, and whose.

    rate(B, d) = (c + sum of survival of the B best slots) / (verify_ms[c + B] + draft_ms[d][c])
    off        =  c / decode_ms[c]

c requests, depth at most d. Costs are staircases, so every B is tried: the first fall is not the end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outrider.speculative import decision
from outrider.speculative.cost_tables import CostTables


class DraftBudget(NamedTuple):
    """The best step that drafts. rate and off_rate: expected tokens a millisecond of it and of a plain step.

    drafts: of all requests together; depth: the most of one request; least: the survival of the last of them.
    None are wanted where no request may draft.
    """

    drafts: int
    depth: int
    least: float
    rate: float
    off_rate: float


def best_budget(survival: NDArray[np.float32], tables: CostTables) -> DraftBudget:
    """survival: [max_depth, R], R > 0; 0 where a request may not draft."""
    requests = survival.shape[1]
    off_rate = requests / tables.decode_ms(requests)
    room = min(survival.size, tables.max_rows - requests)
    if room <= 0:
        return DraftBudget(0, 0, 0.0, 0.0, off_rate)
    count, depth, least, rate = decision.best_count(survival, *tables.draft_steps(requests, room))
    return DraftBudget(count, depth, least, rate, off_rate)


def share_budget(survival: NDArray[np.float32], budget: DraftBudget) -> NDArray[np.int64]:
    """[R] depth of each request: the `drafts` slots that are likeliest to stand, which are a prefix of each request.

    Among equals the earlier position comes first, then the earlier request.
    """
    return decision.share(survival, budget.depth, budget.least, budget.drafts)
