"""The generator of arithmetic problems: true steps, an honest split, and the scoring of answers."""

import re
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.evaluation.arithmetic import (
    LARGEST,
    Problem,
    Split,
    as_chat,
    as_text,
    exact_match,
    extract_answer,
    in_held_out_band,
    problems,
    sample_problem,
    templates,
)
from outrider.evaluation.arithmetic_drills import drill

STEP = re.compile(r"(\d+) ([-+*/]) (\d+) = <<(\d+)([-+*/])(\d+)=(\d+)>>(\d+)")
DRILL = re.compile(r"(\d+) ([-+*/]) (\d+) = (?:<<\d+[-+*/]\d+=\d+>>)?(\d+)")
SPLITS: tuple[Split, ...] = ("train", "heldout")


def compute(left: int, sign: str, right: int) -> int:
    """The value of an operation; a division must be exact."""
    if sign == "/":
        assert left % right == 0
        return left // right
    return {"+": left + right, "-": left - right, "*": left * right}[sign]


@cache
def sample(split: Split, count: int) -> tuple[Problem, ...]:
    return tuple(problems(11, count, split))


def check(problem: Problem) -> None:
    *lines, last = problem.answer.split("\n")
    assert problem.steps == len(lines) > 0
    result = 0
    for line in lines:
        found = STEP.findall(line)
        assert len(found) == 1 == line.count("<<"), line
        left, sign, right, left2, sign2, right2, inside, after = found[0]
        assert (left, sign, right, inside) == (left2, sign2, right2, after)
        result = int(after)
        assert compute(int(left), sign, int(right)) == result
        assert 0 < result <= LARGEST
    assert last == f"#### {result}"
    assert extract_answer(problem.answer) == str(result)
    assert "{" not in problem.question + problem.answer


@pytest.mark.parametrize("split", SPLITS)
def test_steps_are_true_and_end_in_the_answer(split: Split) -> None:
    for problem in sample(split, 4000):
        check(problem)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(min_value=0, max_value=2**63), split=st.sampled_from(SPLITS))
def test_a_seed_determines_valid_problems(seed: int, split: Split) -> None:
    first = list(problems(seed, 5, split))
    assert first == list(problems(seed, 5, split))
    for problem in first:
        check(problem)


def test_templates_of_the_splits_are_apart() -> None:
    train = {template.name for group in templates("train") for template in group}
    held_out = {template.name for group in templates("heldout") for template in group}
    assert len(train) >= 40 and len(held_out) >= 8
    assert not train & held_out
    assert {problem.template for problem in sample("train", 8000)} <= train
    assert {problem.template for problem in sample("heldout", 4000)} == held_out


def test_training_questions_never_state_a_held_out_number() -> None:
    for problem in sample("train", 8000):
        assert not any(in_held_out_band(int(n)) for n in re.findall(r"\d+", problem.question)), problem


def test_every_held_out_question_states_a_held_out_number() -> None:
    for problem in sample("heldout", 4000):
        assert any(in_held_out_band(int(n)) for n in re.findall(r"\d+", problem.question)), problem


def test_no_13_words_of_held_out_stories_occur_in_training() -> None:
    def grams(problem: Problem) -> set[str]:
        words = as_text(problem).split()
        return {" ".join(words[i : i + 13]) for i in range(len(words) - 12)}

    held_out = set().union(*map(grams, sample("heldout", 4000)))
    for problem in sample("train", 30000):
        assert not held_out & grams(problem), problem


def test_drills_are_true() -> None:
    rng = Random(3)
    for _ in range(3000):
        found = DRILL.findall(drill(rng))
        assert found
        for left, sign, right, result in found:
            assert compute(int(left), sign, int(right)) == int(result) > 0


def test_text_forms() -> None:
    problem = sample_problem(Random(0))
    assert as_text(problem) == f"Question: {problem.question}\nAnswer: {problem.answer}"
    assert as_chat(problem) == f"<｜User｜>{problem.question}<｜Assistant｜></think>{problem.answer}"


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(ValueError, match="split"):
        next(problems(0, 1, "test"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so 3\n#### 3", "3"),
        ("#### 1,234", "1234"),
        ("#### -5\n", "-5"),
        ("#### 0.5", "0.5"),
        ("#### 12.\nQuestion: next", "12"),
        ("#### 4\nQuestion\n#### 5", "4"),
        ("the answer is 3", None),
        ("#### many", None),
        ("", None),
    ],
)
def test_extract_answer(text: str, answer: str | None) -> None:
    assert extract_answer(text) == answer


def test_exact_match() -> None:
    assert exact_match("... #### 1,000", "#### 1000")
    assert not exact_match("#### 2", "#### 3")
    assert not exact_match("2", "2")
