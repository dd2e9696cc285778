"""Acceptance that is very low or very high is logged once, and shown as a gauge."""

from __future__ import annotations

import logging
import math

import pytest
from tests.server.serving import Api

from outrider.server.acceptance_alarm import WINDOW, AcceptanceAlarm


def test_it_rings_once_outside_the_band_and_once_back_inside(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    alarm = AcceptanceAlarm()
    assert math.isnan(alarm.rate)

    def windows(count: int, accepted: int) -> list[str]:
        caplog.clear()
        for _ in range(count * WINDOW):
            alarm.record(1, 3, accepted)
        return [record.getMessage() for record in caplog.records]

    assert windows(2, 2) == [] and alarm.rate == 2 / 3
    (low,) = windows(3, 0)
    assert low.startswith(f"0.0 % of drafts stood in the last {WINDOW} passes: the drafter")
    (back,) = windows(2, 1)
    assert back == "33 % of drafts stand, as usual again"
    (high,) = windows(2, 3)
    assert "loop" in high and alarm.rate == 1.0


def test_less_than_a_window_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    alarm = AcceptanceAlarm()
    alarm.record(WINDOW - 1, 3 * WINDOW, 0)
    assert math.isnan(alarm.rate) and not caplog.records
    alarm.record(1, 3, 0)
    assert alarm.rate == 0.0 and len(caplog.records) == 1


def test_requests_feed_it(api: Api) -> None:
    alarm = api.served.metrics.acceptance_alarm
    before = alarm._passes
    body = {"prompt": "There are", "max_tokens": 12, "ignore_eos": True}
    speculation = api.post("/v1/completions", body).json()["usage"]["speculation"]
    assert (alarm._passes - before) % WINDOW == speculation["num_drafts"] > 0
    assert "outrider:spec_decode_recent_acceptance{" in api.get("/metrics").text
