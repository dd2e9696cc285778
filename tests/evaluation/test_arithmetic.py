"""The generator of arithmetic problems: true steps, an honest split, and the scoring of answers."""

import hashlib
import re
from collections import Counter
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.evaluation.arithmetic import (
    Problem,
    Split,
    as_chat,
    as_text,
    exact_match,
    extract_answer,
    problems,
    sample_problem,
    templates,
)
from outrider.evaluation.arithmetic.drills import drill
from outrider.evaluation.arithmetic.problems import FURTHER, SETTINGS, is_apart
from outrider.evaluation.arithmetic.template import LARGEST, in_held_out_band
from outrider.evaluation.arithmetic.training_words import NAME_ENDS, invented_word, widened, with_inventions
from outrider.evaluation.arithmetic.words import BASE, HELD_OUT, Lexicon

STEP = re.compile(r"(\d+) ([-+*/]) (\d+) = <<(\d+)([-+*/])(\d+)=(\d+)>>(\d+)")
DRILL = re.compile(r"(\d+) ([-+*/]) (\d+) = (?:<<\d+[-+*/]\d+=\d+>>)?(\d+)")
SPLITS: tuple[Split, ...] = ("train", "heldout", "far")
UNSEEN: tuple[Split, ...] = ("heldout", "far")


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
    names = {split: [template.name for template in templates(split)] for split in SPLITS}
    assert len(names["train"]) >= 5000 and len(names["heldout"]) >= 200 and len(names["far"]) >= 8
    everything = [name for of_split in names.values() for name in of_split]
    assert len(set(everything)) == len(everything)
    for split in SPLITS:
        assert {problem.template for problem in sample(split, 4000)} <= set(names[split])


PUBLISHED = {
    ("heldout", 0): "c7be0480ecf1ee800a64f69fccab804fa91d639cdb5d969cb71aac49b8bdf2cb",
    ("heldout", 7): "04f00350c1e711912d14e70a70c5ef21014e47d66cb55bd6b3b9e19adb5e9a00",
    ("heldout", 2026): "fb994ba79c275b996a8e4d6eb19328a41297e626d7f0e2a326bba037b1745c78",
    ("far", 0): "a3bdebb930167737853a66eb00e374d5b616c8410c4c505b8d7bbb13e6918f54",
    ("far", 7): "938e1c73e666a70901ee895ca0f9edc66314769aab43cf68245e215cc3d0ee24",
    ("far", 2026): "0e186a497064c288ebe58dd54c31a55f194a89316415891bca9f9654d475142d",
}


@pytest.mark.parametrize(("split", "seed"), PUBLISHED)
def test_unseen_problems_never_change(split: Split, seed: int) -> None:
    """Scores of different models, or of one model over time, can be compared only on the same problems."""
    text = "\n\n".join(f"{problem.template}\n{as_text(problem)}" for problem in problems(seed, 1000, split))
    assert hashlib.sha256(text.encode()).hexdigest() == PUBLISHED[split, seed]


def test_an_idle_fact_does_not_teach_a_held_out_story() -> None:
    held_out = {template.name for template in templates("heldout")}
    for template in templates("train"):
        without = " ".join(word for word in template.name.split() if not word.startswith("idle_"))
        assert without not in held_out, template.name


def test_further_parts_have_names_of_their_own() -> None:
    known = {setting.name: setting for setting, _ in SETTINGS}
    for base, further, share in FURTHER:
        assert base.name == further.name and share > 0
        for field in ("beginnings", "moves", "ends"):
            names = [part.name for part in getattr(further, field) + getattr(known.get(base.name, base), field)]
            assert len(set(names)) == len(names)
    assert sum(share for *_, share in FURTHER) == pytest.approx(1)


def test_every_further_part_is_drawn() -> None:
    taught = {word for template in templates("train") for word in _parts(template.name)}
    for _, further, _ in FURTHER:
        for part in further.beginnings + further.moves + further.ends:
            assert f"{further.name}: {part.name}" in taught


def test_every_part_of_a_held_out_story_is_taught() -> None:
    taught = {word for template in templates("train") for word in _parts(template.name)}
    assert {word for template in templates("heldout") for word in _parts(template.name)} <= taught


def _parts(template_name: str) -> set[str]:
    setting, _, parts = template_name.partition(": ")
    return {f"{setting}: {part}" for part in parts.split()}


