"""Decisions of the controller in worlds that are known, on counted time."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from benchmarks.controller_sim import ACCEPTANCE, ERRORS, SHAPES, WRONG_BY_TWO, World, run

from outrider.speculative.depth_controller import DepthController


@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize("error", ["right", "decode +25 %", "verify -25 %"])
def test_never_slower_than_off(shape: str, error: str) -> None:
    """The worst worlds for speculation, and one in which it pays for a while."""
    for requests, acceptance in ((1, "poor"), (64, "poor"), (64, "waves")):
        result = run(World(shape, requests, acceptance, error, seed=3), tokens=700 if requests > 1 else 1500)
        assert result.of_off >= 0.98, (requests, acceptance, result)


@pytest.mark.parametrize("error", sorted(ERRORS))
def test_near_the_best_fixed_depth(error: str) -> None:
    for shape, acceptance in (("flat", "good"), ("linear", "middling"), ("staircase", "good")):
        result = run(World(shape, 4, acceptance, error, seed=4), tokens=700)
        assert result.of_best >= 0.95, (shape, acceptance, result)


def test_the_worlds_need_a_controller() -> None:
    """A fixed depth loses a third and more in some of them."""
    results = [run(World("linear", 16, acceptance, "right", seed=5), tokens=60) for acceptance in ACCEPTANCE]
    assert min(result.fixed_of_off for result in results) < 0.67


def test_off_is_silent_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    world = World("linear", 4, "poor", "right", seed=6)
    controller = DepthController(world.tables(), 4)
    slots, most = np.arange(4), np.full(4, 3)
    with caplog.at_level(logging.INFO, logger="outrider"):
        for _ in range(30):
            controller.observe_drafts(slots, np.full(4, 3, np.uint8), np.zeros(4, np.uint8))
        assert controller.decide(slots, most) is None
    assert "speculation turns itself off: it is predicted to give" in caplog.text
    summary = controller.summary()
    assert not summary.speculating
    assert summary.num_turns == 1
    assert summary.acceptance[0] < 0.1


def test_nothing_is_drafted_for_requests_that_do_not_want_it() -> None:
    controller = DepthController(World("flat", 4, "good", "right", seed=0).tables(), 4)
    depths = controller.decide(np.arange(4), np.array([3, 0, 1, 2]))
    assert depths is not None
    assert depths.tolist() == [2, 0, 1, 2]  # nobody's third draft pays for another pass of the drafter


@pytest.mark.parametrize("error", sorted(WRONG_BY_TWO))
def test_tables_that_are_wrong_by_two_on_a_machine_that_is_busy_at_times(error: str) -> None:
    """Misled at the start, it finds out: neither is much lost where speculation loses, nor is it left off for good."""
    pays = run(World("linear", 4, "good", error, seed=7, busy=1.8), tokens=700)
    assert pays.of_best >= 0.9, pays
    for shape, acceptance in (("linear", "poor"), ("v", "poor"), ("v", "good")):
        result = run(World(shape, 4, acceptance, error, seed=7, busy=1.8), tokens=1000)
        assert result.of_off >= 0.97, (shape, acceptance, result)


class Told:
    """A controller of four requests that is told of drafts: all stand, or none."""

    def __init__(self) -> None:
        world = World("linear", 4, "good", "right", seed=0)
        self.controller = DepthController(world.tables(), 4)
        self._cost = world.step_ms

    def step(self, *, stand: bool, milliseconds: float | None = None) -> None:
        slots, most = np.arange(4), np.full(4, 3)
        self.controller.observe_drafts(slots, np.full(4, 3, np.uint8), np.full(4, 3 if stand else 0, np.uint8))
        self.controller.observe_target(4, 0, 0, 4, milliseconds or self._cost(4))
        self.controller.decide(slots, most)


def test_turns_are_told_every_ten_seconds_at_most(caplog: pytest.LogCaptureFixture) -> None:
    told = Told()

    def turn(on: bool, milliseconds: float | None = None) -> None:
        before = told.controller.summary().num_turns
        for _ in range(200):
            told.step(stand=on, milliseconds=milliseconds)
            if told.controller.summary().num_turns > before:
                return
        raise AssertionError(f"it never turned {'on' if on else 'off'}")

    with caplog.at_level(logging.INFO, logger="outrider"):
        for on in (False, True, False, True):
            turn(on)
        assert told.controller._elapsed_ms < 10_000, "the steps are too long for this test"
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) == 1 and lines[0].startswith("speculation turns itself off: it is predicted to give 0.")
        while told.controller._elapsed_ms < 10_100:
            told.step(stand=True)
        turn(False)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert lines[1].startswith("speculation turns itself off") and lines[1].endswith("(after 3 more turns)")
    assert told.controller.summary().num_turns == 5


def test_nobody_need_decide_while_off_and_nothing_was_learned() -> None:
    told = Told()
    assert not told.controller.waits()  # on
    while told.controller.speculating:
        told.step(stand=False)
    told.controller._probe_left = told.controller._promising = 0
    assert [told.controller.waits() for _ in range(8)] == [True, True, True, False] * 2
    told.controller._probe_left = 2  # a probe goes on
    assert [told.controller.waits() for _ in range(3)] == [False] * 3
