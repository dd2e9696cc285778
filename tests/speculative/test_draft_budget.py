"""The best number of drafts and its shares, against trying everything."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from outrider.speculative.cost_tables import CostTables, MeasuredCosts
from outrider.speculative.draft_budget import best_budget, share_budget

DEPTH = 3


def tables_of(verify: list[float], requests: int, draft_ms: float = 1.0) -> CostTables:
    measured = MeasuredCosts(
        decode_ms={requests: 10.0},
        verify_ms=dict(enumerate(verify, 1)),
        draft_ms=[{requests: draft_ms * d} for d in range(DEPTH + 1)],
    )
    return CostTables(measured, requests, len(verify))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data(), requests=st.integers(1, 4))
def test_the_best_of_all_ways_to_share_drafts(data: st.DataObject, requests: int) -> None:
    p = np.array(data.draw(st.lists(st.lists(st.floats(0.02, 0.98), min_size=DEPTH, max_size=DEPTH),
                                    min_size=requests, max_size=requests)))  # fmt: skip
    costs = data.draw(st.lists(st.floats(0, 5), min_size=4 * requests, max_size=4 * requests))
    verify = (10 + np.cumsum(costs)).tolist()
    tables = tables_of(verify, requests)
    survival = np.cumprod(p, axis=1)
    best = 0.0
    for depths in np.ndindex(*[DEPTH + 1] * requests):
        if any(depths):
            tokens = requests + sum(survival[r, :d].sum() for r, d in enumerate(depths))
            best = max(best, tokens / (verify[requests + sum(depths) - 1] + max(depths)))
    slots: NDArray[np.float32] = survival.T.astype(np.float32)
    budget = best_budget(slots, tables)
    assert np.isclose(budget.rate, best)
    shared = share_budget(slots, budget)
    assert shared.sum() == budget.drafts
    assert shared.max() <= budget.depth
    tokens = requests + sum(survival[r, :d].sum() for r, d in enumerate(shared))
    assert np.isclose(tokens / (verify[requests + budget.drafts - 1] + budget.depth), best)


def test_a_bucket_that_is_paid_for_is_filled_to_its_edge() -> None:
    """One draft more than four rows costs a step; beyond it three more are free. The first fall is not the end."""
    verify = [10.0] * 4 + [14.0] * 4 + [40.0] * 8
    survival = np.cumprod(np.full((DEPTH, 4), 0.9), axis=0).astype(np.float32)
    budget = best_budget(survival, tables_of(verify, 4, draft_ms=0.0))
    assert budget.drafts == 4
    assert share_budget(survival, budget).tolist() == [1, 1, 1, 1]


def test_requests_that_may_not_draft_get_nothing() -> None:
    survival = np.array([[0.9, 0.8, 0.7], [0.0, 0.0, 0.0], [0.9, 0.0, 0.0]], np.float32).T
    budget = best_budget(survival, tables_of([10.0] * 12, 3, draft_ms=0.0))
    assert share_budget(survival, budget).tolist() == [3, 0, 1]
    none = best_budget(np.zeros((DEPTH, 2), np.float32), tables_of([10.0] * 8, 2))
    assert (none.drafts, none.rate) == (0, 0.0)
    assert none.off_rate == 2 / 10


def test_rows_never_exceed_the_step() -> None:
    survival = np.full((DEPTH, 4), 0.9, np.float32)
    assert best_budget(survival, tables_of([10.0] * 6, 4)).drafts == 2
    assert best_budget(survival, tables_of([10.0] * 4, 4)).drafts == 0
