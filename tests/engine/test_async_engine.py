"""Streams: clients that leave, loops that close, an engine that fails under its readers."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.engine.tiny_engine import engine_of, output, prompt_of

from outrider.engine.async_engine import AsyncEngine, EngineDeadError
from outrider.engine.engine import Engine
from outrider.engine.request import Request, StepOutput


@contextmanager
def served(engine: Engine) -> Iterator[AsyncEngine]:
    service = AsyncEngine(engine)
    service.start()
    try:
        yield service
    finally:
        service.stop()


async def text_of(service: AsyncEngine, length: int = 5, max_tokens: int = 6) -> list[int]:
    return [t async for o in service.generate(prompt_of(length), output(max_tokens)) for t in o.token_ids]


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


def idle(engine: Engine) -> bool:
    pools = engine.cache.window_pool, engine.cache.entry_pool
    return not engine.has_unfinished and all(pool.free_count == pool.count - 1 for pool in pools)


@pytest.mark.parametrize("state", ["queued", "second prefill chunk", "first token", "mid-stream"])
def test_a_client_that_leaves_gives_its_blocks_back_and_the_engine_lives(state: str) -> None:
    engine = engine_of(2, max_num_seqs=1, max_num_batched_tokens=16)
    with served(engine) as service:

        async def leave() -> None:
            first = None
            if state == "queued":  # behind another one
                first = asyncio.create_task(text_of(service, max_tokens=200))
                await asyncio.sleep(0.02)
            task = asyncio.create_task(text_of(service, 250 if "prefill" in state else 5, 60))
            if state in ("queued", "second prefill chunk"):
                await asyncio.sleep(0.05)
            else:
                await asyncio.sleep(0.02 if state == "first token" else 0.1)
            task.cancel()
            if first is not None:
                first.cancel()
            await asyncio.gather(task, *([first] if first else []), return_exceptions=True)

        asyncio.run(leave())
        wait_until(lambda: idle(engine))
        assert len(asyncio.run(text_of(service))) == 6
        assert service.alive


def test_a_loop_that_closed_before_its_request_was_taken_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's thread answers into a loop that is gone: that client only has lost something."""
    engine = engine_of(2, max_num_seqs=2)
    add = engine.add_request
    closed: list[bool] = []

    def slow_add(*arguments: object, **options: object) -> Request:
        wait_until(lambda: bool(closed))
        return add(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(engine, "add_request", slow_add)
    with served(engine) as service:

        async def vanish() -> None:
            await asyncio.wait({asyncio.create_task(text_of(service, max_tokens=100))}, timeout=0.05)

        asyncio.run(vanish())
        closed.append(True)
        wait_until(lambda: idle(engine))
        assert len(asyncio.run(text_of(service))) == 6
        assert service.alive


@pytest.mark.parametrize("abort_fails", [False, True])
def test_readers_hear_of_an_engine_that_fails_in_the_middle(abort_fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(2, max_num_seqs=4)
    steps = iter(range(100))
    step = engine.step

    def failing() -> list[StepOutput]:
        if next(steps) == 3:
            raise RuntimeError("the device is gone")
        return step()

    def failing_abort(request: Request) -> None:
        raise RuntimeError("still gone")

    monkeypatch.setattr(engine, "step", failing)
    if abort_fails:
        monkeypatch.setattr(engine, "abort", failing_abort)
        monkeypatch.setattr("threading.excepthook", lambda _: None)

    async def read(service: AsyncEngine) -> str:
        with pytest.raises(EngineDeadError) as raised:
            await text_of(service, max_tokens=200)
        return str(raised.value)

    async def everybody() -> list[str]:
        return await asyncio.wait_for(asyncio.gather(*(read(service) for _ in range(3))), 20)

    with served(engine) as service:
        errors = asyncio.run(everybody())
        assert all("the device is gone" in error for error in errors)
        wait_until(lambda: not service.alive)
        with pytest.raises(EngineDeadError):
            asyncio.run(text_of(service))


def test_a_request_that_ends_with_an_error_ends_its_stream_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(2, max_num_seqs=4)
    add = engine.add_request

    def add_broken(*arguments: object, **options: object) -> Request:
        request = add(*arguments, **options)  # type: ignore[arg-type]
        if request.params.max_tokens == 60:
            verify = request.sampler.verify
            monkeypatch.setattr(request.sampler, "verify", lambda logits, *rest: verify(logits.fill_(math.nan), *rest))
        return request

    monkeypatch.setattr(engine, "add_request", add_broken)

    async def collect(service: AsyncEngine, max_tokens: int) -> list[str | None]:
        return [o.finish_reason async for o in service.generate(prompt_of(5), output(max_tokens))]

    async def both(service: AsyncEngine) -> list[list[str | None]]:
        return await asyncio.wait_for(asyncio.gather(*(collect(service, n) for n in (5, 60))), 30)

    with served(engine) as service:
        short, long = asyncio.run(both(service))
        assert (short[-1], long) == ("length", ["error"])
        assert service.alive
        wait_until(lambda: idle(engine))
