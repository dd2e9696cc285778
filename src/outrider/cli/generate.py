"""`outrider generate PROMPT`: continue a text, or answer it, with or without speculation."""

from __future__ import annotations

import json
import secrets
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.cli.engine_options import (
    ENGINE,
    ExactQat,
    GpuMemoryUtilization,
    IndexerDtype,
    KvCacheDtype,
    MaxModelLen,
    MaxNumBatchedTokens,
    Model,
)
from outrider.cli.interrupts import slow_import

if TYPE_CHECKING:
    from outrider.cli.session import Session
    from outrider.cli.timed_run import TimedRun
    from outrider.config import SpeculativeConfig
    from outrider.engine.engine import Engine

_SAMPLING, _SPECULATION, _OUTPUT = "Sampling", "Speculation", "Output"


def generate(
    prompt: Annotated[str, typer.Argument(help="Text to continue; - reads it from standard input.")],
    model: Model = None,
    chat: Annotated[bool, typer.Option("--chat", help="Treat the prompt as a user's turn and answer it.")] = False,
    max_tokens: Annotated[int, typer.Option(help="Most tokens to generate.")] = 256,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Go on after the end token.")] = False,
    temperature: Annotated[float, typer.Option(help="0 is greedy.", rich_help_panel=_SAMPLING)] = 0.0,
    top_k: Annotated[int, typer.Option(help="Keep the k best tokens; 0 keeps all.", rich_help_panel=_SAMPLING)] = 0,
    top_p: Annotated[
        float, typer.Option(help="Keep the best tokens up to this mass.", rich_help_panel=_SAMPLING)
    ] = 1.0,
    min_p: Annotated[
        float, typer.Option(help="Keep tokens this likely relative to the best.", rich_help_panel=_SAMPLING)
    ] = 0.0,
    seed: Annotated[int | None, typer.Option(help="64 bits; drawn if not given.", rich_help_panel=_SAMPLING)] = None,
    speculative_config: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help='e.g. {"method": "mtp", "num_speculative_tokens": 3}: drafts a step, with "adaptive": true the most, '
            'and as many as pay; "auto" is 4, adaptive. Speculation is off without it.',
            rich_help_panel=_SPECULATION,
        ),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Run without and with speculation, and compare.", rich_help_panel=_SPECULATION),
    ] = False,
    pairs: Annotated[
        int, typer.Option(min=2, max=100, help="Timed runs of each arm in --compare.", rich_help_panel=_SPECULATION)
    ] = 3,
    max_model_len: MaxModelLen = None,
    max_num_seqs: Annotated[
        int, typer.Option(help="Requests at a time that memory is set aside for.", rich_help_panel=ENGINE)
    ] = 1,
    max_num_batched_tokens: MaxNumBatchedTokens = 256,
    gpu_memory_utilization: GpuMemoryUtilization = None,
    kv_cache_dtype: KvCacheDtype = "auto",
    indexer_dtype: IndexerDtype = "fp4",
    exact_qat: ExactQat = False,
    enable_prefix_caching: Annotated[
        bool,
        typer.Option(
            "--enable-prefix-caching/--no-enable-prefix-caching",
            help="Reuse computed prompts. Off here: one request has nobody to share with, and runs of --compare would "
            "skip their prompts.",
            rich_help_panel=ENGINE,
        ),
    ] = False,
    show_drafts: Annotated[
        bool | None,
        typer.Option(
            "--show-drafts/--no-show-drafts",
            help="Accepted drafts in green (default: on a terminal).",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    stats: Annotated[
        bool, typer.Option("--stats", help="Report speed and acceptance on stderr.", rich_help_panel=_OUTPUT)
    ] = False,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else.", rich_help_panel=_OUTPUT)
    ] = False,
) -> None:
    """Continue a text with DeepSeek-V4, drafting with its MTP layer if asked to."""
    from outrider.cli.prompt import read_prompt
    from outrider.config import parse_engine_config, parse_numerics
    from outrider.sampling.params import SamplingParams

    text = read_prompt(prompt, chat=chat)
    speculation = _speculation(speculative_config, compare)
    params = SamplingParams(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=secrets.randbits(64) if seed is None else seed,
        max_tokens=max_tokens,
        ignore_eos=ignore_eos,
    )
    options = parse_engine_config(
        {
            "max_model_len": max_model_len,
            "max_num_seqs": max_num_seqs,
            "max_num_batched_tokens": max_num_batched_tokens,
            "gpu_memory_utilization": gpu_memory_utilization,
            "enable_prefix_caching": enable_prefix_caching,
        }
    )
    numerics = parse_numerics(
        {"kv_cache_dtype": kv_cache_dtype, "indexer_dtype": indexer_dtype, "activation_fp8": exact_qat}
    )

    with slow_import():
        from outrider.cli.session import open_session

    session = open_session(
        model,
        text,
        params,
        speculation,
        chat=chat,
        options=options,
        numerics=numerics,
        engines=2 if compare else 1,
        quiet=json_output,
        show_drafts=show_drafts,
    )
    if compare:
        from outrider.cli.compare import compare_arms

        if not compare_arms(session, pairs):
            raise typer.Exit(1)
    else:
        _generate(session, stats)


