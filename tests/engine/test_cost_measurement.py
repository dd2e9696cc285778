"""Costs measured at the start: within their time, leaving nothing, and comparable where others use the machine too."""

from __future__ import annotations

import itertools

import pytest
from tests.engine.tiny_engine import engine_of

from outrider.engine import cost_measurement
from outrider.engine.cost_measurement import measure_costs
from outrider.speculative.cost_tables import CostTables
from outrider.speculative.drafter import MtpDrafter


class Machine:
    """Passes take counted time. From the pass with this number on they take `busy` times as long; and so on."""

    def __init__(self, changes: tuple[int, ...] = (), busy: float = 1.0) -> None:
        self._changes = changes
        self._busy = busy
        self.now = 0.0
        self.passes: list[tuple[str, int, int]] = []

    def run(self, kind: str, requests: int, depth: int) -> None:
        number = len(self.passes)
        self.passes.append((kind, requests, depth))
        state = self._busy if sum(number >= change for change in self._changes) % 2 else 1.0
        self.now += state * self.cost(kind, requests, depth)

    @staticmethod
    def cost(kind: str, requests: int, depth: int) -> float:
        """Seconds."""
        rows = requests * (1 + depth)
        return 0.010 + 0.001 * rows if kind == "target" else 0.001 + 0.002 * depth


def measured(machine: Machine, monkeypatch: pytest.MonkeyPatch, seconds: float = 45.0) -> CostTables:
    engine = engine_of(2, max_num_seqs=8)
    assert isinstance(engine.runner.drafter, MtpDrafter)
    monkeypatch.setattr(cost_measurement._Bench, "run", lambda _, *point: machine.run(*point))
    return measure_costs(
        engine.runner.model, engine.runner.drafter, engine.cache, max_depth=2, max_num_seqs=8, max_rows=64,
        max_model_len=320, seconds=seconds, clock=lambda: machine.now,
    )  # fmt: skip


def test_costs_are_measured_and_leave_nothing() -> None:
    engine = engine_of(2, max_num_seqs=2)
    assert isinstance(engine.runner.drafter, MtpDrafter)
    found = measure_costs(
        engine.runner.model, engine.runner.drafter, engine.cache, max_depth=2, max_num_seqs=2, max_rows=64,
        max_model_len=320, seconds=45.0, clock=itertools.count().__next__,
    )  # fmt: skip
    assert found.decode_ms(1) == pytest.approx(1000.0)  # a pass takes one tick
    assert found.draft_steps(1, 2)[2][2] == pytest.approx(1000.0)
    for pool in (engine.cache.window_pool, engine.cache.entry_pool):
        assert pool.free_count == pool.count - 1


def test_sizes_are_taken_as_long_as_five_rounds_of_them_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    measured(machine, monkeypatch, seconds=0.0)
    assert {requests for _, requests, _ in machine.passes} == {1}
    assert machine.passes.count(("target", 1, 2)) == 1 + 5  # the first counts for nothing
    machine = Machine()
    measured(machine, monkeypatch, seconds=0.7)
    assert {requests for _, requests, _ in machine.passes} == {1, 2}
    assert machine.now < 0.7


@pytest.mark.parametrize("busy", [0.5, 2.0, 4.0])
@pytest.mark.parametrize("changes", [(0,), (20,), (30, 75), (5, 30, 54, 80, 95)])
def test_a_busy_machine_does_not_change_what_compares(
    changes: tuple[int, ...], busy: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(changes, busy)
    found = measured(machine, monkeypatch)
    for requests in (1, 2, 4, 8):
        plain = Machine.cost("target", requests, 0)
        table, _, draft_ms = found.draft_steps(requests, 2 * requests)
        for depth in (1, 2):
            verify = Machine.cost("target", requests, depth)
            ratio = float(table[requests * depth - 1]) / found.decode_ms(requests)
            assert ratio == pytest.approx(verify / plain, rel=0.05), (requests, depth)
            draft = Machine.cost("draft", requests, depth)
            assert draft_ms[depth] / found.decode_ms(requests) == pytest.approx(draft / plain, rel=0.05)
