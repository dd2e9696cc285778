"""What one request may rely on when blocks of drafts are accepted at once: its end, limits and log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tests.engine.tiny_engine import assert_empty, drain, engine_of, output, prompt_of, speculating, spell
from tests.histories import VOCAB
from torch import Tensor

from outrider.engine.request import Request, StepOutput
from outrider.sampling.params import SamplingParams

EOS = 1
STOP = 30


class Script:
    """A grammar that allows one text only; tokens after its end are free."""

    def __init__(self, token_ids: Sequence[int]) -> None:
        self._left = list(token_ids)

    def allowed(self, drafts: Sequence[int]) -> Tensor | None:
        if len(drafts) >= len(self._left):
            return None
        mask = torch.zeros(VOCAB, dtype=torch.bool)
        mask[self._left[len(drafts)]] = True
        return mask

    def accept(self, token_ids: Sequence[int]) -> None:
        del self._left[: len(token_ids)]


def run_script(script: Sequence[int], depth: int = 7, **params: Any) -> tuple[Request, list[StepOutput]]:
    """One request that must say `script`, with drafts that are all right: the second step accepts a whole block."""
    engine, oracle = speculating(depth)
    prompt = prompt_of(9)
    request = engine.add_request(prompt, SamplingParams(**{"max_tokens": 8, **params}), mask=Script(script))
    oracle.know(request.pages, [*prompt, *script], [depth])
    outputs = []
    while engine.has_unfinished:
        outputs += engine.step()
    assert_empty(engine)
    return request, outputs


def check_end(request: Request, outputs: Sequence[StepOutput], kept: Sequence[int], reason: str) -> None:
    """Nothing behind the end was published, counted or kept."""
    assert request.output_token_ids == list(kept)
    assert [token for o in outputs for token in o.token_ids] == list(kept)
    assert request.finish_reason == outputs[-1].finish_reason == reason
    assert request.statistics.num_emitted_tokens == len(kept) - 1
    assert sum(o.accepted_drafts for o in outputs) == request.statistics.num_accepted_tokens <= len(kept) - 1
    assert request.num_computed <= len(request.token_ids)
    for o in outputs:
        assert o.logprobs is None or len(o.logprobs) == len(o.token_ids)


# -------- the end of a text


def test_a_stop_in_front_of_the_limit() -> None:
    script = [10, 11, STOP, 20, 21, 22]
    request, outputs = run_script(script, max_tokens=5, stop_token_ids=(STOP,), logprobs=1)
    check_end(request, outputs, script[:3], "stop")
    assert len(outputs) == 2  # the prompt's pass and one block


def test_a_limit_in_front_of_the_stop() -> None:
    script = [10, 11, 20, 21, 22, STOP]
    request, outputs = run_script(script, max_tokens=5, stop_token_ids=(STOP,), logprobs=1)
    check_end(request, outputs, script[:5], "length")


def test_a_stop_that_is_the_last_token_allowed() -> None:
    script = [10, 11, 20, 21, STOP, 23]
    request, outputs = run_script(script, max_tokens=5, stop_token_ids=(STOP,))
    check_end(request, outputs, script[:5], "stop")


@pytest.mark.parametrize("ending", [EOS, STOP])
@pytest.mark.parametrize("at", range(8))
def test_an_end_token_anywhere_in_a_block(at: int, ending: int) -> None:
    script = [10, 11, 12, 13, 14, 15, 16, 17]
    script[at] = ending
    request, outputs = run_script(script, stop_token_ids=(STOP,), logprobs=0)
    check_end(request, outputs, script[: at + 1], "stop")


def test_ignore_eos_goes_on_and_leaves_stop_tokens_as_they_are() -> None:
    script = [10, EOS, EOS, 13, STOP, 15]
    request, outputs = run_script(script, ignore_eos=True, stop_token_ids=(STOP,))
    check_end(request, outputs, script[:5], "stop")
    request, outputs = run_script([10, EOS, 12, EOS], ignore_eos=True, max_tokens=4)
    check_end(request, outputs, [10, EOS, 12, EOS], "length")


@pytest.mark.parametrize("at", range(7))
@pytest.mark.parametrize("inside", [False, True])
def test_a_stop_string_across_two_accepted_tokens(at: int, inside: bool) -> None:
    """`inside`: the string ends in the middle of the second token's text."""
    script = [10, 19, 28, 37, 46, 55, 63, 9]
    text = spell(script)
    stop = text[2 * at + 1 : 2 * at + (3 if inside else 4)]
    assert text.index(stop) == 2 * at + 1
    request, outputs = run_script(script, stop=("zz", stop), max_tokens=8)
    check_end(request, outputs, script[: at + 2], "stop")
    assert spell(request.output_token_ids)[: request.stop_rules.text_limit] == text[: 2 * at + 1]


def test_a_stop_string_counts_from_min_tokens_on() -> None:
    script = [10, 11, 10, 11, 10, 11, 12, 13]
    request, outputs = run_script(script, stop=(spell([11]),), min_tokens=3)
    check_end(request, outputs, script[:4], "stop")
    assert request.stop_rules.text_limit == 6


