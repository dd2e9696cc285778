"""`outrider eval DATASET`: the options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outrider.cli.engine_options import (
    ENGINE,
    ExactQat,
    GpuMemoryUtilization,
    IndexerDtype,
    KvCacheDtype,
    MaxModelLen,
    Model,
)
from outrider.cli.interrupts import slow_import

_TASK, _ROUNDING = "Task", "Rounding"


def evaluate(
    dataset: Annotated[
        str,
        typer.Argument(help="A JSONL file with question and answer in every line, as GSM8K has them; or arithmetic."),
    ] = "arithmetic",
    model: Model = None,
    examples: Annotated[
        Path | None,
        typer.Option(
            help="File that the examples are taken from (default: the first lines of the dataset, which then are not "
            "asked).",
            rich_help_panel=_TASK,
        ),
    ] = None,
    shots: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=100,
            help="Examples in front of a question (default: 8; of arithmetic none, with --quantisation 4).",
            rich_help_panel=_TASK,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Questions (default: all; of arithmetic 200).", rich_help_panel=_TASK),
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Ask in a user's turn.", rich_help_panel=_TASK)] = False,
    max_tokens: Annotated[int, typer.Option(min=1, help="Of an answer.", rich_help_panel=_TASK)] = 256,
    arms: Annotated[
        str,
        typer.Option(help="off, fixed:K, auto, auto:K with commas between; all must give the same answers."),
    ] = "off,auto",
    records: Annotated[
        Path | None,
        typer.Option(help="File that every answer is written to; with the same one a run that was cut goes on."),
    ] = None,
    quantisation: Annotated[
        bool,
        typer.Option(
            "--quantisation",
            help="Instead of arms: every rounding alone against float32, in logits, answers and acceptance.",
            rich_help_panel=_ROUNDING,
        ),
    ] = False,
    depth: Annotated[
        int, typer.Option(min=1, max=16, help="Drafts a step in --quantisation.", rich_help_panel=_ROUNDING)
    ] = 3,
    max_model_len: MaxModelLen = None,
    max_num_seqs: Annotated[int, typer.Option(min=1, help="Questions at a time.", rich_help_panel=ENGINE)] = 8,
    gpu_memory_utilization: GpuMemoryUtilization = None,
    kv_cache_dtype: KvCacheDtype = "auto",
    indexer_dtype: IndexerDtype = "fp4",
    exact_qat: ExactQat = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File for the summary, as JSON.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the JSON object and nothing else.")] = False,
) -> None:
    """Measure how many answers are right, with every arm, and that all arms give the same ones."""
    with slow_import():
        from outrider.cli.eval_session import EvalOptions, evaluate_arms, evaluate_quantisation
        from outrider.config import ConfigError, parse_numerics

    options = EvalOptions(
        model=model,
        dataset=dataset,
        examples=examples,
        # with short prompts the indexer has nothing to choose from, and its rounding does nothing
        shots=4 if quantisation and shots is None else shots,
        limit=limit,
        chat=chat,
        max_tokens=max_tokens,
        output=output,
        json_output=json_output,
    )
    engine = {
        "max_model_len": max_model_len,
        "max_num_seqs": max_num_seqs,
        "gpu_memory_utilization": gpu_memory_utilization,
    }
    numerics = parse_numerics(
        {"kv_cache_dtype": kv_cache_dtype, "indexer_dtype": indexer_dtype, "activation_fp8": exact_qat}
    )
    if not quantisation:
        evaluate_arms(options, arms, records, engine, numerics)
        return
    if records is not None or numerics != parse_numerics({}):
        raise ConfigError("--quantisation: it chooses the rounding itself, and keeps no --records")
    evaluate_quantisation(options, depth, engine)
