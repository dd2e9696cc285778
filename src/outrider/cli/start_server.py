"""`outrider serve`: from its options to a server that runs."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass

from outrider.assets import shipped_model
from outrider.checkpoint.reader import Checkpoint
from outrider.cli.terminal import progress_bar
from outrider.config import ConfigError, EngineConfig, Numerics, SpeculativeConfig
from outrider.engine.loading import load_model, load_tokenizer

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class ServerOptions:
    """names: what clients may call the model; none: its own. max_waiting: see `ServedModel`."""

    host: str
    port: int
    api_key: str | None
    names: tuple[str, ...]
    max_waiting: int
    drain_seconds: float


def start_server(
    model: str | None,
    options: ServerOptions,
    speculation: SpeculativeConfig | None,
    engine_config: EngineConfig,
    numerics: Numerics,
) -> None:
    """Runs until it is told to end. Raises ConfigError, CheckpointError and StartError, before weights are read
    wherever that is possible."""
    if options.api_key is not None and not options.api_key.strip():
        raise ConfigError("--api-key: it is empty")
    try:
        from outrider.server.app import build_app
        from outrider.server.served_model import ServedModel
        from outrider.server.serving import bound_socket, serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "outrider":
            raise
        raise ConfigError(f"serve: {error.name} is not installed; `pip install 'outrider[server]'` brings it") from None

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("outrider").setLevel(logging.INFO)  # plans, the self-check, speculation turning off and on
    with bound_socket(options.host, options.port) as bound:
        checkpoint = Checkpoint.open(shipped_model() if model is None else model)
        engine_config.context_of(checkpoint.config)
        tokenizer = load_tokenizer(checkpoint)
        with progress_bar("loading", hidden=False, byte_count=True) as progress:
            loaded = load_model(
                checkpoint,
                speculative_config=speculation,
                engine_config=engine_config,
                numerics=numerics,
                progress=progress,
            )
        engine = loaded.engine(speculation, tokenizer=tokenizer)
        names = options.names or (checkpoint.folder.name if model is None else model,)
        served = ServedModel(engine, tokenizer, names, max_waiting=options.max_waiting)
        host, port = bound.getsockname()[:2]

        def ready() -> None:
            print(_greeting(served.name, host, port, served.depth, served.max_model_len), file=sys.stderr, flush=True)

        if host not in LOOPBACK and options.api_key is None:
            print(f"outrider: {host} can be reached from other machines, and there is no --api-key", file=sys.stderr)
        app = build_app(served, api_key=options.api_key)
        serve(served, app, bound, drain_seconds=options.drain_seconds, ready=ready)


def _greeting(name: str, host: str, port: int, depth: int, context: int) -> str:
    address = f"[{host}]" if ":" in host else host
    drafts = f"up to {depth} drafts a step" if depth else "off"
    return f"serving {name} at http://{address}:{port}/v1 (speculation: {drafts}; context: {context} tokens)"
