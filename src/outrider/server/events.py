"""Answers that are watched while they are made: server-sent events, and single bodies whose client may leave."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from outrider.server.errors import SERVER, ApiError, api_error

log = logging.getLogger("outrider.server")

SEND_SECONDS = 60.0  # for a client to read what was sent; one that reads no more must not hold its place for ever
CLIENT_LEFT = 499  # nobody reads it; it is what the access log shows
_Result = TypeVar("_Result")
DONE = "data: [DONE]\n\n"


class EventStream(Response):
    """Sends each object as an event, then [DONE]. An error becomes an event too: no stream ends in silence.

    `close` is called once, when the stream ends in whatever way; a client that leaves ends it at once, even while no
    token has come yet, and so does one that reads nothing for send_seconds.
    """

    media_type = "text/event-stream"

    def __init__(
        self, objects: AsyncIterator[dict[str, Any]], close: Callable[[], None], send_seconds: float = SEND_SECONDS
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._objects = objects
        self._close = close
        self._send_seconds = send_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await _unless_client_leaves(receive, self._send(send))
        except TimeoutError:  # uvicorn closes a connection whose answer is not whole
            log.warning("a client read nothing for %g s; its stream was ended", self._send_seconds)
        finally:
            self._close()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for event in self._events():
            async with asyncio.timeout(self._send_seconds):
                await send({"type": "http.response.body", "body": event.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _events(self) -> AsyncIterator[str]:
        try:
            async for item in self._objects:
                yield event(item)
        except Exception as error:
            yield event(told(error).body())
        yield DONE


async def single_body(request: Request, body: Awaitable[dict[str, Any]], close: Callable[[], None]) -> Response:
    """The finished answer as JSON. `close` is called at the end, at once when the client leaves."""
    try:
        result = await _unless_client_leaves(request.receive, body)
    finally:
        close()
    return Response(status_code=CLIENT_LEFT) if result is None else JSONResponse(result)


def event(item: dict[str, Any]) -> str:
    return f"data: {json.dumps(item, ensure_ascii=False, separators=(',', ':'))}\n\n"


def told(error: Exception, prompt_param: str = "prompt") -> ApiError:
    """What the client hears of it; a bug of ours is logged, and its text stays here."""
    known = api_error(error, prompt_param)
    if known is not None:
        return known
    log.error("a request failed", exc_info=error)
    return ApiError(500, "the server made an error", kind=SERVER)


async def _unless_client_leaves(receive: Receive, work: Awaitable[_Result]) -> _Result | None:
    """The result of `work`; None, and `work` cancelled, when the client goes away first."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_client_left(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for future in (task, watch):
            future.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await future


async def _client_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
