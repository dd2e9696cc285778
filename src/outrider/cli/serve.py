"""`outrider serve MODEL`: its options. Names may be spelt with underscores too."""

from __future__ import annotations

from typing import Annotated

import typer

from outrider.cli.engine_options import (
    ENGINE,
    ExactQat,
    GpuMemoryUtilization,
    IndexerDtype,
    KvCacheDtype,
    MaxModelLen,
    MaxNumBatchedTokens,
)
from outrider.cli.interrupts import slow_import

_SERVER, _SPECULATION = "Server", "Speculation"
SETTINGS = {"token_normalize_func": lambda name: name.replace("_", "-")}


def serve(
    model: Annotated[
        str | None, typer.Argument(help="Checkpoint folder or hub id (default: the one that ships).")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen at; others than this machine need 0.0.0.0.", rich_help_panel=_SERVER)
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.", rich_help_panel=_SERVER)] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="OUTRIDER_API_KEY", help="Key that clients must send.", rich_help_panel=_SERVER),
    ] = None,
    served_model_name: Annotated[
        list[str] | None,
        typer.Option(help="What clients call the model; may be given more than once.", rich_help_panel=_SERVER),
    ] = None,
    max_waiting: Annotated[
        int,
        typer.Option(
            min=0, help="Requests that may wait for a place; more are told to come back.", rich_help_panel=_SERVER
        ),
    ] = 256,
    drain_seconds: Annotated[
        float,
        typer.Option(min=0, max=3600, help="Time for requests to end after SIGTERM.", rich_help_panel=_SERVER),
    ] = 15.0,
    speculative_config: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help='e.g. {"method": "mtp", "num_speculative_tokens": 3}; speculation is off without it.',
            rich_help_panel=_SPECULATION,
        ),
    ] = None,
    max_model_len: MaxModelLen = None,
    max_num_seqs: Annotated[int, typer.Option(help="Requests that run at a time.", rich_help_panel=ENGINE)] = 8,
    max_num_batched_tokens: MaxNumBatchedTokens = 256,
    max_prefill_tokens: Annotated[
        int, typer.Option(help="Of them, for prompts while others decode.", rich_help_panel=ENGINE)
    ] = 256,
    gpu_memory_utilization: GpuMemoryUtilization = None,
    enable_prefix_caching: Annotated[
        bool,
        typer.Option(
            "--enable-prefix-caching/--no-enable-prefix-caching",
            help="Reuse computed prompts.",
            rich_help_panel=ENGINE,
        ),
    ] = True,
    seed: Annotated[
        int | None, typer.Option(help="Of requests that name none (default: drawn).", rich_help_panel=ENGINE)
    ] = None,
    kv_cache_dtype: KvCacheDtype = "auto",
    indexer_dtype: IndexerDtype = "fp4",
    exact_qat: ExactQat = False,
) -> None:
    """Serve DeepSeek-V4 over OpenAI's HTTP API."""
    from outrider.config import parse_engine_config, parse_numerics, parse_speculative_config

    speculation = None if speculative_config is None else parse_speculative_config(speculative_config)
    engine_config = parse_engine_config(
        {
            "max_model_len": max_model_len,
            "max_num_seqs": max_num_seqs,
            "max_num_batched_tokens": max_num_batched_tokens,
            "max_prefill_tokens": max_prefill_tokens,
            "gpu_memory_utilization": gpu_memory_utilization,
            "enable_prefix_caching": enable_prefix_caching,
            "seed": seed,
        }
    )
    numerics = parse_numerics(
        {"kv_cache_dtype": kv_cache_dtype, "indexer_dtype": indexer_dtype, "activation_fp8": exact_qat}
    )
    with slow_import():
        from outrider.cli.start_server import ServerOptions, start_server

    options = ServerOptions(
        host=host,
        port=port,
        api_key=api_key,
        names=tuple(served_model_name or ()),
        max_waiting=max_waiting,
        drain_seconds=drain_seconds,
    )
    start_server(model, options, speculation, engine_config, numerics)
