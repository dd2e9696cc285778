"""The engine behind an event loop: a thread steps it, every request has a stream of its own."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from outrider.engine.engine import Engine
from outrider.engine.request import Request, StepOutput
from outrider.sampling.params import SamplingParams


class EngineDeadError(RuntimeError):
    """The engine's thread has ended; no stream will get any more tokens."""


@dataclass(frozen=True)
class _Stream:
    """The way back to a caller's event loop."""

    loop: asyncio.AbstractEventLoop
    items: asyncio.Queue[StepOutput | BaseException]

    def put(self, item: StepOutput | BaseException) -> None:
        self.call(self.items.put_nowait, item)

    def call(self, function: Callable[..., None], *arguments: object) -> None:
        """Calls it on the caller's loop, soon."""
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self.loop.call_soon_threadsafe(function, *arguments)


class AsyncEngine:
    """Owns an Engine from `start` to `stop`; nothing else may touch it in between.

        engine, tokenizer = open_engine("path/or/hub-id", max_num_seqs=32, max_model_len=4096)   # engine.loading
        service = AsyncEngine(engine)
        service.start()

    The options are `open_engine`'s, the same as those of `LLM`.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._streams: dict[Request, _Stream] = {}
        self._stopping = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="outrider-engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Aborts what runs and ends the thread; waits for the step in progress."""
        self._stopping = True
        self._commands.put(lambda: None)
        if self._thread.is_alive():
            self._thread.join()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and self._failure is None

    async def generate(
        self, prompt_token_ids: Sequence[int], params: SamplingParams, **options: Any
    ) -> AsyncIterator[StepOutput]:
        """Yields what each step publishes, until the request ends. `options`: those of `Engine.add_request`.

        Leaving the loop early (break, cancellation, a client that is gone) aborts the request; its blocks go back
        before the next step. Raises ConfigError for a request that is refused, EngineDeadError when the engine fails.
        """
        stream = _Stream(asyncio.get_running_loop(), asyncio.Queue())
        added: asyncio.Future[Request] = stream.loop.create_future()
        self._submit(lambda: self._add(stream, added, prompt_token_ids, params, options))
        finished = False
        try:
            await self._admitted(added)
            while not finished:
                item = await stream.items.get()
                if isinstance(item, BaseException):
                    raise item
                finished = item.finish_reason is not None
                yield item
        finally:
            if not finished:
                self._commands.put(lambda: self._abort(stream))

    async def _admitted(self, added: asyncio.Future[Request]) -> None:
        while not (await asyncio.wait({added}, timeout=1.0))[0]:
            if not self._thread.is_alive():  # it ended between the command and its turn
                raise self._dead()
        added.result()

    # -------- on the engine's thread

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._obey(wait=not self._engine.has_unfinished)
                for output in self._engine.step():
                    stream = self._streams.get(output.request)
                    if stream is not None:
                        stream.put(output)
                        if output.finish_reason is not None:
                            del self._streams[output.request]
        except BaseException as error:  # every stream must hear of it, whatever it is
            self._failure = error
        finally:
            self._end()

    def _obey(self, *, wait: bool) -> None:
        if wait:
            self._commands.get()()
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                return
            command()

    def _end(self) -> None:
        self._stopping = True
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.put(self._dead())
        self._obey(wait=False)  # late arrivals learn of it too
        for request in streams:  # at last: an engine that failed may fail at this too
            self._engine.abort(request)

    def _add(
        self,
        stream: _Stream,
        added: asyncio.Future[Request],
        prompt_token_ids: Sequence[int],
        params: SamplingParams,
        options: dict[str, Any],
    ) -> None:
        try:
            if self._stopping:
                raise self._dead()
            request = self._engine.add_request(prompt_token_ids, params, **options)
        except Exception as error:
            stream.call(_fail, added, error)
            return
        self._streams[request] = stream
        stream.call(_succeed, added, request)

    def _abort(self, stream: _Stream) -> None:
        for request, own in list(self._streams.items()):
            if own is stream:
                self._engine.abort(request)
                del self._streams[request]

    def _submit(self, command: Callable[[], None]) -> None:
        if not self._thread.is_alive():
            raise self._dead()
        self._commands.put(command)

    def _dead(self) -> EngineDeadError:
        reason = "it was stopped" if self._failure is None else f"{type(self._failure).__name__}: {self._failure}"
        return EngineDeadError(f"the engine has ended ({reason})")


def _succeed(future: asyncio.Future[Request], request: Request) -> None:
    if not future.done():
        future.set_result(request)


def _fail(future: asyncio.Future[Request], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
