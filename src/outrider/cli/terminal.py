"""What people see: a text that grows, drafts in colour, a bar while weights load."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from outrider.engine.request import StepOutput
    from outrider.text.tokenizer import Tokenizer

_REDRAW_SECONDS = 0.05
GREEN, RESET = "\x1b[32m", "\x1b[0m"
# a model may write any byte: control characters must not reach a terminal
_CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def wants_colour(show_drafts: bool | None, out: TextIO) -> bool:
    """--show-drafts and --no-show-drafts decide; else a terminal shows them, unless NO_COLOR is set."""
    if show_drafts is not None:
        return show_drafts
    return out.isatty() and not os.environ.get("NO_COLOR")


def visible(text: str) -> str:
    """Text that cannot steer a terminal."""
    return text.translate(_CONTROLS)


class TextStream:
    """Writes the text of a request as its tokens come; text of accepted drafts is green if `colour` is set."""

    def __init__(self, tokenizer: Tokenizer, out: TextIO, *, colour: bool) -> None:
        from outrider.text.tokenizer import IncrementalDetokenizer

        self._detokenizer = IncrementalDetokenizer(tokenizer)
        self._out = out
        self._colour = colour
        self._is_terminal = out.isatty()

    def push_step(self, step: StepOutput) -> None:
        """Writes what a step's tokens complete; the first `accepted_drafts` of them had been drafted."""
        accepted = step.accepted_drafts
        for ids, drafted in ((step.token_ids[:accepted], True), (step.token_ids[accepted:], False)):
            if ids:
                self._write(self._detokenizer.push(ids), drafted)
        self._out.flush()

    def finish(self) -> None:
        """The end of the text and a line end."""
        self._write(self._detokenizer.finish() + "\n", False)
        self._out.flush()

    def _write(self, piece: str, drafted: bool) -> None:
        if self._is_terminal:
            piece = visible(piece)
        if piece:
            self._out.write(f"{GREEN}{piece}{RESET}" if drafted and self._colour else piece)


@contextmanager
def progress_bar(label: str, *, hidden: bool, byte_count: bool = False) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on stderr, gone when done; yields a function of (done, total), or None where there is nobody to see it."""
    if hidden or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn

    counter = DownloadColumn() if byte_count else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), counter)
    # drawn on demand: a thread that redraws would take time from the runs that are being timed
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as progress:
        task = progress.add_task(label, total=None)
        drawn = 0.0

        def advance(done: int, total: int) -> None:
            nonlocal drawn
            now = monotonic()
            due = now - drawn > _REDRAW_SECONDS
            progress.update(task, completed=done, total=total, refresh=due)
            drawn = now if due else drawn

        yield advance
