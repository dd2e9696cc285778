"""The pattern language of the stories."""

from random import Random

import pytest

from outrider.evaluation.arithmetic.patterns import read, render, slots


def surfaces(pattern: str, past: bool = False) -> set[str]:
    rng = Random(1)
    return {render(read(pattern), rng, {"n": 3, "he": "she"}, past) for _ in range(200)}


def test_choices_nest_and_may_be_empty() -> None:
    assert surfaces("a [b|c [d|e]|]f") == {"A bf", "A c df", "A c ef", "A f"}


def test_tense_and_slots() -> None:
    assert surfaces("{he} <has/had> {n}. {he} <is/was> here") == {"She has 3. She is here"}
    assert surfaces("{he} <has/had> {n}", past=True) == {"She had 3"}
    assert slots(read("{a} [{b}|[{c}|x]] <y/z>")) == {"a", "b", "c"}


def test_a_word_left_out_leaves_no_double_blank() -> None:
    assert surfaces("all [of|] them [now|].") == {"All of them now.", "All them now.", "All of them.", "All them."}


@pytest.mark.parametrize("pattern", ["[a|b", "a]", "{n", "<has had>", "<has/had"])
def test_unmatched_brackets_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError):
        read(pattern)
