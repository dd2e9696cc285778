"""Counts by context length, and when the alarms go off."""

from __future__ import annotations

import logging
import random

import numpy as np
import pytest

from outrider.speculative.acceptance_monitor import ALL_STOOD, WINDOW, AcceptanceMonitor, loop_period


def record(monitor: AcceptanceMonitor, *passes: tuple[int, int, int]) -> None:
    """Of a step: length, drafts and those that stood."""
    lengths, drafted, accepted = zip(*passes, strict=True)
    monitor.record(np.array(lengths, np.int64), np.array(drafted, np.uint8), np.array(accepted, np.uint8))


def test_counts_by_context_and_depth() -> None:
    monitor = AcceptanceMonitor(3)
    record(monitor, (128, 3, 1), (128, 2, 2), (128, 0, 0), (129, 1, 0), (200_000, 3, 3))
    report = monitor.report()
    assert report.depth_histogram == [1, 1, 1, 2]
    assert [(own.longest, own.drafted, own.accepted) for own in report.contexts if any(own.drafted)] == [
        (128, (2, 2, 1), (2, 1, 0)),
        (512, (1, 0, 0), (0, 0, 0)),
        (None, (1, 1, 1), (1, 1, 1)),
    ]
    assert report.contexts[0].shares == [1.0, 0.5, 0.0]


def test_a_broken_drafter_is_called_out_once_and_the_alarm_ends(caplog: pytest.LogCaptureFixture) -> None:
    monitor = AcceptanceMonitor(1)
    monitor.self_check = 0.01  # found broken: that is not what is usual
    with caplog.at_level(logging.WARNING, logger="outrider"):
        for _ in range(2 * WINDOW):
            record(monitor, (3, 1, 0))
    assert monitor.report().too_low
    assert caplog.text.count("acceptance is far below what is usual: 0.00") == 1
    for number in range(WINDOW):
        record(monitor, (3, 1, int(number % 2 == 0)))
    assert not monitor.report().too_low


def test_a_loop_is_called_out_and_easy_text_is_not(caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(0)
    easy, loop = [rng.randrange(1000) for _ in range(400)], [5, 6, 7, 8] * 100
    monitor = AcceptanceMonitor(2)
    with caplog.at_level(logging.WARNING, logger="outrider"):
        monitor.look_for_a_loop(easy, ALL_STOOD)
        assert not monitor.report().looping
        monitor.look_for_a_loop(loop, ALL_STOOD)
        assert monitor.report().looping
    assert "its text repeats itself every 4 tokens" in caplog.text
    for _ in range(2 * WINDOW):
        record(monitor, (400, 2, 1))
    assert not monitor.report().looping


def test_loop_period() -> None:
    assert loop_period([1] * 192) == 1
    assert loop_period(list(range(64)) * 4) == 64
    assert loop_period(list(range(65)) * 4) is None
    assert loop_period([1] * 191) is None
