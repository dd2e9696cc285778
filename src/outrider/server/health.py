"""/health: does the engine still make tokens?"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from outrider.sampling.params import SamplingParams
from outrider.server.served_model import ServedModel

_FIRST = -(1 << 62)  # in front of every request that waits
_LOOKS = 20  # at the engine's progress, in a deadline


@dataclass(frozen=True)
class Health:
    """reason: why not, or what the answer rests on."""

    ok: bool
    reason: str
    seconds: float


class HealthProbe:
    """Generates one token within a deadline. Callers at the same time share one probe.

    When every place of the engine is taken the probe has to wait, and forward passes that were completed meanwhile
    stand for it; an engine that completes none within half a deadline is not healthy, busy or not.
    """

    def __init__(self, served: ServedModel, deadline: float) -> None:
        """deadline: seconds."""
        self._served = served
        self._deadline = deadline
        self._running: asyncio.Task[Health] | None = None

    async def check(self) -> Health:
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._check())
        return await asyncio.shield(self._running)  # a caller that leaves takes nobody else's probe away

    async def _check(self) -> Health:
        start = time.monotonic()
        if self._served.admission.draining:
            return Health(False, "the server is shutting down", 0.0)
        if not self._served.engine.alive:
            return Health(False, "the engine has ended", 0.0)
        probe = asyncio.create_task(self._one_token())
        moved = start
        passes = self._served.engine.load().num_forwards
        while not probe.done() and time.monotonic() - start < self._deadline:
            await asyncio.wait({probe}, timeout=self._deadline / _LOOKS)
            now = self._served.engine.load().num_forwards
            if now != passes:
                passes, moved = now, time.monotonic()
        seconds = time.monotonic() - start
        if probe.done():
            error = probe.exception()
            return Health(error is None, "one token" if error is None else str(error), seconds)
        probe.cancel()
        await asyncio.wait({probe})
        if time.monotonic() - moved < self._deadline / 2:
            return Health(True, "busy: the engine computes other requests", seconds)
        return Health(False, f"no token and no forward pass within {self._deadline:g} s", seconds)

    async def _one_token(self) -> None:
        prompt = [self._served.config.bos_token_id]
        params = SamplingParams(max_tokens=1, seed=0)
        async for output in self._served.engine.generate(prompt, params, priority=_FIRST, speculation=0):
            if output.finish_reason == "error":
                raise RuntimeError(output.request.error)
