"""Acceptance estimates, cost tables and the watchdog, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from outrider.speculative.acceptance import AcceptanceEstimates
from outrider.speculative.cost_tables import CostTables, MeasuredCosts
from outrider.speculative.watchdog import Watchdog


def observe(estimates: AcceptanceEstimates, slots: list[int], drafted: list[int], accepted: list[int]) -> None:
    estimates.observe(np.array(slots), np.array(drafted, np.uint8), np.array(accepted, np.uint8))


def test_only_what_was_seen_is_learned() -> None:
    estimates = AcceptanceEstimates(2, 4)
    assert estimates.engine == [0.8, 0.7, 0.65, 0.65]
    before = list(estimates.engine)
    observe(estimates, [0], drafted=[3], accepted=[1])  # the first stood, the second fell, the third is unknown
    assert estimates.engine[0] > before[0]
    assert estimates.engine[1] < before[1]
    assert estimates.engine[2:] == before[2:]
    observe(estimates, [0], drafted=[1], accepted=[1])  # all that was drafted stood: nothing is known of the next
    assert estimates.engine[2:] == before[2:]


def test_requests_differ_and_new_ones_start_from_the_engine() -> None:
    rng = np.random.default_rng(0)
    estimates = AcceptanceEstimates(3, 2)
    for _ in range(300):
        stood = np.cumprod(rng.random((2, 2)) < [[0.9, 0.8], [0.3, 0.2]], axis=1).sum(1)
        observe(estimates, [0, 1], [2, 2], stood.tolist())
    easy, hard, new = estimates.survival(np.array([0, 1, 2]), np.full(3, 2)).T
    assert easy[0] > 0.75
    assert hard[0] < 0.45
    assert hard[0] < new[0] < easy[0]
    estimates.reset(1)
    assert estimates.survival(np.array([1]), np.array([2]))[:, 0].tolist() == new.tolist()


def cost_tables() -> CostTables:
    draft = [{1: 1.0, 4: 2.0}, {1: 2.0, 4: 3.0}, {1: 3.0, 4: 4.0}]
    return CostTables(MeasuredCosts({1: 10.0, 4: 16.0}, {1: 10.0, 3: 14.0, 4: 13.0, 12: 30.0}, draft), 8, 16)


def verify_ms(tables: CostTables, requests: int, depth: int, most: int) -> list[float]:
    """Of the target's passes alone."""
    table, scales, _ = tables.draft_steps(requests, most)
    return (table * scales[depth]).tolist()


def test_tables_interpolate_rise_and_extrapolate() -> None:
    tables = cost_tables()
    assert tables.decode_ms(2) == pytest.approx(12)
    assert tables.decode_ms(8) == pytest.approx(24)
    assert verify_ms(tables, 1, 1, 3) == pytest.approx([12, 14, 14])  # never falls
    assert verify_ms(tables, 4, 2, 8)[-1] == pytest.approx(30)
    assert tables.draft_steps(4, 8)[2] == pytest.approx([2, 3, 4])


@pytest.mark.parametrize("wrong", [0.75, 1.25])
def test_a_wrong_table_is_healed_by_the_steps_that_run(wrong: float) -> None:
    tables = cost_tables()
    for _ in range(40):
        tables.observe_target(1, 1, 0, 10.0)
        tables.observe_target(1, 3, 2, 14.0 * wrong)
    assert verify_ms(tables, 1, 2, 2)[1] / tables.decode_ms(1) == pytest.approx(1.4 * wrong, rel=0.03)
    assert verify_ms(tables, 1, 1, 2)[1] / tables.decode_ms(1) == pytest.approx(1.4 * wrong, rel=0.1)  # news for others
    assert tables.decode_ms(1) == pytest.approx(10, rel=0.05)


def test_a_slower_machine_slows_all_arms_alike() -> None:
    tables = cost_tables()
    for scale in (1.0, 1.4):
        for _ in range(60):
            tables.observe_target(1, 3, 2, 14.0 * scale)
            tables.observe_draft(1, 2, 3.0 * scale)
    assert tables.factor > 1.2
    assert verify_ms(tables, 1, 2, 2)[1] == pytest.approx(14 * 1.4, rel=0.05)
    assert verify_ms(tables, 1, 2, 2)[1] / tables.decode_ms(1) == pytest.approx(1.4, rel=0.15)  # nothing ran plain


def test_two_bad_windows_send_speculation_to_rest_and_rests_double() -> None:
    watchdog = Watchdog()

    def window(tokens: int) -> float | None:
        for _ in range(64):
            watchdog.count(tokens, 20.0, off_rate=0.1)  # plain would give two tokens in that time
        return watchdog.verdict()

    assert window(1) is None
    assert window(3) is None  # a good one between
    assert window(1) is None
    for rest in (64, 128, 256):
        if rest > 64:
            assert window(1) is None
        assert window(1) == pytest.approx(0.5)
        for _ in range(rest):
            assert watchdog.resting
            watchdog.rest()
        assert not watchdog.resting
        watchdog.restart()
