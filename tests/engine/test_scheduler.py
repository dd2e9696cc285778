"""The scheduler: limits, fairness, order, preemption, and blocks that come back from every state."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.engine.drafters import BatchedOracle
from tests.engine.tiny_engine import assert_empty, drain, engine_of, output, prompt_of, record_work
from tests.histories import VOCAB, least_pages

from outrider.config import EngineConfig
from outrider.engine.request import Status
from outrider.speculative.drafter import DraftJob, MtpDrafter


class FillingDrafter:
    """Always drafts as deep as it may, without a model."""

    def run(self, jobs: Sequence[DraftJob]) -> list[list[int]]:
        return [[2] * job.depth for job in jobs]


@pytest.mark.parametrize("budget", [16, 20, 48, 64])
def test_decodes_with_drafts_and_a_long_prompt_share_the_budget(budget: int) -> None:
    """Drafts count as rows; the long prompt gets on in every step, and so does everybody who decodes."""
    engine = engine_of(3, max_num_seqs=16, max_num_batched_tokens=budget)
    engine.runner.drafter = FillingDrafter()
    short = [engine.add_request(prompt_of(2, seed), output(60)) for seed in range(15)]
    while any(request.prefilling or len(request.token_ids) == 2 for request in short):
        engine.step()
    steps = record_work(engine)
    long = engine.add_request(prompt_of(300), output(4))
    while len(long.token_ids) == 300:
        before = [len(request.token_ids) for request in short]
        running = [request.status is Status.RUNNING for request in short]
        prompt_before = long.num_computed
        engine.step()
        assert long.num_computed > prompt_before
        assert all(not r or len(s.token_ids) > b for s, b, r in zip(short, before, running, strict=True))
    drain(engine)
    rows = [sum(count for _, count, _ in step) for step in steps]
    assert max(rows) <= budget
    if budget >= 48:
        assert any(drafts for step in steps for _, _, drafts in step)
    assert_empty(engine)


@pytest.mark.parametrize("cap", [1, 5, 32])
def test_prefill_is_capped_while_others_decode(cap: int) -> None:
    engine = engine_of(max_num_seqs=4, max_num_batched_tokens=64, max_prefill_tokens=cap)
    first = engine.add_request(prompt_of(4), output(310))
    while len(first.token_ids) == 4:
        engine.step()
    steps = record_work(engine)
    others = [engine.add_request(prompt_of(length, length), output(2)) for length in (40, 9)]
    while any(other.finish_reason is None for other in others):
        engine.step()
    prefill = [sum(count for request, count, _ in step if request is not first) for step in steps]
    decodes_of_others = 2
    assert cap <= max(prefill) <= cap + decodes_of_others
    assert all(any(request is first for request, _, _ in step) for step in steps)


def test_a_prompt_alone_may_use_the_whole_budget() -> None:
    engine = engine_of(max_num_seqs=4, max_num_batched_tokens=64, max_prefill_tokens=8)
    steps = record_work(engine)
    engine.add_request(prompt_of(130), output(1))
    drain(engine)
    assert [count for step in steps for _, count, _ in step] == [64, 64, 2]


def test_first_come_first_served_within_priorities() -> None:
    engine = engine_of(max_num_seqs=1)
    arrivals = [(0, "a"), (1, "late"), (0, "b"), (-1, "urgent"), (0, "c")]
    requests = [
        engine.add_request(prompt_of(3), output(2), request_id=name, priority=priority) for priority, name in arrivals
    ]
    ended: list[str] = []
    while engine.has_unfinished:
        ended += [o.request.request_id for o in engine.step() if o.finish_reason]
    assert ended == ["urgent", "a", "b", "c", "late"]
    assert all(request.finish_reason == "length" for request in requests)


@pytest.mark.parametrize("priorities", [(0, 0, 0), (2, 1, 0), (0, 5, 1)])
def test_preemption_takes_the_last_in_the_order(priorities: tuple[int, int, int]) -> None:
    """Three pages for three requests that each come to need two: the last one waits and still says the same."""
    options = EngineConfig(max_model_len=320, max_num_batched_tokens=64, max_num_seqs=3)
    window, entries = least_pages(options, 0)
    engine = engine_of(max_num_batched_tokens=64, max_num_seqs=3, window_pages=max(window, 4), entry_pages=entries)
    assert min(engine.cache.entry_pool.count, engine.cache.window_pool.count) == 4
    requests = [
        engine.add_request(prompt_of(n, n), output(30), priority=p)
        for n, p in zip((118, 119, 120), priorities, strict=True)
    ]
    by_order = sorted(requests, key=lambda r: r.order)
    drain(engine)
    assert by_order[0].num_preemptions == 0
    assert by_order[-1].num_preemptions > 0
    for request in requests:
        alone = engine_of(max_num_seqs=1)
        other = alone.add_request(request.token_ids[: request.prompt_length], output(30))
        drain(alone)
        assert request.token_ids == other.token_ids
    assert_empty(engine)


@pytest.mark.parametrize("depth", [0, 3])
@pytest.mark.parametrize("state", ["waiting", "following", "in prefill", "decoding", "preempted", "finished"])
def test_abort_returns_every_block_from_every_state(state: str, depth: int) -> None:
    engine = engine_of(
        depth, max_num_seqs=2, max_num_batched_tokens=16, window_pages=6, entry_pages=6, enable_prefix_caching=True
    )
    first = engine.add_request(prompt_of(150), output(20))
    follows = first if state == "following" else None
    request = engine.add_request(prompt_of(140, 1), output(20), follows=follows)
    if state == "in prefill":
        while request.num_computed == 0:
            engine.step()
        assert request.prefilling
    elif state in ("decoding", "preempted"):
        while len(request.token_ids) < 143:
            engine.step()
        if state == "preempted":
            engine.scheduler._preempt(request)
            assert request.status is Status.WAITING
    elif state == "finished":
        drain(engine)
    else:
        engine.step()
        assert request.status is Status.WAITING or state == "waiting"
    before = list(request.token_ids)
    engine.abort(request)
    engine.abort(request)  # again: nothing happens
    assert request.token_ids == before
    assert request.finish_reason == ("length" if state == "finished" else "abort")
    assert not request.pages.window
    assert not request.pages.entries
    drain(engine)
    assert first.finish_reason == "length"
    assert_empty(engine)


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("depth", [0, 1, 7])
@pytest.mark.parametrize("budget", [8, 64, 320])
def test_the_smallest_legal_pools_serve_everybody(budget: int, depth: int, caching: bool) -> None:
    """Requests as long as the context, all at once: nothing waits for ever."""
    limits = {
        "max_model_len": 200,
        "max_num_seqs": 4,
        "max_num_batched_tokens": budget,
        "enable_prefix_caching": caching,
    }
    window, entries = least_pages(EngineConfig.model_validate(limits), depth)
    engine = engine_of(depth, **limits, window_pages=window, entry_pages=entries)
    lengths = (199, 1, 127, 160)
    requests = [engine.add_request(prompt_of(n, n % 2), output(12)) for n in lengths]
    drain(engine)
    assert [len(r.token_ids) for r in requests] == [min(n + 12, 200) for n in lengths]
    assert_empty(engine)


def test_a_partial_accept_adds_neither_forwards_nor_copies() -> None:
    """As many trunk passes as the tokens ask for, each over 1 + drafts rows, and no page is taken or copied."""
    truth_engine = engine_of()
    truth = truth_engine.add_request(prompt_of(20), output(25))
    drain(truth_engine)
    engine = engine_of(3)
    assert isinstance(engine.runner.drafter, MtpDrafter)
    oracle = BatchedOracle(engine.runner.drafter, VOCAB)
    engine.runner.drafter = oracle
    request = engine.add_request(prompt_of(20), output(25))
    oracle.know(request.pages, truth.token_ids, [1])
    steps = record_work(engine)
    held = set()
    while engine.has_unfinished:
        engine.step()
        held.add((tuple(request.pages.window), tuple(request.pages.entries)))
    assert request.token_ids == truth.token_ids
    # the prompt's pass gives one token, every other pass one accepted draft and the next token
    assert engine.runner.num_forwards == len(steps) == 1 + 12
    assert [count for step in steps[1:] for _, count, _ in step] == [4] * 11 + [1 + 1]
    assert len(held - {((), ())}) == 1


def test_a_follower_waits_for_the_prompt_only() -> None:
    engine = engine_of(max_num_batched_tokens=16, enable_prefix_caching=True)
    leader = engine.add_request(prompt_of(140), output(20))
    follower = engine.add_request(prompt_of(140), output(5), follows=leader)
    other = engine.add_request(prompt_of(3), output(5))
    while leader.num_computed < leader.prompt_length:
        assert follower.status is Status.WAITING
        engine.step()
    engine.step()
    assert follower.status is not Status.WAITING
    assert follower.num_cached == 128
    assert leader.finish_reason is None
    drain(engine)
    assert other.finish_reason == "length"


def test_a_follower_of_an_aborted_request_goes_on_alone() -> None:
    engine = engine_of(max_num_batched_tokens=16, enable_prefix_caching=True)
    leader = engine.add_request(prompt_of(140), output(20))
    follower = engine.add_request(prompt_of(140), output(5), follows=leader)
    engine.step()
    engine.abort(leader)
    drain(engine)
    assert follower.finish_reason == "length"
    assert_empty(engine)
