"""From a question to a prompt with worked examples in front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.evaluation.questions import Question
from outrider.text.tokenizer import Tokenizer

STOP = "Question:"  # where the model would go on with a question of its own


@dataclass(frozen=True)
class FewShotPrompt:
    """shots: examples that fitted."""

    token_ids: tuple[int, ...]
    shots: int


def few_shot_prompt(
    question: Question, examples: Sequence[Question], tokenizer: Tokenizer, *, most_tokens: int, chat: bool
) -> FewShotPrompt | None:
    """With as many of the examples, from the first, as fit into most_tokens; None if the question alone does not.

    chat: the whole text is one user's turn.
    """
    for shots in range(len(examples), -1, -1):
        text = _text(question, examples[:shots], chat=chat)
        ids = tokenizer.chat_prompt(text) if chat else tokenizer.completion_prompt(text)
        if len(ids) <= most_tokens:
            return FewShotPrompt(tuple(ids), shots)
    return None


def _text(question: Question, examples: Sequence[Question], *, chat: bool) -> str:
    if chat and not examples:
        return question.question
    parts = [f"Question: {example.question}\nAnswer: {example.answer}" for example in examples]
    return "\n\n".join([*parts, f"Question: {question.question}\nAnswer:"])
