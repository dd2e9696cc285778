"""In front of the application: bodies of bounded size and time, an API key if there is one."""

from __future__ import annotations

import asyncio
import hmac
import json

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outrider.server.errors import AUTHENTICATION, ApiError

# for probes and scrapers, which hold no key, and for people, who type it into the page
OPEN_PATHS = frozenset({"/", "/health", "/metrics", "/version"})


class Gate:
    """ASGI middleware. A request reaches the application when its whole body is here."""

    def __init__(self, app: ASGIApp, *, api_key: str | None, max_body_bytes: int, body_seconds: float) -> None:
        """body_seconds: how long a client may take to send its body."""
        self._app = app
        self._key = None if api_key is None else api_key.encode()
        self._max_body_bytes = max_body_bytes
        self._body_seconds = body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        try:
            self._check_key(scope["path"], headers)
            body = await self._read(headers, receive)
        except ApiError as error:
            await _answer(send, error)
            return
        if body is not None:
            await self._app(scope, _replay(body, receive), send)

    def _check_key(self, path: str, headers: dict[bytes, bytes]) -> None:
        if self._key is None or path in OPEN_PATHS:
            return
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self._key):
            raise ApiError(
                401,
                "the API key is missing or wrong; send it as `Authorization: Bearer KEY`",
                kind=AUTHENTICATION,
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    async def _read(self, headers: dict[bytes, bytes], receive: Receive) -> bytes | None:
        """The body; None when the client left while it sent it. Raises ApiError."""
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and len(length) < 20 and int(length) > self._max_body_bytes:
            raise self._too_large()
        try:
            async with asyncio.timeout(self._body_seconds):
                body = await self._collect(receive)
        except TimeoutError:
            raise ApiError(408, f"the body did not arrive within {self._body_seconds:g} s") from None
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if body and kind != b"application/json":  # what a page of another site may send without asking is not JSON
            raise ApiError(415, "the body must be sent with `Content-Type: application/json`")
        return body

    async def _collect(self, receive: Receive) -> bytes | None:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > self._max_body_bytes:
                raise self._too_large()
            if not message.get("more_body", False):
                return bytes(body)

    def _too_large(self) -> ApiError:
        return ApiError(413, f"the body is larger than {self._max_body_bytes} bytes, the limit of this server")


def _replay(body: bytes, receive: Receive) -> Receive:
    given = False

    async def replayed() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


async def _answer(send: Send, error: ApiError) -> None:
    body = json.dumps(error.body()).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **error.headers}
    if error.status in (408, 413):
        headers["connection"] = "close"  # the rest of the body is not read
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
