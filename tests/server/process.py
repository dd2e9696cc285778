"""`outrider serve` as a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SPECULATION = '{"method": "mtp", "num_speculative_tokens": 3, "adaptive": false}'


@contextmanager
def process(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server with the shipped model and the key "sesame", and its base URL."""
    command = [sys.executable, "-m", "outrider", "serve", "--port", "0", "--max_model_len", "512", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OUTRIDER_API_KEY": "sesame"}
    started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert started.stderr is not None
    try:
        lines = []
        for line in started.stderr:
            lines.append(line)
            if found := re.search(r"at (http://127\.0\.0\.1:\d+/v1)", line):
                break
        else:
            raise AssertionError("".join(lines))
        yield started, found.group(1)
    finally:
        started.kill()
        started.wait()
        started.stderr.close()
