"""`outrider serve` in a process of its own: what is measured shares neither the interpreter nor its lock."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from outrider.config import ConfigError

_READY = re.compile(r"^serving .* at (http://\S+/v1)")
_END_SECONDS = 20.0


@contextmanager
def server_process(options: Sequence[str]) -> Iterator[str]:
    """Starts a server with `outrider serve`'s options at a free port of this machine, and yields its base URL.

    Raises ConfigError with the server's own words when it does not start.
    """
    command = [sys.executable, "-m", "outrider", "serve", "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert process.stderr is not None
    try:
        url = _base_url(process.stderr)
        # whatever it writes later must not fill the pipe, at which it would stop
        threading.Thread(target=deque, args=(process.stderr, 0), daemon=True).start()
        yield url
    finally:
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _base_url(lines: Iterator[str]) -> str:
    said = []
    for line in lines:
        if found := _READY.match(line):
            return found[1]
        said.append(line.strip())
    raise ConfigError(f"the server did not start: {(said or ['it said nothing'])[-1].removeprefix('outrider: ')}")