def _speculation(text: str | None, compare: bool) -> SpeculativeConfig | None:
    from outrider.config import SpeculativeConfig, parse_speculative_config

    if text is None:
        return SpeculativeConfig(method="mtp", num_speculative_tokens=3, adaptive=False) if compare else None
    return parse_speculative_config(text)


def _generate(session: Session, stats: bool) -> None:
    """One run: text while it grows, or one JSON object."""
    from outrider.cli.timed_run import run_once

    engine = session.engine(session.speculation)
    if session.quiet:
        run = run_once(engine, session.prompt_token_ids, session.params)
        print(json.dumps(_report(session, run, engine)))
        return
    stream = session.text_stream()
    run = run_once(engine, session.prompt_token_ids, session.params, stream.push_step)
    stream.finish()
    if stats:
        print(_summary(session, run, engine), file=sys.stderr)


def _report(session: Session, run: TimedRun, engine: Engine) -> dict[str, Any]:
    from dataclasses import asdict

    from outrider.bench.environment import environment_report
    from outrider.cli.timed_run import statistics_report

    return {
        "text": session.tokenizer.decode(run.token_ids),
        "token_ids": list(run.token_ids),
        "finish_reason": run.finish_reason,
        "seed": run.seed,
        "prompt_tokens": len(session.prompt_token_ids),
        "tokens_per_second": run.tokens_per_second,
        "time_to_first_token": run.first_token_seconds,
        "statistics": statistics_report(run.statistics) if session.speculation else None,
        "depth": None if engine.depth_report is None else asdict(engine.depth_report),
        "acceptance": None if engine.acceptance_report is None else asdict(engine.acceptance_report),
        "model": session.model_name,
        **environment_report(),
    }


def _summary(session: Session, run: TimedRun, engine: Engine) -> str:
    from outrider.bench.distinct import distinct_share
    from outrider.cli.speculation_report import acceptance_lines, depth_lines

    speed = "-" if run.tokens_per_second is None else f"{run.tokens_per_second:.1f}"
    lines = [
        f"{len(session.prompt_token_ids)} prompt tokens, {len(run.token_ids)} generated ({run.finish_reason}), "
        f"seed {run.seed}",
        f"first token after {run.first_token_seconds:.2f} s, then {speed} tokens/s",
    ]
    if session.speculation is not None:
        statistics = run.statistics
        shares = ", ".join(f"{share:.2f}" for share in statistics.acceptance_per_position)
        distinct = distinct_share(run.token_ids)
        lines.append(
            f"acceptance length {statistics.acceptance_length:.2f}, by position {shares or '-'}"
            + ("" if distinct is None else f"; distinct 4-grams {distinct:.2f}")
        )
    if (acceptance := engine.acceptance_report) is not None:
        lines += acceptance_lines(acceptance)
    if (depth := engine.depth_report) is not None:
        lines += depth_lines(depth)
    lines.append(f"memory: {session.loaded.plan.describe()}")
    return "\n".join(lines)
