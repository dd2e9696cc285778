"""Arithmetic word problems in the surface form of GSM8K, generated from our own templates by seed.

A problem is a question and worked steps, each a sentence holding `a * b = <<a*b=c>>c`; the last line is
`#### c`. All quantities are positive integers and every division is exact.

What the split `heldout` holds out, so that `train` never shows it:

* whole stories: the eight templates of arithmetic_heldout.py and all patterns of the collection "aquarium".
  They use operations and turns of phrase that training templates teach, in settings of their own, and share
  no 13 consecutive words with a training story;
* number ranges: a number that a training question states never lies in `HELD_OUT_BANDS`; every number of a
  held-out question whose range reaches a band is drawn from the bands, at least one in each question.

Not held out: one-digit numbers, results of steps, and the plain drills (`drill`), which cover all numbers and
contain no story. So a held-out problem asks for known arithmetic in an unseen story with unseen quantities.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Literal, NamedTuple

from outrider.evaluation import arithmetic_words as words
from outrider.evaluation.arithmetic_collections import (
    HELD_OUT_COLLECTIONS,
    TRAINING_COLLECTIONS,
    Collection,
    compose,
)
from outrider.evaluation.arithmetic_heldout import HELD_OUT_STORIES
from outrider.evaluation.arithmetic_measures import MEASURE_STORIES
from outrider.evaluation.arithmetic_templates import GOODS_STORIES

Split = Literal["train", "heldout"]

HELD_OUT_BANDS = ((17, 18), (31, 34), (56, 59), (83, 86), (310, 349), (560, 599), (830, 869))
LARGEST = 999  # no stated number and no result exceeds it
COLLECTION_SHARE = 0.25  # of all problems; the rest come from the hand-written templates


@dataclass(frozen=True)
class Problem:
    """One word problem: `answer` has `steps` worked lines and a last line `#### c`."""

    question: str
    answer: str
    steps: int
    template: str


class Operation(NamedTuple):
    """`result = left operator right`; operands are names of numbers or integer literals."""

    result: str
    left: str
    operator: str
    right: str


@dataclass(frozen=True)
class Template:
    """A story: numbers to draw (name, values), numbers to derive, sentences with paraphrases, and steps.

    A sentence is a tuple of paraphrases in `str.format` form. `stated` names the numbers that a paraphrase of
    the question states; `slots` names the word slots in use.
    """

    name: str
    numbers: tuple[tuple[str, tuple[int, ...]], ...]
    derived: tuple[Operation, ...]
    question: tuple[tuple[str, ...], ...]
    steps: tuple[tuple[Operation, tuple[str, ...]], ...]
    stated: frozenset[str]
    slots: frozenset[str]


def in_held_out_band(number: int) -> bool:
    """Whether training questions never state `number`."""
    return any(low <= number <= high for low, high in HELD_OUT_BANDS)


# --- reading templates ------------------------------------------------------------------------------------

_BLOCK = re.compile(r"\n\s*\n")
_CONTINUATION = re.compile(r"\n\s+")
_FIELD = re.compile(r"\{(\w+)\}")


def _parse(block: str, split: Split) -> Template:
    head, *lines = _CONTINUATION.sub(" ", block.strip()).split("\n")
    name, _, declarations = head.partition(": ")
    question = [_paraphrases(line[2:]) for line in lines if line.startswith("Q ")]
    steps = []
    for line in lines:
        if line.startswith("A "):
            formula, _, sentences = line[2:].partition(" | ")
            steps.append((_operation(formula), _paraphrases(sentences.replace("{=}", "{equation}"))))
    in_question = {field for sentence in question for text in sentence for field in _FIELD.findall(text)}
    everywhere = in_question | {field for _, sentence in steps for text in sentence for field in _FIELD.findall(text)}
    numbers: list[tuple[str, tuple[int, ...]]] = []
    derived: list[Operation] = []
    for declaration in declarations.split(", "):
        if "=" in declaration:
            derived += _chain(declaration)
            continue
        number, low, high = re.fullmatch(r"(\w+) (\d+)-(\d+)", declaration).groups()  # type: ignore[union-attr]
        numbers.append((number, _values(int(low), int(high), split, number in in_question)))
    known = {number for number, _ in numbers} | {operation.result for operation in derived}
    return Template(
        name, tuple(numbers), tuple(derived), tuple(question), tuple(steps),
        stated=frozenset(in_question & known), slots=frozenset(everywhere - known - {"equation"}),
    )  # fmt: skip


def _values(low: int, high: int, split: Split, stated: bool) -> tuple[int, ...]:
    """What a number is drawn from: outside the bands for training, inside where possible for held-out."""
    everything = range(low, high + 1)
    if not stated:
        return tuple(everything)
    chosen = tuple(n for n in everything if in_held_out_band(n) == (split == "heldout"))
    return chosen or tuple(everything)


def _operation(text: str) -> Operation:
    result, equals, left, operator, right = text.split()
    assert equals == "=" and operator in "+-*/", text
    return Operation(result, left, operator, right)


def _chain(text: str) -> list[Operation]:
    """`t = n * q + k`, read from left to right, as the operations `t = n * q` and `t = t + k`."""
    result, _, left, *rest = text.split()
    operations = []
    for sign, right in zip(rest[::2], rest[1::2], strict=True):
        operations.append(Operation(result, left, sign, right))
        left = result
    return operations


def _paraphrases(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split("|"))


@cache
def templates(split: Split) -> tuple[tuple[Template, ...], tuple[Template, ...]]:
    """The templates of a split: (hand-written, composed collections)."""
    collections: tuple[Collection, ...]
    if split == "train":
        stories, collections = GOODS_STORIES + "\n" + MEASURE_STORIES, TRAINING_COLLECTIONS
    elif split == "heldout":
        stories, collections = HELD_OUT_STORIES, HELD_OUT_COLLECTIONS
    else:
        raise ValueError(f"split must be 'train' or 'heldout', not {split!r}")
    composed = "\n\n".join(compose(collection) for collection in collections)
    return _read(stories, split), _read(composed, split)


def _read(text: str, split: Split) -> tuple[Template, ...]:
    return tuple(_parse(block, split) for block in _BLOCK.split(text.strip()))


# --- drawing ----------------------------------------------------------------------------------------------


def _draw_numbers(rng: Random, template: Template, split: Split) -> tuple[dict[str, int], list[tuple[int, int, int]]]:
    """Numbers of one story and (left, right, result) of its steps, drawn until all are positive and exact."""
    random = rng.random
    while True:
        values = {name: choices[int(random() * len(choices))] for name, choices in template.numbers}
        for operation in template.derived:
            values[operation.result] = _compute(values, operation)[2]
        if split == "train" and any(in_held_out_band(values[name]) for name in template.stated):
            continue
        worked = []
        for operation, _ in template.steps:
            left, right, result = _compute(values, operation)
            if not 0 < result <= LARGEST:
                break
            values[operation.result] = result
            worked.append((left, right, result))
        else:
            if all(values[name] <= LARGEST for name in template.stated):
                return values, worked


def _compute(values: dict[str, int], operation: Operation) -> tuple[int, int, int]:
    """(left, right, result); the result is 0 where a division is not exact."""
    left = values[operation.left] if operation.left in values else int(operation.left)
    right = values[operation.right] if operation.right in values else int(operation.right)
    match operation.operator:
        case "+":
            return left, right, left + right
        case "-":
            return left, right, left - right
        case "*":
            return left, right, left * right
        case _:
            return left, right, 0 if left % right else left // right


_VEHICLES = ("car", "truck", "bus", "train", "van")


def _draw_words(rng: Random, slots: frozenset[str]) -> dict[str, str]:
    """A word for every slot in use. Words that stand side by side in a story (item and other) differ."""
    drawn: dict[str, str] = {}
    if "name" in slots:
        (name, he, his, him), (friend, *_), (third, *_) = rng.sample(words.PEOPLE, 3)
        drawn.update(name=name, he=he, his=his, him=him, friend=friend, third=third)
        drawn.update(He=he.capitalize(), His=his.capitalize())
    if not slots.isdisjoint(("item", "items", "other", "others")):
        (item, items), (other, others) = rng.sample(words.GOODS, 2)
        drawn.update(item=item, items=items, other=other, others=others)
    if not slots.isdisjoint(("food", "foods")):
        drawn["food"], drawn["foods"] = rng.choice(words.FOODS)
        drawn["others"] = rng.choice(words.THINGS)[1]
    if not slots.isdisjoint(("box", "boxes")):
        drawn["box"], drawn["boxes"] = rng.choice(words.CONTAINERS)
    if "animals" in slots:
        (_, drawn["animals"]), (_, drawn["others_a"]) = rng.sample(words.ANIMALS, 2)
    if "day" in slots:
        drawn["day"], drawn["day2"] = rng.sample(words.DAYS, 2)
    if "color" in slots:
        drawn["color"], drawn["color2"] = rng.sample(words.COLOURS, 2)
    if "place" in slots:
        drawn["place"] = rng.choice(words.PLACES)
    if "job" in slots:
        drawn["job"] = rng.choice(words.JOBS)
    if "vehicle" in slots:
        drawn["vehicle"] = rng.choice(_VEHICLES)
    return drawn


def sample_problem(rng: Random, split: Split = "train") -> Problem:
    """One problem of a split; the same state of `rng` gives the same problem."""
    hand_written, composed = templates(split)
    template = rng.choice(composed if rng.random() < COLLECTION_SHARE else hand_written)
    values, worked = _draw_numbers(rng, template, split)
    fields: dict[str, object] = {**values, **_draw_words(rng, template.slots)}
    question = " ".join([rng.choice(sentence).format_map(fields) for sentence in template.question])
    lines = []
    for (operation, sentence), (left, right, result) in zip(template.steps, worked, strict=True):
        sign = operation.operator
        fields["equation"] = f"{left} {sign} {right} = <<{left}{sign}{right}={result}>>{result}"
        lines.append(_capital(rng.choice(sentence).format_map(fields)))
    lines.append(f"#### {worked[-1][2]}")
    return Problem(_capitals(question), "\n".join(lines), len(worked), template.name)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _capitals(text: str) -> str:
    """Start every sentence with a capital, since a slot or a number may stand there."""
    return ". ".join([_capital(part) for part in text.split(". ")])


def problems(seed: int, count: int, split: Split = "train") -> Iterator[Problem]:
    """`count` problems of a split, determined by `seed`."""
    rng = Random(seed)
    for _ in range(count):
        yield sample_problem(rng, split)


# --- text forms -------------------------------------------------------------------------------------------


def as_text(problem: Problem) -> str:
    """The plain form, `Question: ...` and `Answer: ...` on a line of its own."""
    return f"Question: {problem.question}\nAnswer: {problem.answer}"


def as_chat(problem: Problem) -> str:
    """The chat form in non-thinking mode, without begin and end of sentence."""
    return f"<｜User｜>{problem.question}<｜Assistant｜></think>{problem.answer}"


# --- scoring ----------------------------------------------------------------------------------------------

_FINAL = re.compile(r"#### (-?[0-9.,]+)")


def extract_answer(text: str) -> str | None:
    """The number after the first `####` without its commas, or None where there is none (GSM8K's rule)."""
    found = _FINAL.search(text)
    return found.group(1).replace(",", "").rstrip(".") if found else None


def exact_match(prediction: str, reference: str) -> bool:
    """Whether both texts end in the same final answer; a text without one never matches."""
    answer = extract_answer(prediction)
    return answer is not None and answer == extract_answer(reference)
