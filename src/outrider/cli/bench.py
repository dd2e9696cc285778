"""`outrider bench serve|latency|throughput|plot`: the options."""

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
    LoadFormat,
    MaxModelLen,
    MaxNumBatchedTokens,
    Model,
)
from outrider.cli.interrupts import slow_import

bench = typer.Typer(help="Measure speed: arms in alternation, with ratios and their spread.", no_args_is_help=True)
_WORK = "Workload"

Arms = Annotated[
    str,
    typer.Option(
        help="What is compared, ratios to the first: off, fixed:K (K drafts a step), auto (as many as pay), auto:K "
        "(at most K); with commas between.",
        rich_help_panel=_WORK,
    ),
]
Rounds = Annotated[int, typer.Option(min=1, max=1000, help="Timed windows of each arm.", rich_help_panel=_WORK)]
Dataset = Annotated[
    str,
    typer.Option(
        help="chat, code, prose, json, mixed, arithmetic, random (tokens that mean nothing: so does their acceptance), "
        'or a .jsonl file with "prompt" (or "question") and perhaps "max_tokens" in every line.',
        rich_help_panel=_WORK,
    ),
]
DatasetOrRandom = Annotated[
    str | None,
    typer.Option(
        help="As of `bench serve` (default: mixed; with --load-format dummy: random, which needs no tokenizer).",
        rich_help_panel=_WORK,
    ),
]
NumPrompts = Annotated[int, typer.Option(min=1, max=1_000_000, help="Requests in a window.", rich_help_panel=_WORK)]
OutputLen = Annotated[
    int, typer.Option("--output-len", "--max-tokens", min=1, help="Most tokens of an answer.", rich_help_panel=_WORK)
]
InputLen = Annotated[int, typer.Option(min=1, help="Tokens of a random prompt.", rich_help_panel=_WORK)]
LengthSpread = Annotated[
    float, typer.Option(help="Random lengths lie this share around the given ones.", rich_help_panel=_WORK)
]
Chat = Annotated[
    bool,
    typer.Option("--chat/--no-chat", help="Prompts are users' turns, or texts to continue.", rich_help_panel=_WORK),
]
IgnoreEos = Annotated[
    bool,
    typer.Option(
        "--ignore-eos", help="Go on after the end token; what comes then may loop, and flatter.", rich_help_panel=_WORK
    ),
]
Temperature = Annotated[float, typer.Option(min=0, help="0 is greedy.", rich_help_panel=_WORK)]
Seed = Annotated[int, typer.Option(min=0, help="Of sampling, arrivals, random data.", rich_help_panel=_WORK)]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="File for the result, as JSON.")]
JsonOutput = Annotated[bool, typer.Option("--json", help="Print the JSON object and nothing else.")]


@bench.command()
def serve(
    base_url: Annotated[
        str | None,
        typer.Option(help="A server that runs, up to /v1. Without it an `outrider serve` is started for every arm."),
    ] = None,
    served_model: Annotated[str | None, typer.Option(help="What the server calls the model (default: ask it).")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="OUTRIDER_API_KEY", help="Key of the server.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that an answer may pause.")] = 600.0,
    model: Model = None,
    concurrency: Annotated[
        str, typer.Option(help="Requests at a time, one load each; with commas between.", rich_help_panel=_WORK)
    ] = "1,2,4,8",
    request_rate: Annotated[
        str | None,
        typer.Option(help="Instead: arrivals a second (Poisson), one load each.", rich_help_panel=_WORK),
    ] = None,
    arms: Arms = "off,auto",
    rounds: Rounds = 3,
    dataset: Dataset = "mixed",
    num_prompts: NumPrompts = 16,
    output_len: OutputLen = 128,
    input_len: InputLen = 256,
    length_spread: LengthSpread = 0.0,
    chat: Chat = True,
    ignore_eos: IgnoreEos = False,
    temperature: Temperature = 0.0,
    seed: Seed = 0,
    max_model_len: MaxModelLen = None,
    max_num_seqs: Annotated[
        int | None,
        typer.Option(help="Requests that run at a time (default: the largest load).", rich_help_panel=ENGINE),
    ] = None,
    output: Output = None,
    json_output: JsonOutput = False,
) -> None:
    """Measure a server with OpenAI's API as its clients see it: any, or our own.

    With --base-url, several arms need an Outrider server that was started with speculation: they are sent as the
    field "speculation" of each request. One arm sends nothing of the kind, and measures any server.
    """
    with slow_import():
        from outrider.bench.window import Load
        from outrider.cli.bench_session import measure_servers, numbers, workload
        from outrider.config import ConfigError

    if base_url is not None and (model, max_model_len, max_num_seqs) != (None, None, None):
        raise ConfigError("--base-url: --model, --max-model-len and --max-num-seqs are for a server that is started")
    work = workload(
        arms,
        output,
        dataset=dataset,
        num_prompts=num_prompts,
        output_len=output_len,
        input_len=input_len,
        length_spread=length_spread,
        chat=chat,
        ignore_eos=ignore_eos,
        temperature=temperature,
        seed=seed,
        rounds=rounds,
        json_output=json_output,
    )
    if request_rate is None:
        loads = [Load(max(num_prompts, c), concurrency=c) for c in numbers(concurrency, "--concurrency")]
    else:
        loads = [Load(num_prompts, request_rate=r) for r in numbers(request_rate, "--request-rate", float)]
    places = max_num_seqs or max(load.concurrency or min(num_prompts, 64) for load in loads)
    options = [] if model is None else [model]
    options += ["--max-num-seqs", str(places), "--max-num-batched-tokens", str(max(256, places))]
    options += ["--max-waiting", str(max(load.num_prompts for load in loads)), "--no-enable-prefix-caching"]
    options += [] if max_model_len is None else ["--max-model-len", str(max_model_len)]
    measure_servers(
        work,
        loads,
        base_url=base_url,
        served_model=served_model,
        api_key=api_key,
        timeout=timeout,
        server_options=options,
    )


