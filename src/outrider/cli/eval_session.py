"""`outrider eval`: from options to answers, a summary and an exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

from outrider.assets import shipped_model
from outrider.bench.arms import deepest, parse_arms
from outrider.bench.environment import result_header
from outrider.checkpoint.reader import Checkpoint
from outrider.cli.terminal import progress_bar
from outrider.config import ConfigError, EngineConfig, Numerics, SpeculativeConfig, parse_engine_config
from outrider.engine.loading import LoadedModel, load_model, load_tokenizer
from outrider.evaluation.quantisation import Variant, measure, variants
from outrider.evaluation.questions import QuestionSet, from_file, generated
from outrider.evaluation.records import Records
from outrider.evaluation.run import Task, answer_questions, differences
from outrider.evaluation.summary import arm_summary
from outrider.ops.formats import dequantize_fp4_block, quantize_fp4_block

ARITHMETIC, ARITHMETIC_QUESTIONS = "arithmetic", 200


@dataclass(frozen=True)
class EvalOptions:
    """shots None: 8 for a file, none for the arithmetic set. limit None: all, of the arithmetic set 200."""

    model: str | None
    dataset: str
    examples: Path | None
    shots: int | None
    limit: int | None
    chat: bool
    max_tokens: int
    output: Path | None
    json_output: bool

    def task(self) -> Task:
        """Raises ConfigError."""
        return Task(self._questions(), self.max_tokens, self.chat)

    def _questions(self) -> QuestionSet:
        if self.dataset != ARITHMETIC:
            return from_file(Path(self.dataset), self.examples, 8 if self.shots is None else self.shots, self.limit)
        if self.examples is not None:
            raise ConfigError("--examples: the arithmetic set brings its own")
        return generated(self.shots or 0, self.limit or ARITHMETIC_QUESTIONS)

    def header(self, task: Task, checkpoint: Checkpoint) -> dict[str, Any]:
        """What answers depend on; a file of records made under another one is not continued."""
        return {
            "model": checkpoint.folder.name if self.model is None else self.model,
            "dataset": task.questions.name,
            "questions": task.questions.digest,
            "num_questions": len(task.questions.questions),
            "shots": len(task.questions.examples),
            "chat": task.chat,
            "max_tokens": task.max_tokens,
        }


def open_checkpoint(model: str | None) -> Checkpoint:
    return Checkpoint.open(shipped_model() if model is None else model)


def evaluate_arms(
    options: EvalOptions, arms_text: str, records_path: Path | None, engine: dict[str, Any], numerics: Numerics
) -> None:
    """Exit code 1 when an arm's answers differ from the first one's."""
    task, arms = options.task(), parse_arms(arms_text)
    checkpoint = open_checkpoint(options.model)
    config = _engine_config(engine)
    settings = options.header(task, checkpoint) | {"numerics": numerics.model_dump()}
    # a prompt's examples depend on the context, so that answers do
    settings["max_model_len"] = config.context_of(checkpoint.config)
    records = Records(records_path, settings)
    resumed = len(records.done)
    tokenizer = load_tokenizer(checkpoint)
    loaded = _load(options, checkpoint, deepest(arms), config, numerics, engines=1)
    for arm in arms:
        with progress_bar(arm.name, hidden=options.json_output) as progress:
            own = loaded.engine(arm.speculation, tokenizer=tokenizer)
            answer_questions(own, tokenizer, task, records, arm.name, progress)
    names, count = [arm.name for arm in arms], len(task.questions.questions)
    found = list(differences(records, names, count))
    report = {
        "kind": "eval",
        **settings,
        "resumed": resumed,
        "same_answers": not found if len(arms) > 1 else None,
        "differences": [{"question": i, "arm": arm, "token": token} for i, arm, token in found],
        "arms": {name: arm_summary([records.done[name, i] for i in range(count)], settings["shots"]) for name in names},
        **result_header(),
    }
    _publish(options, report, lambda console: _show_arms(report, console))
    if found:
        raise typer.Exit(1)


def evaluate_quantisation(options: EvalOptions, depth: int, engine: dict[str, Any]) -> None:
    """The table of what each rounding costs."""
    task = options.task()
    checkpoint = open_checkpoint(options.model)
    checkpoint.require_drafter("mtp")
    config = _engine_config(engine)
    tokenizer = load_tokenizer(checkpoint)
    rows: dict[str, dict[str, Any]] = {}
    speculation = SpeculativeConfig(method="mtp", num_speculative_tokens=depth, adaptive=False)

    def load(variant: Variant) -> LoadedModel:
        rewrite = _fp4_experts if variant.fp4_experts else None
        # two engines a variant, one after the other; their caches may be alive at the same time
        return _load(options, checkpoint, speculation, config, variant.numerics, engines=2, rewrite=rewrite)

    with progress_bar("variants", hidden=options.json_output) as progress:

        def done(name: str, figures: dict[str, Any]) -> None:
            rows[name] = figures
            if progress is not None:
                progress(len(rows), len(variants()))

        measure(load, tokenizer, task, config, depth, done)
    report = {
        "kind": "quantisation",
        **options.header(task, checkpoint),
        "num_speculative_tokens": depth,
        "expert_dtype_of_the_checkpoint": checkpoint.config.expert_dtype,
        "variants": rows,
        **result_header(),
    }
    _publish(options, report, lambda console: _show_variants(report, console))


def _fp4_experts(name: str, weight: Tensor) -> Tensor:
    """FP4 and back, as stored in a checkpoint; the shared expert and everything else stay."""
    return dequantize_fp4_block(*quantize_fp4_block(weight)) if ".experts." in name else weight


def _engine_config(options: dict[str, Any]) -> EngineConfig:
    return parse_engine_config({**options, "max_num_batched_tokens": max(256, options["max_num_seqs"])})


def _load(
    options: EvalOptions,
    checkpoint: Checkpoint,
    speculation: SpeculativeConfig | None,
    config: EngineConfig,
    numerics: Numerics,
    *,
    engines: int,
    rewrite: Callable[[str, Tensor], Tensor] | None = None,
) -> LoadedModel:
    return load_model(
        checkpoint,
        speculative_config=speculation,
        engine_config=config,
        numerics=numerics,
        engines=engines,
        rewrite=rewrite,
    )


def _publish(options: EvalOptions, report: dict[str, Any], show: Callable[[Console], None]) -> None:
    text = json.dumps(report, indent=1)
    if options.output is not None:
        options.output.write_text(text + "\n", encoding="utf-8")
    if options.json_output:
        print(text)
    else:
        show(Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160))


# ------------------------------------------------------------------------------------------------ for people


def _show_arms(report: dict[str, Any], console: Console) -> None:
    table = _table("arm", "exact match", "last number", "acceptance length", "distinct 4-grams", "not ended")
    for name, arm in report["arms"].items():
        table.add_row(
            name,
            _with_error(arm["exact_match"]),
            _with_error(arm["flexible_match"]),
            _number(arm["acceptance_length"], 2),
            _number(arm["distinct_4grams"], 2),
            str(arm["not_ended"]),
        )
    console.print(table)
    for line in _remarks(report, next(iter(report["arms"].values()))):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _remarks(report: dict[str, Any], arm: dict[str, Any]) -> list[str]:
    lines = [
        f"{report['model']}; {report['num_questions']} questions of {report['dataset']}, {report['shots']} examples "
        "in front; greedy; standard errors of the mean"
    ]
    if arm["fewer_shots"]:
        lines.append(
            f"{arm['fewer_shots']} prompts got fewer than {report['shots']} examples (at least {arm['least_shots']}), "
            f"to fit a context of {report['max_model_len']} with {report['max_tokens']} tokens of answer"
        )
    if arm["too_long"]:
        lines.append(f"{arm['too_long']} questions do not fit the context at all, and count as wrong")
    if report["resumed"]:
        lines.append(f"{report['resumed']} answers were there already")
    if report["same_answers"] is not None:
        lines.append(f"answers of all arms are the same: {'yes' if report['same_answers'] else 'NO'}")
    for item in report["differences"][:3]:
        lines.append(f"  question {item['question']}: {item['arm']} departs at token {item['token']}")
    return lines


def _show_variants(report: dict[str, Any], console: Console) -> None:
    table = _table("rounding", "logits error", "same best token", "exact match", "acceptance length")
    for name, row in report["variants"].items():
        table.add_row(
            name,
            f"{row['logits_error']:.4f}",
            f"{row['argmax_agreement']:.4f}",
            _with_error(row["exact_match"]),
            _number(row["acceptance_length"], 2),
        )
    console.print(table)
    first = next(iter(report["variants"].values()))
    lines = [
        f"{report['model']}; {report['num_questions']} questions of {report['dataset']}, {first['positions']} positions"
        f" of reference answers; {report['num_speculative_tokens']} drafts a step",
        "logits error: root mean square of the difference over the standard deviation of the float32 logits",
    ]
    if report["expert_dtype_of_the_checkpoint"] == "fp4":
        lines.append("the experts of this checkpoint are FP4 on disk, in every row: rounding them again does nothing")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(titles[0])
    for title in titles[1:]:
        table.add_column(title, justify="right")
    return table


def _with_error(accuracy: dict[str, float | None]) -> str:
    error = accuracy["standard_error"]
    return f"{accuracy['value']:.3f}" + ("" if error is None else f" ± {error:.3f}")


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
