"""Loads in this process: places are kept, arrivals waited for, and drafts are counted like the engine counts them."""

from __future__ import annotations

import time

import pytest
from tests.engine.tiny_engine import assert_empty, engine_of, output, prompt_of, record_work

from outrider.bench import in_process
from outrider.bench.window import Load

PROMPTS = [prompt_of(5 + i, seed=i) for i in range(6)]
PARAMS = [output(4 + i) for i in range(6)]


@pytest.mark.parametrize("depth", [0, 2])
def test_concurrency(depth: int) -> None:
    engine = engine_of(depth, max_num_seqs=4)
    steps = record_work(engine)
    found = in_process.run_window(engine, PROMPTS, PARAMS, Load(6, concurrency=2), seed=0)
    assert max(len({id(request) for request, *_ in step}) for step in steps) == 2
    assert [r.output_tokens for r in found.requests] == [4, 5, 6, 7, 8, 9]
    assert [r.prompt_tokens for r in found.requests] == [len(p) for p in PROMPTS]
    assert all(r.sent < r.first_token < r.last_token and r.error is None for r in found.requests)
    assert found.seconds >= max(r.end_to_end for r in found.requests) > 0
    assert found.output_tokens_per_second == 39 / found.seconds
    assert found.drafts is not None and found.cached_prompt_tokens == 0
    drafted = [drafts for step in steps for *_, drafts in step if drafts]
    assert (found.drafts.num_drafts, found.drafts.num_draft_tokens) == (len(drafted), sum(drafted))
    assert sum(found.drafts.accepted_per_position) == found.drafts.num_accepted_tokens
    assert_empty(engine)


def test_arms_give_the_same_output() -> None:
    off, on = (
        in_process.run_window(engine_of(depth), PROMPTS, PARAMS, Load(6, concurrency=3), seed=0) for depth in (0, 2)
    )
    assert [r.output for r in off.requests] == [r.output for r in on.requests]


def test_requests_wait_for_their_time() -> None:
    rate = 200.0
    load = Load(6, request_rate=rate)
    start = time.perf_counter()
    found = in_process.run_window(engine_of(), PROMPTS, PARAMS, load, seed=1)
    offsets = in_process.arrival_times(load, 6, 1)
    sent = [r.sent for r in found.requests]
    assert [s - sent[0] for s in sent] == pytest.approx(offsets)  # the clock runs from when it was due
    assert time.perf_counter() - start >= offsets[-1]
    assert all(r.first_token > r.sent for r in found.requests)
