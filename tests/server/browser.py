"""Chromium without a window, driven over its debugging pipe: JSON messages that end with NUL."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")


def chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Tab:
    """One page. Pipes are file descriptors: to the browser, and from it."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to = to_browser
        self._from = from_browser
        self._buffer = b""
        self._count = 0
        self._session: str | None = None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._call("Page.enable")

    def open(self, url: str) -> None:
        self._call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete'")

    def evaluate(self, script: str) -> Any:
        """Value of a JavaScript expression."""
        found = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait_for(self, script: str, seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while not self.evaluate(f"!!({script})"):
            assert time.monotonic() < end, f"never: {script}"
            time.sleep(0.05)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self._from, 1 << 16)
            assert data, "the browser is gone"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message


@contextmanager
def tab(program: str, profile: Path) -> Iterator[Tab]:
    """profile: an empty folder."""
    ours_in, to_browser = os.pipe()
    from_browser, ours_out = os.pipe()
    # the browser reads at 3 and writes at 4, which may be taken here
    reads, writes = (fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (ours_in, ours_out))

    def place() -> None:
        os.dup2(reads, 3)
        os.dup2(writes, 4)

    command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += [f"--user-data-dir={profile}", "--remote-debugging-pipe"]
    started = subprocess.Popen(
        command, preexec_fn=place, pass_fds=(3, 4), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    for fd in (ours_in, ours_out, reads, writes):
        os.close(fd)
    try:
        yield Tab(to_browser, from_browser)
    finally:
        started.kill()
        started.wait()
        os.close(to_browser)
        os.close(from_browser)
