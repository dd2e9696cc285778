"""From a served model to a process: a socket, uvicorn, and an end that leaves nobody without an answer."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from outrider.server.health import HealthProbe
from outrider.server.served_model import ServedModel

log = logging.getLogger("outrider.server")

WARM_UP_SECONDS = 600.0
_LAST_EVENTS_SECONDS = 5  # for streams to send their error after the engine was stopped


class StartError(RuntimeError):
    """The server cannot start; the message says why."""


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that holds the address and does not listen yet: clients are refused until the model is there.

    port 0 takes a free one. Raises StartError.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except (OSError, OverflowError) as error:
        raise StartError(f"--host {host} --port {port}: {getattr(error, 'strerror', None) or error}") from None
    return bound


def serve(
    served: ServedModel, app: FastAPI, bound: socket.socket, *, drain_seconds: float, ready: Callable[[], None]
) -> None:
    """Runs until SIGTERM or SIGINT. `ready` is called when a first token has been made and clients may come.

    At the end requests in progress have `drain_seconds`; then the engine is stopped, and streams that still run end
    with an error event. Raises StartError when the engine makes no token.
    """
    asyncio.run(_serve(served, app, bound, drain_seconds, ready))


async def _serve(
    served: ServedModel, app: FastAPI, bound: socket.socket, drain_seconds: float, ready: Callable[[], None]
) -> None:
    served.engine.start()
    try:
        warm = await HealthProbe(served, WARM_UP_SECONDS).check()
        if not warm.ok:
            raise StartError(f"the engine makes no token: {warm.reason}")
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=30,
            timeout_graceful_shutdown=int(drain_seconds) + _LAST_EVENTS_SECONDS,
        )
        await _Server(config, served, drain_seconds, ready).serve(sockets=[bound])
    finally:
        await asyncio.to_thread(served.engine.stop)


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, served: ServedModel, drain_seconds: float, ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._served = served
        self._drain_seconds = drain_seconds
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._served.admission.draining = True
        last_call = asyncio.create_task(self._stop_engine())
        try:
            await super().shutdown(sockets)
        finally:
            last_call.cancel()

    async def _stop_engine(self) -> None:
        await asyncio.sleep(self._drain_seconds)
        log.warning("requests are still running after %g s; they end with an error", self._drain_seconds)
        await asyncio.to_thread(self._served.engine.stop)
