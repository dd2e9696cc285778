"""What rounding costs: every kind of it alone, against float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from outrider.config import ConfigError, EngineConfig, Numerics, SpeculativeConfig
from outrider.engine.engine import Engine
from outrider.engine.loading import LoadedModel
from outrider.engine.scoring import teacher_forced_logits
from outrider.evaluation.prompting import few_shot_prompt
from outrider.evaluation.records import Records
from outrider.evaluation.run import Task, answer_questions
from outrider.evaluation.summary import arm_summary
from outrider.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Variant:
    """numerics: how caches and activations are rounded; fp4_experts: the experts' weights are, on top."""

    name: str
    numerics: Numerics
    fp4_experts: bool = False


def variants() -> list[Variant]:
    """The reference first. Each of the next rounds one thing and leaves the rest in float32."""
    plain = Numerics.plain()

    def only(**fields: Any) -> Numerics:
        return plain.model_copy(update=fields)

    return [
        Variant("float32", plain),
        Variant("FP8 KV, rotated dims as computed", only(kv_cache_dtype="auto")),
        Variant("FP8 KV, rotated dims in BF16", only(kv_cache_dtype="fp8")),
        Variant("FP8 indexer", only(indexer_dtype="fp8")),
        Variant("FP4 indexer", only(indexer_dtype="fp4")),
        Variant("FP4 experts", plain, fp4_experts=True),
        Variant("FP8 activations", only(activation_fp8=True)),
        Variant("default", Numerics()),
        Variant("as trained (--exact-qat)", Numerics.exact_qat()),
    ]


LoadVariant = Callable[[Variant], LoadedModel]


def measure(
    load: LoadVariant,
    tokenizer: Tokenizer,
    task: Task,
    config: EngineConfig,
    depth: int,
    on_variant: Callable[[str, dict[str, Any]], None],
) -> None:
    """Calls on_variant(name, figures) for each variant, as it is done.

    Logits: teacher-forced over questions with their reference answers, at the answers' tokens. logits_error: root mean
    square of the difference over the standard deviation of the reference's logits (both over the vocabulary).
    Acceptance and exact match: answers that the variant itself generates, `depth` drafts a step.
    """
    speculation = SpeculativeConfig(method="mtp", num_speculative_tokens=depth, adaptive=False)
    reference: list[Tensor] = []
    for variant in variants():
        loaded = load(variant)
        figures: dict[str, Any] = _compare(reference, loaded.engine(engine_config=config), tokenizer, task)
        records = Records(None, {})
        engine = loaded.engine(speculation, config, tokenizer=tokenizer)
        answer_questions(engine, tokenizer, task, records, variant.name)
        figures |= arm_summary(list(records.done.values()), len(task.questions.examples))
        on_variant(variant.name, figures)


def _compare(reference: list[Tensor], engine: Engine, tokenizer: Tokenizer, task: Task) -> dict[str, Any]:
    """Fills an empty reference. Sums are taken text by text: logits of all texts may not fit into memory twice."""
    first = not reference
    squares = variance = 0.0
    largest, agree, count = 0.0, 0, 0
    for number, (ids, start) in enumerate(_texts(engine, tokenizer, task)):
        own = teacher_forced_logits(engine, ids)[start - 1 : -1]
        if first:
            reference.append(own)
        expected = reference[number]
        difference = own - expected
        squares += float(difference.square().sum(dtype=torch.float64))
        variance += float((expected - expected.mean(-1, keepdim=True)).square().sum(dtype=torch.float64))
        largest = max(largest, float(difference.abs().max()))
        agree += int((own.argmax(-1) == expected.argmax(-1)).sum())
        count += len(own)
    if not count:
        raise ConfigError("no question fits the context with room for --max-tokens; a larger --max-model-len may help")
    return {
        "positions": count,
        "logits_error": (squares / variance) ** 0.5,
        "largest_difference": largest,
        "argmax_agreement": agree / count,
    }


def _texts(engine: Engine, tokenizer: Tokenizer, task: Task) -> Sequence[tuple[list[int], int]]:
    """(token ids, prompt length) of the questions that fit, with their reference answers."""
    found = []
    for question in task.questions.questions:
        most = engine.max_model_len - task.max_tokens
        prompt = few_shot_prompt(question, task.questions.examples, tokenizer, most_tokens=most, chat=task.chat)
        answer = tokenizer.encode(question.answer if task.chat else f" {question.answer}")[: task.max_tokens]
        if prompt is not None:
            found.append(([*prompt.token_ids, *answer], len(prompt.token_ids)))
    return found
