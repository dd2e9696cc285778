"""A process that compiles a grammar before the server does, and ends itself when that takes too long.

llguidance bounds the size of what it builds but not the time: `{"type": "integer", "multipleOf": 999983}` takes half a
minute, and a thread cannot be stopped. A process can: the system's timer ends it, whatever it is doing and whether or
not the server still lives. So a grammar that comes back from here is one that the server compiles within about the
same time.

    python -m outrider.server.grammar_trial FD        the other end of the server's connection
"""

from __future__ import annotations

import signal
import subprocess
import sys
import weakref
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from outrider.config import ModelConfig
from outrider.server.grammar_compiler import GrammarCompiler, error_line
from outrider.text.tokenizer import Tokenizer

_START_SECONDS = 60.0  # until the vocabulary is known

Problem = tuple[str, str]  # the field of the request, and what is wrong with it


class GrammarTrial:
    """One process, which is started when it is first needed, and again after one that ended. For one thread."""

    def __init__(self, tokenizer: Tokenizer, config: ModelConfig, seconds: float) -> None:
        """seconds: how long a grammar may take."""
        self._vocabulary = (tokenizer, config)
        self._seconds = seconds
        self._running: tuple[subprocess.Popen[bytes], Connection] | None = None

    def problem(self, text: str, parts: Sequence[tuple[str, str]], field: str) -> Problem | None:
        """Why the grammar cannot be served; None if it can. parts: (field, grammar of its schema alone), to find the
        schema that is wrong. field: what is blamed otherwise."""
        if self._running is None:
            self._running = self._start()
        process, connection = self._running
        try:
            connection.send((text, parts, field))
            found: Problem | None = connection.recv()
        except (EOFError, OSError):
            self._running = None
            if process.wait() == -signal.SIGALRM:
                return field, f"its grammar was not ready within {self._seconds:g} s"
            return field, "llguidance could not compile it"
        return found

    def _start(self) -> tuple[subprocess.Popen[bytes], Connection]:
        ours, theirs = Pipe()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "outrider.server.grammar_trial", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is the server's affair
            )
        weakref.finalize(ours, _reap, process)
        ours.send((*self._vocabulary, self._seconds))
        return process, ours


def _reap(process: subprocess.Popen[bytes]) -> None:
    """The connection is gone, on which the process ends."""
    process.kill()
    process.wait()


def try_grammar(compiler: GrammarCompiler, text: str, parts: Sequence[tuple[str, str]], field: str) -> Problem | None:
    """As `GrammarTrial.problem`, in this process."""
    matcher = compiler.matcher(text)
    if matcher.is_error():
        for part, alone in parts:
            part_matcher = compiler.matcher(alone)
            if part_matcher.is_error():
                return part, error_line(part_matcher)
        return field, error_line(matcher)
    matcher.compute_bitmask()
    return (field, f"no answer can follow it ({error_line(matcher)})") if matcher.is_error() else None


def _main(fd: int) -> None:
    connection = Connection(fd)
    signal.setitimer(signal.ITIMER_REAL, _START_SECONDS)  # its signal is not handled: it ends the process
    tokenizer, config, seconds = connection.recv()
    compiler = GrammarCompiler(tokenizer, config)
    while True:
        signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            asked = connection.recv()
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_REAL, seconds)
        connection.send(try_grammar(compiler, *asked))


if __name__ == "__main__":
    _main(int(sys.argv[1]))
