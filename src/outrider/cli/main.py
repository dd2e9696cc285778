"""Entry point of the `outrider` command, and the one place where errors become exit codes.

0 done; 1 the comparison found a difference; 2 the user's input cannot be served (one sentence on stderr);
130 interrupted; 141 the reader of stdout went away. A traceback means a bug of ours.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from outrider.cli.interrupts import INTERRUPTED

USER_ERROR, CLOSED_PIPE = 2, 141


def main() -> NoReturn:
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code."""
    try:
        _prepare_stdout()
        _invoke(list(arguments) or ["--help"])
        sys.stdout.flush()
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _abandon_stdout()
        return CLOSED_PIPE
    except SystemExit:  # what rich does about a closed pipe; nothing else here raises it
        return CLOSED_PIPE
    except Exception as error:
        code = getattr(error, "exit_code", None)
        if code is not None and not hasattr(error, "format_message"):
            return int(code)  # typer.Exit
        sentence = describe(error)
        if sentence is None:
            raise
        print(f"outrider: {sentence}", file=sys.stderr)
        return USER_ERROR
    return 0


def _invoke(arguments: list[str]) -> None:
    import typer

    from outrider.cli.app import app

    # not app(): typer's own runner would print usage errors in a box and swallow closed pipes
    command = typer.main.get_command(app)
    with command.make_context("outrider", arguments) as context:
        command.invoke(context)


def describe(error: Exception) -> str | None:
    """What the user is told, in one line; None for an error that is not the user's."""
    if hasattr(error, "format_message"):  # a usage error of the command line parser
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "outrider"
        return _one_line(f"{error.format_message().rstrip('.')} (see {path} --help)")
    if type(error).__module__.partition(".")[0] == "outrider":  # every error class of ours is written for people
        return _one_line(str(error))
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename is not None else ""
        return _one_line(f"{where}{error.strerror or error}")
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):  # torch raises RuntimeError
        return "out of memory; a smaller --max-model-len, or a smaller model, needs less"
    return None


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _prepare_stdout() -> None:
    """A closed stdout swallows, and one that is not UTF-8 shows "?" for what it lacks."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None and sys.stdout.encoding.lower() not in ("utf-8", "utf8"):
        reconfigure(errors="replace")


def _abandon_stdout() -> None:
    """Lets the interpreter flush what is left into nothing when it exits."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
