"""Requests in one batch: each is as if it were alone, also when a neighbour ends, moves, or computes nonsense."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.engine.tiny_engine import assert_empty, drain, engine_of, output, prompt_of, speculating
from tests.histories import VOCAB

from outrider.cache.layout import BLOCK_TOKENS
from outrider.config import ConfigError
from outrider.engine.engine import Engine
from outrider.engine.request import Request
from outrider.sampling.params import SamplingParams


def test_speculation_is_switched_by_request_and_counted_by_request() -> None:
    engine = engine_of(3, max_num_seqs=4)
    asked = (None, 0, 1, 2, 9)
    requests = [engine.add_request(prompt_of(12), output(15), speculation=depth) for depth in asked]
    drain(engine)
    assert len({tuple(r.token_ids) for r in requests}) == 1
    assert [len(r.statistics.drafted_per_position) for r in requests] == [3, 0, 1, 2, 3]
    for request in requests:
        statistics = request.statistics
        assert statistics.num_emitted_tokens == 14
        assert statistics.num_emitted_tokens == statistics.num_steps + statistics.num_accepted_tokens
        assert statistics.num_draft_tokens == sum(statistics.drafted_per_position)
        assert statistics.num_accepted_tokens == sum(statistics.accepted_per_position)
    assert requests[1].statistics.num_drafts == 0


def test_temperatures_side_by_side() -> None:
    """Greedy rows stay greedy beside warm ones, a tiny temperature is no division by zero, counters never fall."""
    engine = engine_of(3, max_num_seqs=4)
    requests = [
        engine.add_request(prompt_of(10), SamplingParams(temperature=t, seed=1, max_tokens=16, ignore_eos=True))
        for t in (0.0, 1.0, 0.0, 1e-4)
    ]
    before = [0] * 4
    while engine.has_unfinished:
        engine.step()
        counts = [r.statistics.num_draft_tokens + r.statistics.num_accepted_tokens for r in requests]
        assert all(new >= old for new, old in zip(counts, before, strict=True))
        before = counts
    plain = engine_of()
    greedy = plain.add_request(prompt_of(10), output(16))
    drain(plain)
    assert requests[0].token_ids == requests[2].token_ids == requests[3].token_ids == greedy.token_ids
    assert requests[1].token_ids != greedy.token_ids


@pytest.mark.parametrize("depth", [1, 3])
def test_a_seed_gives_one_text_alone_and_in_company(depth: int) -> None:
    params = SamplingParams(temperature=1.0, seed=1, max_tokens=12, ignore_eos=True)
    texts = []
    for company in (0, 0, 7):
        engine = engine_of(depth, max_num_seqs=8)
        others = [engine.add_request(prompt_of(5 + 9 * i, i), output(3 * i + 1)) for i in range(company)]
        request = engine.add_request(prompt_of(40), params)
        drain(engine)
        assert all(other.finish_reason == "length" for other in others)
        texts.append(request.output_token_ids)
    assert texts == [texts[0]] * 3


def drafts_by_position(engine: Engine, requests: Sequence[Request]) -> list[dict[int, list[int]]]:
    """What was drafted for each request, by the length of its text then."""
    found: list[dict[int, list[int]]] = [{} for _ in requests]
    while engine.has_unfinished:
        engine.step()
        for request, own in zip(requests, found, strict=True):
            if request.drafts:
                own[len(request.token_ids)] = list(request.drafts)
    return found


@pytest.mark.parametrize("lengths", [(40, 300), (300, 40), (128, 3, 270)])
def test_drafts_at_every_depth_do_not_depend_on_the_neighbours(lengths: tuple[int, ...]) -> None:
    """Tables, windows and strides of a short request beside a long one, whichever comes first."""

    def run(chosen: Sequence[int]) -> list[dict[int, list[int]]]:
        engine = engine_of(4, max_num_seqs=4)
        return drafts_by_position(engine, [engine.add_request(prompt_of(n, n), output(12)) for n in chosen])

    together = run(lengths)
    for length, found in zip(lengths, together, strict=True):
        assert run([length]) == [found]
        assert max(map(len, found.values())) == 4


def test_rows_that_move_up_keep_their_own_drafts() -> None:
    """The first request ends while the others hold accepted and refused drafts: they go on as if alone."""
    params = SamplingParams(temperature=0.9, seed=8, max_tokens=20, ignore_eos=True)
    prompts = [prompt_of(10 + i, i) for i in range(4)]
    truths = []
    for prompt in prompts:
        plain = engine_of()
        truth = plain.add_request(prompt, params)
        drain(plain)
        truths.append(truth.token_ids)
    engine, oracle = speculating(3, max_num_seqs=4)
    ends = (4, 7, 20, 20)
    requests = []
    for prompt, truth_ids, end, right in zip(prompts, truths, ends, ([3], [0, 2], [1], [2, 3, 0]), strict=True):
        own = SamplingParams(temperature=0.9, seed=8, max_tokens=end, ignore_eos=True)
        requests.append(engine.add_request(prompt, own))
        oracle.know(requests[-1].pages, truth_ids, right)
    drain(engine)
    for request, truth_ids, end in zip(requests, truths, ends, strict=True):
        assert request.token_ids == truth_ids[: request.prompt_length + end]
    assert_empty(engine)


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_every_level_of_a_drain_ends(depth: int) -> None:
    engine = engine_of(depth, max_num_seqs=8)
    requests = [engine.add_request(prompt_of(4, i), output(5 * i)) for i in range(1, 9)]
    drain(engine, most=60)
    assert [len(r.output_token_ids) for r in requests] == [5, 10, 15, 20, 25, 30, 35, 40]


# -------- numbers that are none


def poison_rows(engine: Engine, request: Request, first: int = 0) -> None:
    """NaN in the rows of the trunk's first layer from position `first` on: logits of the next step are NaN."""
    for position in range(first, request.num_computed):
        page = request.pages.window[position // BLOCK_TOKENS]
        if page:
            engine.cache.layers[0].window[page * BLOCK_TOKENS + position % BLOCK_TOKENS] = float("nan")


def steps_until(engine: Engine, request: Request, length: int) -> None:
    while len(request.output_token_ids) < length:
        engine.step()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("depth", [0, 3])
def test_nan_in_one_request_ends_that_one_alone(depth: int, temperature: float) -> None:
    params = SamplingParams(temperature=temperature, seed=3, max_tokens=16, ignore_eos=True)
    prompts = [prompt_of(20, 1), prompt_of(140, 2), prompt_of(9, 3)]
    plain = engine_of(max_num_seqs=3)
    expected = [plain.add_request(prompt, params) for prompt in prompts]
    drain(plain)
    engine = engine_of(depth, max_num_seqs=3, enable_prefix_caching=True)
    requests = [engine.add_request(prompt, params) for prompt in prompts]
    steps_until(engine, requests[1], 4)
    poison_rows(engine, requests[1], BLOCK_TOKENS)
    drain(engine)
    assert requests[1].finish_reason == "error"
    assert "position" in (requests[1].error or "")
    kept = requests[1].token_ids
    assert 0 < len(kept) - 140 < 16
    assert kept == expected[1].token_ids[: len(kept)]
    for i in (0, 2):
        assert requests[i].token_ids == expected[i].token_ids
        assert requests[i].finish_reason == "length"
    assert_empty(engine)
    again = engine.add_request(prompts[1], params)  # its pages are used again, and the prompt's first block is a hit
    drain(engine)
    assert again.num_cached == 128
    assert again.token_ids == expected[1].token_ids


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("step", [0, 3])
def test_logits_without_a_finite_best_never_become_a_token(
    value: float, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(2)
    request = engine.add_request(prompt_of(6), output(10))
    other = engine.add_request(prompt_of(7), output(10))
    for _ in range(step):
        engine.step()
    before = list(request.token_ids)
    verify = request.sampler.verify
    monkeypatch.setattr(request.sampler, "verify", lambda logits, *others: verify(logits.fill_(value), *others))
    published = [o for o in engine.step() if o.request is request]
    assert [(o.token_ids, o.finish_reason) for o in published] == [((), "error")]
    assert request.token_ids == before
    drain(engine)
    assert other.finish_reason == "length"
    assert_empty(engine)


def test_a_nan_draft_row_is_no_draft() -> None:
    """The drafter's rows of one request are NaN: it gets no drafts, and nothing else happens to it or to others."""
    plain = engine_of()
    truth = plain.add_request(prompt_of(10), output(12))
    drain(plain)
    engine = engine_of(3, max_num_seqs=2)
    assert engine.cache.drafter is not None
    request, other = (engine.add_request(prompt_of(10), output(12)) for _ in range(2))
    while engine.has_unfinished:
        engine.step()
        if request.pages.window:
            page = request.pages.window[0]
            engine.cache.drafter.window[page * BLOCK_TOKENS : (page + 1) * BLOCK_TOKENS] = float("nan")
    assert request.token_ids == other.token_ids == truth.token_ids
    assert request.statistics.num_draft_tokens <= 3  # of the first step
    assert other.statistics.num_draft_tokens > 10
    assert_empty(engine)


@pytest.mark.parametrize("prompt", [[], [VOCAB], [-1], [2] * 320])
def test_a_request_that_is_refused_takes_nothing(prompt: list[int]) -> None:
    engine = engine_of(2)
    with pytest.raises(ConfigError, match="prompt"):
        engine.add_request(prompt, output(3))
    assert not engine.has_unfinished
    assert_empty(engine)
