"""The engine behind an event loop: a thread steps it, every request has a stream of its own."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from outrider.engine.engine import Engine, EngineLoad
from outrider.engine.request import Request, StepOutput
from outrider.sampling.params import SamplingParams
from outrider.speculative.acceptance_monitor import AcceptanceReport
from outrider.speculative.depth_controller import ControllerReport


class EngineDeadError(RuntimeError):
    """The engine's thread has ended; no stream will get any more tokens."""


@dataclass(frozen=True)
class _Mailbox:
    """The way back to a caller's event loop."""

    loop: asyncio.AbstractEventLoop
    items: asyncio.Queue[StepOutput | BaseException]

    def put(self, item: StepOutput | BaseException) -> None:
        self.call(self.items.put_nowait, item)

    def call(self, function: Callable[..., None], *arguments: object) -> None:
        """Calls it on the caller's loop, soon."""
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self.loop.call_soon_threadsafe(function, *arguments)


class RequestStream:
    """An admitted request and what each step publishes of it, until it ends. Read it to its end, or close it."""

    def __init__(self, request: Request, mailbox: _Mailbox, abort: Callable[[], None]) -> None:
        self.request = request
        self._mailbox = mailbox
        self._abort = abort
        self._ended = False

    async def __aiter__(self) -> AsyncIterator[StepOutput]:
        """Raises EngineDeadError when the engine fails."""
        while not self._ended:
            item = await self._mailbox.items.get()
            self._ended = isinstance(item, BaseException) or item.finish_reason is not None
            if isinstance(item, BaseException):
                raise item
            yield item

    def close(self) -> None:
        """Aborts the request unless it has ended; its blocks go back before the next step."""
        if not self._ended:
            self._ended = True
            self._abort()


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
        self._mailboxes: dict[Request, _Mailbox] = {}
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

    def new_seed(self) -> int:
        """As `Engine.new_seed`; any thread may ask."""
        return self._engine.new_seed()

    def load(self) -> EngineLoad:
        """As `Engine.load`; any thread may ask, and sees a state that is at most one step old."""
        return self._engine.load()

    @property
    def depth_report(self) -> ControllerReport | None:
        """As `Engine.depth_report`; any thread may ask."""
        return self._engine.depth_report

    @property
    def acceptance_report(self) -> AcceptanceReport | None:
        """As `Engine.acceptance_report`; any thread may ask."""
        return self._engine.acceptance_report

    async def add(self, prompt_token_ids: Sequence[int], params: SamplingParams, **options: Any) -> RequestStream:
        """Queues a request. `options`: those of `Engine.add_request`.

        Raises ConfigError for a request that is refused, EngineDeadError when the engine has ended.
        """
        mailbox = _Mailbox(asyncio.get_running_loop(), asyncio.Queue())
        added: asyncio.Future[Request] = mailbox.loop.create_future()
        self._submit(lambda: self._add(mailbox, added, prompt_token_ids, params, options))

        def abort() -> None:
            self._commands.put(lambda: self._abort(mailbox))

        try:
            return RequestStream(await self._admitted(added), mailbox, abort)
        except BaseException:  # whoever waited is gone: what is admitted later must not run
            abort()
            raise

    async def generate(
        self, prompt_token_ids: Sequence[int], params: SamplingParams, **options: Any
    ) -> AsyncIterator[StepOutput]:
        """Yields what each step publishes, until the request ends; options and errors as for `add`.

        Leaving the loop early (break, cancellation, a client that is gone) aborts the request; its blocks go back
        before the next step.
        """
        stream = await self.add(prompt_token_ids, params, **options)
        try:
            async for output in stream:
                yield output
        finally:
            stream.close()

    async def _admitted(self, added: asyncio.Future[Request]) -> Request:
        while not (await asyncio.wait({added}, timeout=1.0))[0]:
            if not self._thread.is_alive():  # it ended between the command and its turn
                raise self._dead()
        return added.result()

    # -------- on the engine's thread

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._obey(wait=not self._engine.has_unfinished)
                for output in self._engine.step():
                    mailbox = self._mailboxes.get(output.request)
                    if mailbox is not None:
                        mailbox.put(output)
                        if output.finish_reason is not None:
                            del self._mailboxes[output.request]
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
        mailboxes, self._mailboxes = self._mailboxes, {}
        for mailbox in mailboxes.values():
            mailbox.put(self._dead())
        self._obey(wait=False)  # late arrivals learn of it too
        for request in mailboxes:  # at last: an engine that failed may fail at this too
            self._engine.abort(request)

    def _add(
        self,
        mailbox: _Mailbox,
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
            mailbox.call(_fail, added, error)
            return
        self._mailboxes[request] = mailbox
        mailbox.call(_succeed, added, request)

    def _abort(self, mailbox: _Mailbox) -> None:
        for request, own in list(self._mailboxes.items()):
            if own is mailbox:
                self._engine.abort(request)
                del self._mailboxes[request]

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
