"""Text that grows step by step: the same however tokens are grouped, and cut exactly in front of a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.server.serving import shipped

from outrider.engine.stopping import StopRules
from outrider.sampling.params import SamplingParams
from outrider.server.continuation import Continuation
from outrider.text.tokenizer import IncrementalDetokenizer

TEXTS = st.text(st.sampled_from("abc aé你😀\n"), max_size=24)


@st.composite
def texts_and_stops(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A text and stop strings, some of which are in it."""
    text = draw(TEXTS)
    places = draw(st.lists(st.tuples(st.integers(0, 23), st.integers(2, 5)), max_size=2))
    return text, [s for at, length in places if (s := text[at : at + length])] + draw(st.sampled_from([[], ["ab"]]))


def step(token_ids: Sequence[int], reason: str | None, limit: int | None, own: tuple[int, ...] = ()) -> Any:
    rules = SimpleNamespace(text_limit=limit)
    return SimpleNamespace(
        token_ids=tuple(token_ids),
        accepted_drafts=0,
        finish_reason=reason,
        logprobs=None,
        request=SimpleNamespace(stop_rules=rules, params=SamplingParams(stop_token_ids=own)),
    )


@given(case=texts_and_stops(), cuts=st.lists(st.integers(1, 4), max_size=30))
def test_text_in_front_of_a_stop(case: tuple[str, list[str]], cuts: list[int]) -> None:
    text, stop = case
    tokenizer = shipped()[1]
    ids = tokenizer.encode(text)
    rules = StopRules(max_tokens=1000, stop=stop, detokenize=IncrementalDetokenizer(tokenizer).push)
    ended = next((i + 1 for i, token in enumerate(ids) if rules.push(token)), len(ids))
    places = [text.index(s) for s in stop if s in text]
    expected = text[: min(places)] if rules.text_limit is not None and places else text
    continuation = Continuation(tokenizer, stop)
    shown, at, sizes = "", 0, iter(cuts)
    while at < ended:
        size = next(sizes, 1)
        last = at + size >= ended
        growth = continuation.push(step(ids[at : min(at + size, ended)], "stop" if last else None, rules.text_limit))
        shown += growth.text
        assert expected.startswith(shown)
        at += size
    assert shown == (expected if ids else "")


def test_offsets_are_where_a_token_begins() -> None:
    tokenizer = shipped()[1]
    text = "It is 你 here"
    ids = tokenizer.encode(text)
    growth = Continuation(tokenizer, ()).push(step(ids, "length", None))
    assert growth.text == text
    names = [tokenizer.token_bytes(token) for token in ids]
    assert [len(b"".join(names[:i]).decode("utf-8", "ignore")) for i in range(len(ids))] == growth.offsets


def test_who_ended_a_text() -> None:
    def ended_by_model(*arguments: Any) -> bool:
        return Continuation(shipped()[1], ()).push(step([5, 6], *arguments)).ended_by_model

    assert ended_by_model("stop", None)
    assert not ended_by_model("stop", 3)  # a stop string
    assert not ended_by_model("stop", None, (6,))  # a stop token of the client's
    assert not ended_by_model("length", None)
