"""Penalties, bans, biases and masks: what they mean by a plain reading, and the same in every row of a verify."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.masks import HashMask
from torch import Tensor

from outrider.config import ConfigError
from outrider.sampling.constraints import Constraints
from outrider.sampling.params import SamplingParams
from outrider.sampling.sampler import LogitsError, Sampler

VOCAB = 8
INF = float("inf")
tokens = st.lists(st.integers(0, VOCAB - 1), max_size=6)


def some_logits(rows: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 2


def constrained(
    params: SamplingParams,
    prompt: Sequence[int],
    output: Sequence[int],
    drafts: Sequence[int],
    ending: Sequence[int] = (),
) -> Tensor:
    constraints = Constraints(params, prompt, frozenset(ending))
    return constraints.apply(some_logits(1)[0], [*prompt, *output], drafts)


def by_definition(
    params: SamplingParams, prompt: Sequence[int], output: Sequence[int], ending: Sequence[int]
) -> list[float]:
    """One token after the other, in float64."""
    scores = []
    for token, logit in enumerate(some_logits(1)[0].tolist()):
        score = logit + params.logit_bias.get(token, 0.0)
        if token in prompt or token in output:
            score = score / params.repetition_penalty if score > 0 else score * params.repetition_penalty
        score -= params.frequency_penalty * output.count(token)
        score -= params.presence_penalty * (token in output)
        banned = params.allowed_token_ids is not None and token not in params.allowed_token_ids
        for word in params.bad_words:
            before = list(word[:-1])
            banned |= word[-1] == token and list(output[len(output) - len(before) :]) == before
        banned |= token in ending and len(output) < params.min_tokens
        scores.append(-INF if banned else score)
    return scores


@st.composite
def any_params(draw: st.DrawFn) -> SamplingParams:
    fields: dict[str, Any] = {
        "repetition_penalty": draw(st.sampled_from([1.0, 1.3, 0.7])),
        "frequency_penalty": draw(st.sampled_from([0.0, 2.0, -0.5])),
        "presence_penalty": draw(st.sampled_from([0.0, 1.5, -1.0])),
        "logit_bias": draw(st.dictionaries(st.integers(0, VOCAB - 1), st.sampled_from([-100.0, 0.5, 3.0]), max_size=3)),
        "allowed_token_ids": draw(st.none() | st.sets(st.integers(0, VOCAB - 1), min_size=1).map(tuple)),
        "bad_words": tuple(map(tuple, draw(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=3), max_size=3)))),
        "min_tokens": draw(st.integers(0, 6)),
    }
    return SamplingParams(**fields)


@settings(max_examples=150)
@given(params=any_params(), prompt=tokens, output=tokens, drafts=tokens, ending=st.sets(st.integers(0, 7), max_size=2))
def test_a_row_equals_the_definition(
    params: SamplingParams, prompt: list[int], output: list[int], drafts: list[int], ending: set[int]
) -> None:
    found = constrained(params, prompt, output, drafts, sorted(ending)).tolist()
    expected = by_definition(params, prompt, [*output, *drafts], sorted(ending))
    assert [math.isinf(f) for f in found] == [math.isinf(e) for e in expected]
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-5)


@settings(max_examples=150)
@given(params=any_params(), prompt=tokens, drafts=tokens, accepted=st.lists(st.integers(0, 6), max_size=4))
def test_rows_of_a_verify_equal_those_of_plain_decode(
    params: SamplingParams, prompt: list[int], drafts: list[int], accepted: list[int]
) -> None:
    """To the bit, after any number of steps that kept a part of their drafts."""
    ending = frozenset({1})
    speculating, plain = Constraints(params, prompt, ending), Constraints(params, prompt, ending)
    text, row = list(prompt), some_logits(1, seed=3)[0]
    for kept in [*accepted, 0]:
        for i in range(len(drafts) + 1):
            found = speculating.apply(row, text, drafts[:i])
            alone = Constraints(params, prompt, ending).apply(row, [*text, *drafts[:i]], [])
            assert torch.equal(found, alone)
        for token in [*drafts[:kept], 3]:
            plain.apply(row, text, [])
            text.append(token)
        assert torch.equal(plain.apply(row, text, []), speculating.apply(row, text, []))


def test_the_logits_of_the_model_stay_as_they_were() -> None:
    """Their log-probabilities are reported."""
    row = some_logits(1)[0]
    before = row.clone()
    Constraints(SamplingParams(logit_bias={1: 5.0}, bad_words=((2,),), frequency_penalty=1.0), [1], frozenset()).apply(
        row, [1, 2, 2], [3]
    )
    assert torch.equal(row, before)


def test_a_draft_counts_for_the_rows_behind_it_only() -> None:
    """Token 2 is best by 1, then 5, then 6: with a penalty of 2 for each time, none can come twice in a row."""
    row = torch.tensor([0.0, 0.0, 3.0, 0.0, 0.0, 2.0, 1.5, 0.0])
    sampler = Sampler(SamplingParams(frequency_penalty=2.0), 0, [0])
    assert sampler.verify(row.expand(4, -1), [0], [2, 5, 6]) == [2, 5, 6, 2]
    assert sampler.verify(row.expand(3, -1), [0], [2, 2]) == [2, 5]
    plain = Sampler(SamplingParams(frequency_penalty=2.0), 0, [0])
    text = [0]
    for _ in range(6):
        text += plain.verify(row[None], text, [])
    assert text == [0, 2, 5, 6, 2, 0, 1]  # 5 and 2 are at 0 and -1 by now


def test_a_rejected_draft_is_not_counted_later() -> None:
    row = torch.tensor([0.0, 0.0, 3.0, 0.0, 0.0, 2.9, 0.0, 0.0])
    sampler = Sampler(SamplingParams(frequency_penalty=0.5), 0, [0])
    assert sampler.verify(row.expand(2, -1), [0], [5]) == [2]
    assert sampler.verify(row[None], [0, 2], []) == [5]
    assert sampler.verify(row[None], [0, 2, 5], []) == [2]


def test_the_prompt_counts_for_repetition_only() -> None:
    prompt = [4, 4, 5]
    raw = some_logits(1)[0]
    assert torch.equal(constrained(SamplingParams(frequency_penalty=2.0, presence_penalty=1.0), prompt, [], []), raw)
    changed = constrained(SamplingParams(repetition_penalty=2.0), prompt, [], []) != raw
    assert changed.nonzero()[:, 0].tolist() == [4, 5]


def test_a_bad_word_of_several_tokens_is_banned_where_it_would_be_completed() -> None:
    params = SamplingParams(bad_words=((2, 3, 4),))

    def banned(output: list[int], drafts: list[int], prompt: Sequence[int] = (0,)) -> list[int]:
        return torch.isinf(constrained(params, prompt, output, drafts)).nonzero()[:, 0].tolist()

    assert banned([2, 3], []) == [4]
    assert banned([2], [3]) == [4]
    assert banned([7], [2, 3]) == [4]
    assert banned([2, 3, 7], []) == []
    assert banned([3, 2], []) == []
    assert banned([3], []) == []
    assert banned([3], [], prompt=[2]) == []  # as in other engines, a word is one of the output


def test_a_bad_word_is_not_drafted_and_not_accepted() -> None:
    row = torch.tensor([0.0, 0.0, 3.0, 2.0, 1.0, 0.0, 0.0, 0.0])
    sampler = Sampler(SamplingParams(bad_words=((2, 2),)), 0, [0])
    assert sampler.draft(row[None], [0], []) == 2
    assert sampler.draft(row[None], [0], [2]) == 3
    assert sampler.verify(row.expand(4, -1), [0], [2, 2, 2]) == [2, 3]
    assert sampler.verify(row.expand(4, -1), [0], [2, 3, 2]) == [2, 3, 2, 3]


def test_a_bias_does_not_bring_back_what_is_not_allowed() -> None:
    row = constrained(SamplingParams(allowed_token_ids=(1, 5), logit_bias={2: 1000.0, 5: 1.0}), [0], [], [])
    assert torch.isfinite(row).nonzero()[:, 0].tolist() == [1, 5]
    assert row[5] == some_logits(1)[0, 5] + 1.0


@pytest.mark.parametrize("min_tokens", [1, 2, 4])
def test_min_tokens_counts_tokens_and_not_steps(min_tokens: int) -> None:
    """Token 1 ends the text and is always best."""
    row = torch.tensor([0.0, 9.0, 3.0, 2.0, 0.0, 0.0, 0.0, 0.0])
    sampler = Sampler(SamplingParams(min_tokens=min_tokens), 0, [0, 0], frozenset({1}))
    drafts = [2] * (min_tokens - 1)
    assert sampler.verify(row.expand(len(drafts) + 1, -1), [0, 0], drafts) == [2] * min_tokens
    drafts = [2] * min_tokens
    assert sampler.verify(row.expand(len(drafts) + 1, -1), [0, 0], drafts) == [*drafts, 1]
    drafts = [2] * (min_tokens + 1)
    assert sampler.verify(row.expand(len(drafts) + 1, -1), [0, 0], drafts) == [*drafts[:-1], 1]


class Recorded(HashMask):
    """Remembers what it was asked."""

    def __init__(self, salt: int) -> None:
        super().__init__(VOCAB, salt)
        self.asked: list[list[int]] = []

    def allowed(self, drafts: Sequence[int]) -> Tensor | None:
        self.asked.append(list(drafts))
        return super().allowed(drafts)


def permitted(mask: HashMask, drafts: Sequence[int] = ()) -> list[int]:
    answer = HashMask.allowed(mask, drafts)
    return list(range(VOCAB)) if answer is None else answer.nonzero()[:, 0].tolist()


@settings(max_examples=100)
@given(salt=st.integers(0, 10_000), wrong=st.integers(0, 4), seed=st.integers(0, 100))
def test_the_first_draft_that_a_mask_refuses_cuts_the_block_there(salt: int, wrong: int, seed: int) -> None:
    """Drafts are drawn under the mask up to `wrong`, and there stands one that it refuses."""
    mask, logits = Recorded(salt), some_logits(6, seed)
    sampler = Sampler(SamplingParams(temperature=0.8), seed, [0], mask=mask)
    drafts: list[int] = []
    for row in range(5):
        if row == wrong and len(permitted(mask, drafts)) < VOCAB:
            drafts.append(next(t for t in range(VOCAB) if t not in permitted(mask, drafts)))
            drafts += [0] * (4 - row)
            break
        token = sampler.draft(logits[row : row + 1], [0], drafts)
        assert token in permitted(mask, drafts)
        drafts.append(token)
    refused = row < 4 or drafts[row] not in permitted(mask, drafts[:row])
    mask.asked.clear()
    emitted = sampler.verify(logits, [0], drafts)
    if refused:
        assert emitted[:row] == drafts[:row]
        assert len(emitted) == row + 1
        assert mask.asked == [drafts[:i] for i in range(row + 1)]
    else:
        assert emitted[:-1] == drafts
    assert emitted[-1] in permitted(mask, emitted[:-1])


@settings(max_examples=30)
@given(salt=st.integers(0, 10_000), seed=st.integers(0, 100), right=st.lists(st.integers(0, 3), min_size=6, max_size=6))
def test_a_mask_sees_committed_tokens_only_once_and_in_order(salt: int, seed: int, right: list[int]) -> None:
    """The grammar's state after partial accepts is that of plain decode: what was refused left nothing in it."""
    params = SamplingParams(temperature=0.8)
    plain_mask, mask = HashMask(VOCAB, salt), HashMask(VOCAB, salt)
    plain = Sampler(params, seed, [0], mask=plain_mask)
    speculating = Sampler(params, seed, [0], mask=mask)
    logits = some_logits(40, seed)
    text = [0]
    while len(text) < 30:
        (token,) = plain.verify(logits[len(text)][None], text, [])
        plain.accept([token])
        text.append(token)
    found = [0]
    for count in right:
        truth = text[len(found) :]
        drafts = [*truth[:count], (truth[count] + 1) % VOCAB]
        emitted = speculating.verify(logits[len(found) : len(found) + len(drafts) + 1], found, drafts)
        speculating.accept(emitted)
        found += emitted
    assert found == text[: len(found)]
    assert mask.accepted == found[1:]
    for token in text[len(found) :]:
        mask.accept([token])
    assert permitted(mask) == permitted(plain_mask)