def test_training_stories_have_many_surfaces() -> None:
    surfaces = {re.sub(r"\d+", "0", problem.question) for problem in sample("train", 20000)}
    assert len(surfaces) > 15000


def test_held_out_words_do_not_occur_in_training() -> None:
    lexicon = HELD_OUT
    nouns = lexicon.things + lexicon.foods + lexicon.animals + lexicon.containers
    words = {noun.one for noun in nouns} | {person.name for person in lexicon.people}
    for problem in sample("train", 20000):
        assert words.isdisjoint(re.findall(r"[A-Za-z]+", problem.question)), problem


def _forms(lexicon: Lexicon) -> set[str]:
    kinds = (lexicon.things, lexicon.foods, lexicon.animals, lexicon.containers, lexicon.kin, lexicon.pens)
    forms = {form for nouns in kinds for noun in nouns for form in noun}
    forms |= {person.name for person in lexicon.people} | {activity.units for activity in lexicon.activities}
    return forms | {*lexicon.adjectives, *lexicon.places, *lexicon.riders}


def test_further_and_invented_words_are_not_held_out() -> None:
    held_out = _forms(HELD_OUT)
    train = widened(BASE)
    assert held_out.isdisjoint(_forms(train) - _forms(BASE))
    for known, field in zip(BASE, train, strict=True):
        further = field[len(known) :]
        assert len(set(further)) == len(further) and set(known).isdisjoint(further)
    rng = Random(5)
    invented: set[str] = set()
    for _ in range(400):
        invented |= _forms(with_inventions(train, rng)) - _forms(train)
    assert len(invented) > 2000 and held_out.isdisjoint(invented)


def test_no_invented_name_is_a_held_out_one() -> None:
    """The syllables could spell Milo, Cora, Marta or Sonia, a few times in 200,000 words."""
    rng = Random(6)
    names = {invented_word(rng, NAME_ENDS).capitalize() for _ in range(200_000)}
    assert names.isdisjoint(person.name for person in HELD_OUT.people)


def test_many_training_stories_are_about_words_met_nowhere_else() -> None:
    lines = [re.findall(r"[a-z]+", problem.question.lower()) for problem in sample("train", 20000)]
    times = Counter(word for words in lines for word in set(words))
    share = sum(any(times[word] == 1 for word in words) for words in lines) / len(lines)
    assert 0.15 < share < 0.5


def test_training_questions_never_state_a_held_out_number() -> None:
    for problem in sample("train", 20000):
        assert not any(in_held_out_band(int(n)) for n in re.findall(r"\d+", problem.question)), problem


@pytest.mark.parametrize("split", UNSEEN)
def test_every_unseen_question_states_a_held_out_number(split: Split) -> None:
    for problem in sample(split, 4000):
        assert any(in_held_out_band(int(n)) for n in re.findall(r"\d+", problem.question)), problem


def test_no_13_words_of_unseen_questions_occur_in_training() -> None:
    def grams(problem: Problem) -> set[str]:
        words = problem.question.split()
        return {" ".join(words[i : i + 13]) for i in range(len(words) - 12)}

    unseen = set().union(*(grams(problem) for split in UNSEEN for problem in sample(split, 4000)))
    for problem in sample("train", 20000):
        assert not unseen & grams(problem), problem


def test_words_in_a_row_without_a_word_of_the_story_are_refused() -> None:
    """Such a row occurs once in 300,000 problems, so no sample of this size would find it."""
    question = (
        "Mabel has 82 caps and Ada has 258 of them. They put them on one pile. On the way home, she sells 5 to a boy."
    )
    assert not is_apart(question, ["Mabel", "Ada", "caps"])
    assert is_apart(question, ["Mabel", "Ada", "caps", "pile"])
    assert is_apart(question.replace("one pile", "14 piles"), ["Mabel", "Ada", "caps"])


@pytest.mark.parametrize("split", SPLITS)
def test_sentences_are_well_formed(split: Split) -> None:
    for problem in sample(split, 4000):
        assert not re.search(r"  | [.?,]|,[A-Za-z]|[<>\[\]|{}@]", problem.question), problem
        assert problem.question.endswith("?") and all(s[0].isupper() or s[0].isdigit() for s in sentences(problem))


def sentences(problem: Problem) -> list[str]:
    return re.split(r"(?<=[.?]) ", problem.question)


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
