"""A story as data: numbers to draw, sentences of the question, worked steps; and how its numbers are drawn."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import NamedTuple

from outrider.evaluation.arithmetic.patterns import Pattern, read, slots
from outrider.evaluation.arithmetic.words import Split

HELD_OUT_BANDS = ((17, 18), (31, 34), (56, 59), (83, 86), (310, 349), (560, 599), (830, 869))
CLOSE_SHARE = 0.25  # of the training stories: their numbers are equal or close where their ranges meet
LARGEST = 999  # no stated number and no result exceeds it


class Operation(NamedTuple):
    """`result = left operator right`; operands are names of numbers or integer literals."""

    result: str
    left: str
    operator: str
    right: str


@dataclass(frozen=True)
class Template:
    """A story: ranges of numbers to draw (both ends included), numbers to derive, the question, the steps.

    `stated` names the numbers that the question may state; `slots` names the word slots in use. The slot
    `{equation}` of a step stands for `a + b = <<a+b=c>>c`.
    """

    name: str
    ranges: tuple[tuple[str, int, int], ...]
    derived: tuple[Operation, ...]
    question: tuple[Pattern, ...]
    steps: tuple[tuple[Operation, Pattern], ...]
    stated: frozenset[str]
    slots: frozenset[str]


def build(name: str, numbers: Sequence[str], question: Sequence[str], steps: Sequence[tuple[str, str]]) -> Template:
    """A template from text: numbers `n 2-9` or `t = n * q + k`, question patterns, steps (`c = a + b`, pattern)."""
    ranges: list[tuple[str, int, int]] = []
    derived: list[Operation] = []
    for number in numbers:
        if "=" in number:
            derived += _chain(number)
        else:
            drawn, low, high = re.fullmatch(r"(\w+) (\d+)-(\d+)", number).groups()  # type: ignore[union-attr]
            ranges.append((drawn, int(low), int(high)))
    sentences = tuple(read(sentence) for sentence in question)
    worked = tuple((_operation(formula), read(sentence)) for formula, sentence in steps)
    in_question = frozenset().union(*map(slots, sentences))
    everywhere = in_question.union(*(slots(sentence) for _, sentence in worked))
    known = {drawn for drawn, _, _ in ranges} | {operation.result for operation in derived}
    return Template(
        name, tuple(ranges), tuple(derived), sentences, worked,
        stated=in_question & known, slots=everywhere - known - {"equation"},
    )  # fmt: skip


_BLOCK = re.compile(r"\n\s*\n")
_CONTINUATION = re.compile(r"\n\s+")


def read_stories(text: str) -> tuple[Template, ...]:
    """Templates from hand-written stories, one a block; the format is described in goods_stories.py."""
    return tuple(_read_story(block) for block in _BLOCK.split(text.strip()))


def _read_story(block: str) -> Template:
    head, *lines = _CONTINUATION.sub(" ", block.strip()).split("\n")
    name, _, numbers = head.partition(": ")
    question = [_paraphrases(line[2:]) for line in lines if line.startswith("Q ")]
    steps = []
    for line in lines:
        if line.startswith("A "):
            formula, _, sentences = line[2:].partition(" | ")
            steps.append((formula, _paraphrases(sentences.replace("{=}", "{equation}"))))
    return build(name, numbers.split(", "), question, steps)


def _paraphrases(text: str) -> str:
    return "[" + "|".join(part.strip() for part in text.split("|")) + "]"


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


# --- numbers ----------------------------------------------------------------------------------------------


def in_held_out_band(number: int) -> bool:
    """Whether training questions never state `number`."""
    return any(low <= number <= high for low, high in HELD_OUT_BANDS)


_IN_BAND = tuple(in_held_out_band(n) for n in range(LARGEST + 1))


class Numbers(NamedTuple):
    """The numbers of one story by name, and (left, right, result) of its steps."""

    values: dict[str, int]
    worked: list[tuple[int, int, int]]


@cache
def _allowed(low: int, high: int, train: bool) -> tuple[int, ...]:
    """What a question may state: outside the bands in training; inside where the range reaches one in other splits."""
    everything = tuple(range(low, high + 1))
    return tuple(n for n in everything if _IN_BAND[n] != train) or everything


class NumberSource:
    """Draws numbers of one template in one split, until all steps are positive, exact and small enough."""

    def __init__(self, template: Template, split: Split) -> None:
        self.template = template
        self.train = split == "train"
        self.choices = [
            (name, _allowed(low, high, self.train) if name in template.stated else range(low, high + 1))
            for name, low, high in template.ranges
        ]

    def draw(self, rng: Random) -> Numbers:
        random, template = rng.random, self.template
        close = self.train and random() < CLOSE_SHARE
        while True:
            values = {name: choices[int(random() * len(choices))] for name, choices in self.choices}
            if close:
                self._bring_together(values, rng)
            for operation in template.derived:
                values[operation.result] = _compute(values, operation)[2]
            if any(values[name] > LARGEST for name in template.stated):
                continue
            banded = any(_IN_BAND[values[name]] for name in template.stated)
            if banded == self.train:  # training states no number of the bands, the other splits at least one
                continue
            worked = []
            for operation, _ in template.steps:
                left, right, result = _compute(values, operation)
                if not 0 < result <= LARGEST:
                    break
                values[operation.result] = result
                worked.append((left, right, result))
            else:
                return Numbers(values, worked)

    def _bring_together(self, values: dict[str, int], rng: Random) -> None:
        """Moves numbers next to one before them where they may go, for numbers that look alike are easily confused."""
        before: list[int] = []
        for name, choices in self.choices:
            if before:
                near = rng.choice(before) + rng.randint(-3, 3)
                if near in choices:
                    values[name] = near
            before.append(values[name])


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
