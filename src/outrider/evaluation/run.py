"""Asks every question of a set, greedily, and keeps the answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from outrider.engine.engine import Engine
from outrider.engine.request import Request
from outrider.evaluation.answers import flexible_match, strict_match
from outrider.evaluation.prompting import STOP, FewShotPrompt, few_shot_prompt
from outrider.evaluation.questions import QuestionSet
from outrider.evaluation.records import Record, Records
from outrider.sampling.params import SamplingParams
from outrider.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Task:
    """max_tokens: of an answer."""

    questions: QuestionSet
    max_tokens: int
    chat: bool


def answer_questions(
    engine: Engine,
    tokenizer: Tokenizer,
    task: Task,
    records: Records,
    arm: str,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Adds the records that are missing. The engine needs a detokenizer (stop strings); it takes as many requests at
    a time as it has places."""
    questions = task.questions.questions
    missing = deque(index for index in range(len(questions)) if (arm, index) not in records.done)
    running: dict[Request, tuple[int, int]] = {}  # -> index, shots
    while missing or running:
        while missing and len(running) < engine.options.max_num_seqs:
            index = missing.popleft()
            prompt = _prompt(engine, tokenizer, task, index)
            if prompt is None:
                records.add(Record(arm, index, "", (), "too long", 0, strict=False, flexible=False))
                continue
            params = SamplingParams(max_tokens=task.max_tokens, stop=(STOP,), seed=0)
            running[engine.add_request(prompt.token_ids, params)] = index, prompt.shots
        for output in engine.step() if running else ():
            if output.finish_reason is not None:
                index, shots = running.pop(output.request)
                records.add(_record(arm, index, shots, output.request, tokenizer, questions[index].answer))
        if progress is not None:
            progress(sum(name == arm for name, _ in records.done), len(questions))


def _prompt(engine: Engine, tokenizer: Tokenizer, task: Task, index: int) -> FewShotPrompt | None:
    return few_shot_prompt(
        task.questions.questions[index],
        task.questions.examples,
        tokenizer,
        most_tokens=engine.max_model_len - task.max_tokens,
        chat=task.chat,
    )


def _record(arm: str, index: int, shots: int, request: Request, tokenizer: Tokenizer, reference: str) -> Record:
    text = tokenizer.decode(request.output_token_ids)[: request.stop_rules.text_limit]
    return Record(
        arm=arm,
        index=index,
        text=text,
        token_ids=tuple(request.output_token_ids),
        finish_reason=str(request.finish_reason),
        shots=shots,
        strict=strict_match(text, reference),
        flexible=flexible_match(text, reference),
        drafts=request.statistics.num_drafts,
        accepted=request.statistics.num_accepted_tokens,
    )


def differences(records: Records, arms: list[str], count: int) -> Iterator[tuple[int, str, int]]:
    """(question, arm, token): where an arm's answer departs from the first arm's."""
    for index in range(count):
        expected = records.done[arms[0], index].token_ids
        for arm in arms[1:]:
            found = records.done[arm, index].token_ids
            if found != expected:
                pairs = zip(expected, found, strict=False)
                first = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(expected), len(found)))
                yield index, arm, first
