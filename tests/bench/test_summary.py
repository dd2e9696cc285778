"""From times to figures: what a time per token is, which rounds a ratio compares, what counts as the same answer."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from tests.bench.windows import NO_DRAFTS, timing, window

from outrider.bench.arms import parse_arms
from outrider.bench.arrivals import arrival_times
from outrider.bench.distinct import distinct_share
from outrider.bench.summary import cell_report, percentiles, same_output
from outrider.bench.sweep import Cell, sweep
from outrider.bench.table import show
from outrider.bench.window import DraftCounts, Load, Window, add_counts

FIVE = (1, 2, 3, 4, 5)


def test_time_per_token_does_not_count_the_first() -> None:
    request = timing(2.0, 4.0, FIVE)
    assert (request.time_to_first_token, request.end_to_end, request.time_per_output_token) == (2.0, 4.0, 0.5)
    assert timing(1.0, 1.0, (7,)).time_per_output_token is None
    assert request.distinct_4grams == distinct_share(FIVE) == 1.0


def test_rates_ratios_and_percentiles() -> None:
    off = [window(s, timing(1.0, s, FIVE), timing(1.0, s, FIVE)) for s in (5.0, 10.0)]
    drafts = DraftCounts(4, 8, 6, (4, 2))
    fast = [window(s, timing(1.0, s, FIVE), timing(1.0, s, FIVE), drafts=drafts) for s in (2.0, 5.0)]
    report = cell_report(Cell(Load(2, concurrency=2), {"off": off, "fixed:2": fast}))
    plain, drafted = report["arms"]["off"], report["arms"]["fixed:2"]
    assert plain["output_tokens_per_second"] == {"median": 1.5, "low": 1.0, "high": 2.0}
    assert plain["ratio"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    assert drafted["ratio"] == {"median": 2.25, "low": 2.0, "high": 2.5}  # of rounds, and not of medians
    assert drafted["tokens_per_second_per_user"] == {"median": 2.5, "low": 1.0, "high": 4.0}
    assert drafted["acceptance_length"] == 2.5 and drafted["acceptance_per_position"] == [1.0, 0.5]
    assert drafted["drafts_per_pass"] == 2.0 and plain["acceptance_length"] is None
    assert plain["e2e_ms"] == {"p50": 7500.0, "p90": 10000.0, "p99": 10000.0}
    assert plain["ttft_ms"]["p50"] == 1000.0
    assert report["concurrency"] == 2 and plain["num_requests"] == 4


def test_percentiles_interpolate() -> None:
    assert percentiles([None]) is None
    found = percentiles([float(i) for i in range(101)], 2.0)
    assert found is not None and list(found.values()) == pytest.approx([100.0, 180.0, 198.0])


def test_failed_requests_are_counted_and_nothing_else() -> None:
    bad = timing(9.0, 9.0, (), error="500: no")
    cell = Cell(Load(2, concurrency=2), {"off": [window(5.0, timing(1.0, 5.0, FIVE), bad)]})
    arm = cell_report(cell)["arms"]["off"]
    assert (arm["num_requests"], arm["num_failed"], arm["first_error"]) == (1, 1, "500: no")
    assert arm["e2e_ms"]["p99"] == 5000.0 and arm["output_tokens"] == 5
    assert not same_output(cell)


def test_same_output_looks_at_every_round() -> None:
    same, other = window(5.0, timing(1.0, 5.0, FIVE)), window(5.0, timing(1.0, 5.0, (1, 2, 3, 4, 6)))
    assert same_output(Cell(Load(1, concurrency=1), {"off": [same, same], "auto": [same, same]}))
    assert not same_output(Cell(Load(1, concurrency=1), {"off": [same, same], "auto": [same, other]}))


def test_arms_alternate_and_the_first_window_warms_up() -> None:
    order: list[tuple[str, str]] = []
    progress: list[tuple[int, int]] = []

    def run(arm: object, load: Load) -> Window:
        order.append((arm.name, load.label))  # type: ignore[attr-defined]
        return window(float(len(order)), timing(1.0, 2.0, FIVE))

    loads = [Load(1, concurrency=1), Load(1, request_rate=2.5)]
    cells = sweep(parse_arms("off,auto"), loads, 2, run, lambda *done: progress.append(done))
    names = [name for name, label in order if label == "1"]
    assert names == ["auto", "off", "off", "auto", "auto", "off"]
    assert [w.seconds for w in cells[0].windows["off"]] == [3.0, 6.0]
    assert order[6:] == [(name, "2.5/s") for name in names] and progress[-1] == (12, 12)


def test_counts_add_up() -> None:
    total = add_counts([DraftCounts(2, 4, 3, (2, 1)), DraftCounts(1, 3, 3, (1, 1, 1)), NO_DRAFTS])
    assert total == DraftCounts(3, 7, 6, (3, 2, 1))


def test_arrivals() -> None:
    assert arrival_times(Load(3, concurrency=2), 3, seed=0) == [0.0, 0.0, 0.0]
    times = arrival_times(Load(2000, request_rate=4.0), 2000, seed=0)
    assert times[0] == 0.0 and times == sorted(times) and times[-1] / 1999 == pytest.approx(0.25, rel=0.1)
    assert times == arrival_times(Load(2000, request_rate=4.0), 2000, seed=0)


def test_table_says_what_flatters() -> None:
    cached = Window((timing(1.0, 5.0, FIVE),), 5.0, None, cached_prompt_tokens=5)
    bad = window(5.0, timing(1.0, 5.0, FIVE), timing(9.0, 9.0, (), error="it fell over"))
    report = {
        "cells": [cell_report(Cell(Load(1, request_rate=0.5), {"off": [cached], "auto": [bad]}))],
        "machine": {"gpus": [], "processor": "abacus", "threads": 1},
        "versions": {"torch": "9"},
        "dataset": {"name": "chat", "num_prompts": 1},
        "model": "tiny",
        "temperature": 0.0,
        "rounds": 1,
        "commit": None,
        "same_output": False,
    }
    out = io.StringIO()
    show(report, Console(file=out, width=220))
    for words in ("0.5/s", "abacus", "NO", "it fell over", "25% of the prompt tokens came from a prefix cache"):
        assert words in out.getvalue()
