"""Ctrl-C while slow modules are imported."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130


@contextmanager
def slow_import() -> Iterator[None]:
    """Ctrl-C ends the process at once. torch takes seconds to import, and may swallow an exception raised meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave(_signal: int, _frame: FrameType | None) -> None:
    sys.stderr.write("\n")
    sys.stderr.flush()
    os._exit(INTERRUPTED)
