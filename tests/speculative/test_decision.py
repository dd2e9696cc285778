"""The compiled arithmetic of a decision gives the numbers of numpy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from outrider.speculative import decision_arrays

kernels = pytest.importorskip("outrider.speculative.decision_kernels", reason="numba is not installed")


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    requests=st.integers(1, 40),
    depth=st.integers(1, 5),
    few=st.booleans(),  # few different values: ties
    flat=st.booleans(),  # rows are free: the last drafts, which may not be used, tie with none
    room=st.floats(0, 1),
)
@example(seed=0, requests=1, depth=1, few=True, flat=True, room=0.0)
def test_kernels_and_arrays_agree(seed: int, requests: int, depth: int, few: bool, flat: bool, room: float) -> None:
    rng = np.random.default_rng(seed)
    columns = requests + 3
    differs = rng.normal(0, 0.3, (depth, columns)).astype(np.float32)
    if few:
        differs = np.round(2 * differs) / np.float32(2)
    engine = rng.uniform(0.05, 0.95, depth)
    slots = rng.permutation(columns)[:requests]
    most = rng.integers(0, depth + 1, requests)

    survival = decision_arrays.survival(differs, engine, slots, most)
    assert np.array_equal(kernels.survival(differs, engine, slots, most), survival)
    for request, own in enumerate(survival.T):
        assert (own > 0).tolist() == [position < most[request] for position in range(depth)]
        assert (np.diff(own) <= 0).all()

    rows = rng.uniform(0, 0 if flat else 1, 1 + int(room * (survival.size - 1)))
    verify_ms = (5 + np.cumsum(rows)).astype(np.float32)
    scales, draft_ms = rng.uniform(0.5, 2, depth + 1), rng.uniform(0, 3, depth + 1)
    best = decision_arrays.best_count(survival, verify_ms, scales, draft_ms)
    assert kernels.best_count(survival, verify_ms, scales, draft_ms) == best
    count, deepest, least, _ = best
    assert (count == 0) == (not most.any())
    if count:
        depths = decision_arrays.share(survival, deepest, least, count)
        assert np.array_equal(kernels.share(survival, deepest, least, count), depths)
        assert depths.sum() == count
        assert (depths <= most).all()

    drafted = most.astype(np.uint8)
    accepted = rng.integers(0, most + 1).astype(np.uint8)
    observed: list[tuple[NDArray[np.float32], NDArray[np.float64]]] = []
    for arithmetic in (decision_arrays, kernels):
        mine, ours = differs.copy(), engine.copy()
        assert arithmetic.observe(mine, ours, slots, drafted, accepted) == (most.sum(), most.max())
        assert np.array_equal(mine[:, slots[most == 0]], differs[:, slots[most == 0]])
        observed.append((mine, ours))
    contexts, lengths = np.array([10, 20]), rng.integers(8, 24, requests)
    passes = np.zeros((2, 3, depth + 1, depth + 1), np.int64)
    for counts, arithmetic in zip(passes, (decision_arrays, kernels), strict=True):
        assert arithmetic.count_passes(counts, contexts, lengths, drafted, accepted) == (
            (most > 0).sum(),
            (accepted > 0).sum(),
        )
    assert np.array_equal(passes[0], passes[1])
    assert passes[0, 1].sum() == ((lengths > 10) & (lengths <= 20)).sum()

    assert np.array_equal(observed[0][0], observed[1][0])
    assert np.allclose(observed[0][1], observed[1][1], rtol=1e-14, atol=0)
