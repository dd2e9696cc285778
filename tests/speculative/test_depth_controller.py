"""Decisions of the controller in worlds that are known, on counted time."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from benchmarks.controller_sim import ACCEPTANCE, ERRORS, SHAPES, World, run

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
            controller.observe_drafts(slots, most, np.zeros(4, dtype=np.int64))
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
