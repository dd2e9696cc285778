"""What is asked: a file in GSM8K's own format, or the generated arithmetic problems."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrider.config import ConfigError
from outrider.evaluation import arithmetic

EVALUATION_SEED, EXAMPLE_SEED = 2026, 7


@dataclass(frozen=True)
class Question:
    """answer: worked steps whose last line is `#### N`."""

    question: str
    answer: str


@dataclass(frozen=True)
class QuestionSet:
    """examples: those that may stand in front of a question; none of them is asked."""

    name: str
    questions: tuple[Question, ...]
    examples: tuple[Question, ...]

    @property
    def digest(self) -> str:
        """Of everything that is asked and shown: two sets with the same one are the same."""
        parts = [text for q in (*self.examples, *self.questions) for text in (q.question, q.answer)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def read_questions(path: Path) -> list[Question]:
    """A JSONL file of objects with "question" and "answer", the answer ending in `#### N`.

    Raises ConfigError with file and line, OSError for a file that cannot be opened.
    """
    found = []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 ({error.reason})") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            found.append(_question(line, f"{path}:{number}"))
    if not found:
        raise ConfigError(f"{path}: it has no questions")
    return found


def from_file(path: Path, examples: Path | None, shots: int, limit: int | None) -> QuestionSet:
    """shots: examples wanted. Without a file of examples the first questions are taken for them, and not asked.

    Raises ConfigError as `read_questions` does, and when the files are too short.
    """
    questions = read_questions(path)
    shown = questions if examples is None else read_questions(examples)
    if len(shown) < shots:
        raise ConfigError(f"--shots: {shots}, but {examples or path} has {len(shown)} examples")
    asked = questions[shots:] if examples is None else questions
    if not asked:
        raise ConfigError(f"{path}: all {len(questions)} questions are taken as examples; --examples names a file")
    return QuestionSet(path.name, tuple(asked[:limit]), tuple(shown[:shots]))


def generated(shots: int, count: int) -> QuestionSet:
    """The shipped arithmetic set: held-out problems, examples from the training split."""
    asked = _generated(arithmetic.problems(EVALUATION_SEED, count, "heldout"))
    return QuestionSet("arithmetic", asked, _generated(arithmetic.problems(EXAMPLE_SEED, shots, "train")))


def _generated(problems: Any) -> tuple[Question, ...]:
    return tuple(Question(problem.question, problem.answer) for problem in problems)


def _question(line: str, where: str) -> Question:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not JSON ({error})") from None
    texts: Sequence[Any] = [fields.get(key) for key in ("question", "answer")] if isinstance(fields, dict) else ()
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise ConfigError(f'{where}: an object with texts "question" and "answer" is expected')
    found = Question(*texts)
    if arithmetic.extract_answer(found.answer) is None:
        raise ConfigError(f"{where}: answer: its last line must be #### and a number")
    return found
