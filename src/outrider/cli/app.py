"""The commands and their names."""

from __future__ import annotations

from typing import Annotated

import typer

from outrider.cli.bench import bench
from outrider.cli.chat import chat
from outrider.cli.eval import evaluate
from outrider.cli.generate import generate
from outrider.cli.interrupts import slow_import
from outrider.cli.serve import SETTINGS, serve

app = typer.Typer(add_completion=False)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"outrider {version('outrider')}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """DeepSeek-V4 with multi-token-prediction speculative decoding: the same text, drafted or not."""


app.command()(generate)
app.command(name="eval")(evaluate)
app.add_typer(bench, name="bench")
app.command()(chat)
app.command(context_settings=SETTINGS)(serve)


@app.command()
def inspect(
    model: Annotated[str, typer.Argument(help="Checkpoint folder, path to a config.json, or hub id.")],
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show a model's architecture, size by part, drafter and memory per context token."""
    with slow_import():
        from outrider.cli.inspect import inspect as show

    show(model, json_output)


@app.command()
def kernels(
    arch: Annotated[str, typer.Option(help="gfx942, gfx950 or sm_90.")],
    every: Annotated[bool, typer.Option("--all", help="All configurations, not one a kernel.")] = False,
) -> None:
    """Compile the GPU kernels for an architecture, without a GPU, and show what they need."""
    with slow_import():
        from outrider.cli.kernels import kernels as show

    show(arch, every)


@app.command()
def doctor(
    self_test: Annotated[bool, typer.Option("--self-test/--no-self-test", help="Run the ten-second test.")] = True,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show platform, backends, memory and versions, and test them; exit code 1 if something is wrong."""
    with slow_import():
        from outrider.cli.doctor import doctor as examine

    examine(self_test, json_output)