class NothingAfter:
    """Allows anything until `count` tokens are out, then nothing."""

    def __init__(self, count: int) -> None:
        self._left = count

    def allowed(self, drafts: Sequence[int]) -> Tensor | None:
        return None if len(drafts) < self._left else torch.zeros(VOCAB, dtype=torch.bool)

    def accept(self, token_ids: Sequence[int]) -> None:
        self._left -= len(token_ids)


def test_a_mask_that_allows_nothing_fails_the_request_behind_what_stands() -> None:
    row = torch.tensor([0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    sampler = Sampler(SamplingParams(), 0, [0], mask=NothingAfter(2))
    assert sampler.draft(row[None], [0], [2, 2]) is None
    emitted = sampler.verify(row.expand(3, -1), [0], [2, 2])
    assert emitted == [2, 2]
    sampler.accept(emitted)
    with pytest.raises(LogitsError, match="position 3"):
        sampler.verify(row[None], [0, 2, 2], [])


def test_bans_that_leave_nothing_fail_the_request() -> None:
    sampler = Sampler(SamplingParams(allowed_token_ids=(3,), bad_words=((3,),)), 0, [0])
    with pytest.raises(LogitsError):
        sampler.verify(some_logits(1), [0], [])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("logit_bias", {VOCAB: 1.0}), ("allowed_token_ids", (-1,)), ("bad_words", ((1, 99),)),
        ("stop_token_ids", (VOCAB,)),
    ],
)  # fmt: skip
def test_tokens_outside_the_vocabulary_are_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=field):
        SamplingParams(**{field: value}).check_token_ids(VOCAB)  # type: ignore[arg-type]