@bench.command()
def latency(
    model: Model = None,
    batch_size: Annotated[
        str, typer.Option(help="Requests that start together, one load each.", rich_help_panel=_WORK)
    ] = "1,4",
    arms: Arms = "off,auto",
    rounds: Rounds = 5,
    dataset: DatasetOrRandom = None,
    output_len: OutputLen = 128,
    input_len: InputLen = 256,
    length_spread: LengthSpread = 0.0,
    chat: Chat = True,
    ignore_eos: IgnoreEos = False,
    temperature: Temperature = 0.0,
    seed: Seed = 0,
    max_model_len: MaxModelLen = None,
    max_num_batched_tokens: MaxNumBatchedTokens = 256,
    gpu_memory_utilization: GpuMemoryUtilization = None,
    kv_cache_dtype: KvCacheDtype = "auto",
    indexer_dtype: IndexerDtype = "fp4",
    exact_qat: ExactQat = False,
    load_format: LoadFormat = "auto",
    output: Output = None,
    json_output: JsonOutput = False,
) -> None:
    """Measure one batch from its start to its end, in this process, without HTTP."""
    with slow_import():
        from outrider.bench.window import Load
        from outrider.cli.bench_session import measure_in_process, numbers, workload
        from outrider.config import parse_numerics

    loads = [Load(size, concurrency=size) for size in numbers(batch_size, "--batch-size")]
    work = workload(
        arms,
        output,
        dataset=dataset or ("random" if load_format == "dummy" else "mixed"),
        num_prompts=max(load.num_prompts for load in loads),
        output_len=output_len,
        input_len=input_len,
        length_spread=length_spread,
        chat=chat,
        ignore_eos=ignore_eos,
        temperature=temperature,
        seed=seed,
        rounds=rounds,
        json_output=json_output,
    )
    numerics = parse_numerics(
        {"kv_cache_dtype": kv_cache_dtype, "indexer_dtype": indexer_dtype, "activation_fp8": exact_qat}
    )
    options = {
        "max_model_len": max_model_len,
        "max_num_batched_tokens": max_num_batched_tokens,
        "gpu_memory_utilization": gpu_memory_utilization,
        "load_format": load_format,
    }
    measure_in_process(work, loads, model, options, numerics, "latency")


@bench.command()
def throughput(
    model: Model = None,
    num_prompts: NumPrompts = 16,
    max_num_seqs: Annotated[int, typer.Option(help="Requests that run at a time.", rich_help_panel=ENGINE)] = 8,
    arms: Arms = "off,auto",
    rounds: Rounds = 3,
    dataset: DatasetOrRandom = None,
    output_len: OutputLen = 128,
    input_len: InputLen = 256,
    length_spread: LengthSpread = 0.0,
    chat: Chat = True,
    ignore_eos: IgnoreEos = False,
    temperature: Temperature = 0.0,
    seed: Seed = 0,
    max_model_len: MaxModelLen = None,
    max_num_batched_tokens: MaxNumBatchedTokens = 256,
    gpu_memory_utilization: GpuMemoryUtilization = None,
    kv_cache_dtype: KvCacheDtype = "auto",
    indexer_dtype: IndexerDtype = "fp4",
    exact_qat: ExactQat = False,
    load_format: LoadFormat = "auto",
    output: Output = None,
    json_output: JsonOutput = False,
) -> None:
    """Measure how fast a heap of requests is done that are all there at the start, in this process."""
    with slow_import():
        from outrider.bench.window import Load
        from outrider.cli.bench_session import measure_in_process, workload
        from outrider.config import parse_numerics

    work = workload(
        arms,
        output,
        dataset=dataset or ("random" if load_format == "dummy" else "mixed"),
        num_prompts=num_prompts,
        output_len=output_len,
        input_len=input_len,
        length_spread=length_spread,
        chat=chat,
        ignore_eos=ignore_eos,
        temperature=temperature,
        seed=seed,
        rounds=rounds,
        json_output=json_output,
    )
    numerics = parse_numerics(
        {"kv_cache_dtype": kv_cache_dtype, "indexer_dtype": indexer_dtype, "activation_fp8": exact_qat}
    )
    options = {
        "max_num_seqs": max_num_seqs,
        "max_model_len": max_model_len,
        "max_num_batched_tokens": max_num_batched_tokens,
        "gpu_memory_utilization": gpu_memory_utilization,
        "load_format": load_format,
    }
    measure_in_process(work, [Load(num_prompts, concurrency=num_prompts)], model, options, numerics, "throughput")


@bench.command()
def plot(
    result: Annotated[Path, typer.Argument(help="A result file of the other commands.", exists=True, dir_okay=False)],
    stem: Annotated[
        Path | None, typer.Option("--output", "-o", help="The plots, without .png and .svg (default: beside it).")
    ] = None,
) -> None:
    """Draw throughput against per-user speed, and ratio against load, as PNG and SVG."""
    from outrider.cli.bench_session import draw

    draw(result, stem)
