"""`outrider bench`: from options to a sweep, its file and its table."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from outrider.assets import shipped_model
from outrider.bench import in_process, prompts, table
from outrider.bench.arms import Arm, deepest, parse_arms
from outrider.bench.environment import result_header
from outrider.bench.prompts import BenchPrompt
from outrider.bench.server_process import server_process
from outrider.bench.summary import cell_report, same_output
from outrider.bench.sweep import RunWindow, sweep
from outrider.bench.window import Load, Window
from outrider.cli.terminal import progress_bar
from outrider.config import ConfigError, EngineConfig, Numerics, parse_engine_config
from outrider.engine.loading import load_model, load_tokenizer, open_checkpoint
from outrider.evaluation import arithmetic
from outrider.sampling.params import SamplingParams

RANDOM = "random"  # token ids: exact lengths, and no tokenizer
ARITHMETIC = "arithmetic"  # made by a generator, held-out problems: what the shipped model can do


@dataclass(frozen=True)
class Workload:
    """What is asked and how often; `output`: file for the result."""

    dataset: str
    num_prompts: int
    output_len: int
    input_len: int
    length_spread: float
    chat: bool
    ignore_eos: bool
    temperature: float
    seed: int
    rounds: int
    arms: list[Arm]
    output: Path | None
    json_output: bool

    def prompts(self, count: int, vocab_size: int | None) -> list[BenchPrompt]:
        """Raises ConfigError."""
        if self.dataset == RANDOM:
            return prompts.random_tokens(
                count,
                input_len=self.input_len,
                output_len=self.output_len,
                spread=self.length_spread,
                seed=self.seed,
                vocab_size=vocab_size,
            )
        if self.dataset == ARITHMETIC:
            texts = [problem.question for problem in arithmetic.problems(self.seed, count, "heldout")]
            return prompts.from_texts(texts, count, self.output_len)
        path = Path(self.dataset)
        if path.suffix == ".jsonl" or path.is_file():
            return prompts.from_jsonl(path, count, self.output_len)
        return prompts.from_texts(prompts.built_in(self.dataset), count, self.output_len)

    @property
    def forced_length(self) -> bool:
        """Random tokens are for exact lengths."""
        return self.ignore_eos or self.dataset == RANDOM


def workload(arms: str, output: Path | None, **fields: Any) -> Workload:
    """Raises ConfigError for what no file is needed to refuse."""
    if output is not None and not output.parent.is_dir():
        raise ConfigError(f"--output: {output.parent} is no folder")
    return Workload(arms=parse_arms(arms), output=output, **fields)


def numbers(text: str, option: str, kind: type[int] | type[float] = int) -> list[Any]:
    """Positive numbers with commas between. Raises ConfigError."""
    try:
        found = [kind(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < number < 1e6 for number in found):
        raise ConfigError(f"{option}: {text!r} is no list of positive numbers with commas between")
    return found


# ------------------------------------------------------------------------------------------------ in process


def measure_in_process(
    work: Workload, loads: Sequence[Load], model: str | None, options: dict[str, Any], numerics: Numerics, kind: str
) -> None:
    """Engines of this process, one an arm, on the same weights. Exit code 1 if answers differ."""
    load_format = parse_engine_config({"load_format": options["load_format"]}).load_format
    checkpoint = open_checkpoint(shipped_model() if model is None else model, load_format)
    asked = work.prompts(max(load.num_prompts for load in loads), checkpoint.config.vocab_size)
    tokenizer = load_tokenizer(checkpoint) if work.dataset != RANDOM else None
    ids = [prompt.token_ids(tokenizer, chat=work.chat) for prompt in asked]
    params = [
        SamplingParams(
            max_tokens=prompt.max_tokens,
            temperature=work.temperature,
            seed=work.seed + number,
            ignore_eos=work.forced_length,
        )
        for number, prompt in enumerate(asked)
    ]
    longest = max(len(own) + prompt.max_tokens for own, prompt in zip(ids, asked, strict=True))
    config = _engine_config(options, loads, min(longest, checkpoint.config.max_position_embeddings))
    with progress_bar("loading", hidden=work.json_output, byte_count=True) as progress:
        loaded = load_model(
            checkpoint,
            speculative_config=deepest(work.arms),
            engine_config=config,
            numerics=numerics,
            progress=progress,
            engines=len(work.arms),
        )
    engines = {arm.name: loaded.engine(arm.speculation) for arm in work.arms}

    def run(arm: Arm, load: Load) -> Window:
        count = load.num_prompts
        return in_process.run_window(engines[arm.name], ids[:count], params[:count], load, seed=work.seed)

    name = checkpoint.folder.name if model is None else model
    _measure(work, loads, run, kind=kind, model=name, extra={"engine": loaded.options.model_dump()})


def _engine_config(options: dict[str, Any], loads: Sequence[Load], longest: int) -> EngineConfig:
    """Room for the largest load, unless it is said otherwise; without prefix reuse, which would skip prompts."""
    places = max(load.concurrency or load.num_prompts for load in loads)
    fields = {"max_num_seqs": places, "max_model_len": longest, "enable_prefix_caching": False}
    fields |= {name: value for name, value in options.items() if value is not None}
    fields["max_num_batched_tokens"] = max(fields["max_num_batched_tokens"], fields["max_num_seqs"])
    return parse_engine_config(fields)


# ------------------------------------------------------------------------------------------------ over HTTP


def measure_servers(
    work: Workload,
    loads: Sequence[Load],
    *,
    base_url: str | None,
    served_model: str | None,
    api_key: str | None,
    timeout: float,
    server_options: Sequence[str],
) -> None:
    """A server that runs already, or one for each arm that is started for it. Exit code 1 if answers differ."""
    try:
        from outrider.bench import http_client
    except ModuleNotFoundError as error:
        raise ConfigError(f"bench: {error.name} is not installed; `pip install 'outrider[bench]'` brings it") from None
    asked = work.prompts(max(load.num_prompts for load in loads), None)
    with ExitStack() as stack:
        if base_url is None:
            urls = {
                arm.name: stack.enter_context(server_process([*server_options, *_speculation_option(arm)]))
                for arm in work.arms
            }
        else:
            urls = {arm.name: base_url.rstrip("/") for arm in work.arms}
        names = {arm: served_model or http_client.served_model(url, api_key) for arm, url in urls.items()}
        asks_server = base_url is not None and len(work.arms) > 1

        def run(arm: Arm, load: Load) -> Window:
            fields: dict[str, Any] = {"temperature": work.temperature, "seed": work.seed}
            if work.forced_length:
                fields["ignore_eos"] = True
            if asks_server:
                fields["speculation"] = arm.request_field
            target = http_client.Target(urls[arm.name], names[arm.name], api_key, work.chat, fields, timeout)
            window = asyncio.run(http_client.run_window(target, asked[: load.num_prompts], load, seed=work.seed))
            if all(request.error is not None for request in window.requests):
                raise ConfigError(f"{arm.name}: every request failed: {window.requests[0].error}")
            return window

        extra = {"base_url": base_url, "server_options": list(server_options)}
        _measure(work, loads, run, kind="serve", model=next(iter(names.values())), extra=extra)


def _speculation_option(arm: Arm) -> list[str]:
    return [] if arm.speculation is None else ["--speculative-config", arm.speculation.model_dump_json()]


# ------------------------------------------------------------------------------------------------ results


def _measure(
    work: Workload, loads: Sequence[Load], run: RunWindow, *, kind: str, model: str, extra: dict[str, Any]
) -> None:
    with progress_bar("measuring", hidden=work.json_output) as progress:
        cells = sweep(work.arms, loads, work.rounds, run, progress)
    several = len(work.arms) * work.rounds > 1
    report = {
        "kind": kind,
        "model": model,
        "dataset": {
            "name": work.dataset,
            "num_prompts": max(load.num_prompts for load in loads),
            "max_tokens": work.output_len,
            "input_len": work.input_len if work.dataset == RANDOM else None,
            "length_spread": work.length_spread if work.dataset == RANDOM else None,
            "chat": work.chat,
            "ignore_eos": work.forced_length,
        },
        "temperature": work.temperature,
        "seed": work.seed,
        "rounds": work.rounds,
        "arms": {arm.name: None if arm.speculation is None else arm.speculation.model_dump() for arm in work.arms},
        **extra,
        "distinct_4grams_of": "words" if kind == "serve" else "tokens",
        "same_output": all(same_output(cell) for cell in cells) if several else None,
        "cells": [cell_report(cell) for cell in cells],
        **result_header(),
    }
    text = json.dumps(report, indent=1)
    if work.output is not None:
        work.output.write_text(text + "\n", encoding="utf-8")
    if work.json_output:
        print(text)
    else:
        table.show(report, Console(file=sys.stdout, width=None if sys.stdout.isatty() else 200))
        if work.output is not None:
            print(f"written to {work.output}")
    if report["same_output"] is False:
        raise typer.Exit(1)


def draw(path: Path, stem: Path | None, write: Callable[[str], None] = print) -> None:
    """`bench plot`: the plots of a result file, beside it unless told otherwise."""
    from outrider.bench.plot import plot, read_result

    for made in plot(read_result(path), stem or path.with_suffix("")):
        write(f"written to {made}")