@pytest.mark.parametrize("max_tokens", range(1, 9))
def test_max_tokens_inside_an_accepted_block(max_tokens: int) -> None:
    script = [10, 11, 12, 13, 14, 15, 16, 17]
    request, outputs = run_script(script, max_tokens=max_tokens, logprobs=2)
    check_end(request, outputs, script[:max_tokens], "length")
    assert request.statistics.num_draft_tokens == max(max_tokens - 2, 0)  # none that could not be kept


@pytest.mark.parametrize("depth", [0, 4])
@pytest.mark.parametrize("min_tokens", [0, 1, 7, 20])
def test_no_end_token_before_min_tokens(min_tokens: int, depth: int) -> None:
    """The end token is always the best one."""
    engine = engine_of(depth)
    params = SamplingParams(max_tokens=24, min_tokens=min_tokens, logit_bias={EOS: 100.0}, frequency_penalty=1.0)
    request = engine.add_request(prompt_of(5), params)
    drain(engine)
    assert request.output_token_ids.index(EOS) == min_tokens
    assert (len(request.output_token_ids), request.finish_reason) == (min_tokens + 1, "stop")


def test_likely_end_tokens_end_texts_where_they_do_without_speculation() -> None:
    """Not only in distribution: seed by seed."""
    params = [
        SamplingParams(temperature=1.0, seed=seed, max_tokens=12, logit_bias={EOS: 2.5}, logprobs=0)
        for seed in range(40)
    ]
    lengths = []
    for depth in (0, 3):
        engine = engine_of(depth, max_num_seqs=40)
        requests = [engine.add_request(prompt_of(6), own) for own in params]
        drain(engine)
        lengths.append([(len(r.output_token_ids), r.finish_reason) for r in requests])
    assert lengths[0] == lengths[1]
    assert len(set(lengths[0])) > 5


@pytest.mark.parametrize("prompt_length", [50, 63])
def test_one_request_at_the_end_of_the_context_leaves_the_others_their_drafts(prompt_length: int) -> None:
    """It drafts no further than the context, ends with "length", and its neighbour is accepted as if alone."""

    def run(*lengths: int) -> list[Request]:
        engine = engine_of(5, max_model_len=64)
        requests = [engine.add_request(prompt_of(n, n), output(40)) for n in lengths]
        drain(engine)
        assert_empty(engine)
        return requests

    long, short = run(prompt_length, 3)
    (alone,) = run(3)
    assert (len(long.token_ids), long.finish_reason) == (64, "length")
    assert short.token_ids == alone.token_ids
    assert short.statistics == alone.statistics


# -------- numbers about tokens


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_asking_for_logprobs_changes_no_token(temperature: float) -> None:
    texts = set()
    for changes in (
        {},
        {"logprobs": 0},
        {"logprobs": 5},
        {"prompt_logprobs": 3},
        {"logprobs": 1, "prompt_logprobs": 0},
    ):
        engine = engine_of(3)
        params = SamplingParams(temperature=temperature, seed=5, max_tokens=12, ignore_eos=True, **changes)  # type: ignore[arg-type]
        request = engine.add_request(prompt_of(30), params)
        drain(engine)
        texts.add(tuple(request.output_token_ids))
    assert len(texts) == 1


@pytest.mark.parametrize("right", [[0], [1, 0, 3], [5]])
def test_logprobs_of_accepted_corrected_and_bonus_tokens(right: list[int]) -> None:
    """Those of plain decode, to the bit."""
    params = SamplingParams(temperature=0.8, seed=2, max_tokens=14, ignore_eos=True, logprobs=5, prompt_logprobs=2)
    plain = engine_of()
    request = plain.add_request(prompt_of(20), params)
    expected = [entry for o in plain.generate(request) for entry in o.logprobs or ()]
    engine, oracle = speculating(5)
    other = engine.add_request(prompt_of(20), params)
    oracle.know(other.pages, request.token_ids, right)
    found = [entry for o in engine.generate(other) for entry in o.logprobs or ()]
    assert found == expected
    assert len(found) == 14
    assert all(next(iter(entry)) == token for entry, token in zip(found, other.output_token_ids, strict=True))
    assert all(-100 < value < 0 and len(entry) >= 5 for entry in found for value in entry.values())
    assert other.prompt_logprobs == request.prompt_logprobs
    assert other.prompt_logprobs is not None
    assert other.prompt_logprobs[0] is None
    assert len(other.prompt_logprobs) == 20


def test_penalties_with_drafts_that_repeat() -> None:
    params = SamplingParams(max_tokens=24, frequency_penalty=2.0, ignore_eos=True)
    texts = []
    for depth in (0, 1, 4, 7):
        engine = engine_of(depth)
        request = engine.add_request([5, 5, 5, 5], params)
        drain(engine)
        texts.append(request.output_token_ids)
    assert texts == [texts[0]] * 4
