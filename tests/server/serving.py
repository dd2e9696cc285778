"""A server in this process, without a socket, and clients that can leave."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import httpx
from fastapi import FastAPI

from outrider.assets import shipped_model
from outrider.checkpoint.reader import Checkpoint
from outrider.config import EngineConfig, SpeculativeConfig
from outrider.engine.engine import Engine
from outrider.engine.loading import LoadedModel, load_model, load_tokenizer
from outrider.server.app import build_app
from outrider.server.served_model import ServedModel
from outrider.text.tokenizer import Tokenizer

DEPTH = 3
OPTIONS = {"max_num_seqs": 4, "max_model_len": 512, "max_num_batched_tokens": 64, "max_prefill_tokens": 64}
QUESTION = "There are 58 flamingos near the house. In the afternoon, 86 new flamingos arrive. How many are there now?"


@cache
def shipped() -> tuple[LoadedModel, Tokenizer]:
    checkpoint = Checkpoint.open(shipped_model())
    speculation = SpeculativeConfig(method="mtp", num_speculative_tokens=DEPTH, adaptive=False)
    loaded = load_model(checkpoint, speculative_config=speculation, engine_config=EngineConfig.model_validate(OPTIONS))
    return loaded, load_tokenizer(checkpoint)


class Api:
    """Requests to an application, one event loop each."""

    def __init__(self, engine: Engine, served: ServedModel, app: FastAPI) -> None:
        self.engine = engine
        self.served = served
        self.app = app

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.send("GET", path, **options)

    def post(self, path: str, body: dict[str, Any], **options: Any) -> httpx.Response:
        return self.send("POST", path, json=body, **options)

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        return asyncio.run(self.request(method, path, **options))

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60) as client:
            return await client.request(method, path, **options)

    def stream(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Events of a stream, which must end with [DONE]."""
        response = self.post(path, {**body, "stream": True})
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        return events_of(response.text)

    def idle(self) -> bool:
        pools = self.engine.cache.window_pool, self.engine.cache.entry_pool
        empty = all(pool.free_count == pool.count - 1 for pool in pools)
        return not self.engine.has_unfinished and self.served.admission.count == 0 and empty


def events_of(text: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@contextmanager
def serving(*, max_waiting: int = 16, engine_options: dict[str, Any] | None = None, **options: Any) -> Iterator[Api]:
    loaded, tokenizer = shipped()
    config = loaded.options.model_copy(update=engine_options or {})
    speculation = SpeculativeConfig(method="mtp", num_speculative_tokens=DEPTH, adaptive=False)
    engine = loaded.engine(speculation, config, tokenizer=tokenizer)
    served = ServedModel(engine, tokenizer, ("tiny", "alias"), max_waiting=max_waiting)
    served.engine.start()
    try:
        yield Api(engine, served, build_app(served, **options))
    finally:
        served.engine.stop()


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


class LeavingClient:
    """Drives the application by hand: sends a request, and goes away when it is told to."""

    def __init__(self, api: Api, path: str, body: dict[str, Any]) -> None:
        self._api = api
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(b"content-type", b"application/json")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        self._body: bytes | None = json.dumps(body).encode()
        self.gone = asyncio.Event()
        self.sent: list[dict[str, Any]] = []

    async def run(self) -> None:
        await self._api.app(self._scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)
