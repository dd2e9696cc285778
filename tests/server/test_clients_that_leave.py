"""A client that goes away frees its blocks at once; a full queue sends clients back; an engine's end is told."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.server.serving import DEPTH, QUESTION, Api, LeavingClient, events_of, serving, shipped, wait_until

from outrider.config import SpeculativeConfig
from outrider.engine.request import Request, StepOutput
from outrider.server.app import build_app
from outrider.server.events import EventStream
from outrider.server.served_model import ServedModel

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
ENDLESS: dict[str, Any] = {"prompt": "There", "max_tokens": 480, "ignore_eos": True}


@pytest.mark.parametrize("state", ["queued", "prefill", "mid-stream"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_everything(api: Api, state: str, stream: bool) -> None:
    body = {**ENDLESS, "stream": stream, "n": 6 if state == "queued" else 2}
    if state == "prefill":
        body["prompt"] = [40 + i % 90 for i in range(400)]

    async def leave() -> None:
        client = LeavingClient(api, COMPLETIONS, body)
        task = asyncio.create_task(client.run())
        await asyncio.sleep(0.05)
        while state == "mid-stream" and stream and len(client.sent) < 4:
            await asyncio.sleep(0.01)
        assert api.served.admission.count == body["n"]
        client.gone.set()
        await asyncio.wait_for(task, 5)
        assert api.served.admission.count == 0

    asyncio.run(leave())
    wait_until(api.idle)
    assert api.served.engine.alive
    assert api.get("/health").status_code == 200


def test_a_full_queue_sends_clients_back() -> None:
    with serving(max_waiting=1) as api:

        async def crowd() -> None:
            client = LeavingClient(api, COMPLETIONS, {**ENDLESS, "n": 5, "stream": True})
            task = asyncio.create_task(client.run())
            await asyncio.sleep(0.05)
            response = await api.request("POST", COMPLETIONS, json={"prompt": "x"})
            assert (response.status_code, response.headers["retry-after"]) == (429, "1")
            assert response.json()["error"]["code"] == "queue_full"
            client.gone.set()
            await task

        asyncio.run(crowd())
        assert api.post(COMPLETIONS, {"prompt": "x", "max_tokens": 1}).status_code == 200


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_an_engine_that_dies_ends_streams_with_an_error_and_turns_health_red(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {**ENDLESS} if path == COMPLETIONS else {"messages": [{"role": "user", "content": QUESTION}]}
    with serving() as api:
        steps = iter(range(1000))
        step = api.engine.step

        def failing() -> list[StepOutput]:
            if next(steps) == 6:
                raise RuntimeError("the device is gone")
            return step()

        monkeypatch.setattr(api.engine, "step", failing)
        events = api.stream(path, body)
        assert any(event.get("choices") for event in events)
        assert events[-1]["error"]["code"] == "engine_dead" and "the device is gone" in events[-1]["error"]["message"]
        wait_until(lambda: not api.served.engine.alive)
        health = api.get("/health")
        assert health.status_code == 503 and health.json()["status"] == "failed"
        assert api.post(path, body).json()["error"]["code"] == "engine_dead"
        assert api.served.admission.count == 0


def test_a_request_that_fails_is_told_and_harms_nobody(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    add = api.engine.add_request

    def add_broken(*arguments: Any, **options: Any) -> Request:
        request = add(*arguments, **options)
        if request.params.max_tokens == 480:
            verify = request.sampler.verify
            monkeypatch.setattr(request.sampler, "verify", lambda logits, *rest: verify(logits.fill_(math.nan), *rest))
        return request

    monkeypatch.setattr(api.engine, "add_request", add_broken)

    async def both() -> tuple[Any, Any, Any]:
        good = {"prompt": "There", "max_tokens": 12, "temperature": 0}
        requests = (good, ENDLESS, {**ENDLESS, "stream": True})
        first, second, third = await asyncio.gather(*(api.request("POST", COMPLETIONS, json=b) for b in requests))
        return first, second, third

    good, single, stream = asyncio.run(both())
    assert good.status_code == 200
    assert single.status_code == 500 and single.json()["error"]["code"] == "request_failed"
    assert events_of(stream.text)[-1]["error"]["code"] == "request_failed"
    wait_until(api.idle)


def test_health_is_red_while_the_engine_hangs_and_green_while_it_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(health_seconds=0.6) as api:

        async def busy() -> dict[str, Any]:
            client = LeavingClient(api, COMPLETIONS, {**ENDLESS, "n": 5, "stream": True})
            task = asyncio.create_task(client.run())
            while api.served.engine.load().num_running < 4:
                await asyncio.sleep(0.01)
            answer = await api.request("GET", "/health")
            client.gone.set()
            await task
            found: dict[str, Any] = answer.json()
            return found

        assert asyncio.run(busy())["reason"].startswith("busy")
        wait_until(api.idle)
        go_on = threading.Event()
        step = api.engine.step

        def hanging() -> list[StepOutput]:
            go_on.wait(20)
            return step()

        monkeypatch.setattr(api.engine, "step", hanging)
        start = time.monotonic()
        response = api.get("/health")
        assert response.status_code == 503 and "no forward pass" in response.json()["reason"]
        assert time.monotonic() - start < 5
        go_on.set()
        wait_until(api.idle)
        assert api.get("/health").json()["reason"] == "one token"


def test_a_server_that_drains_takes_nothing_new(api: Api) -> None:
    api.served.admission.draining = True
    try:
        for path in (COMPLETIONS, CHAT):
            body = {"prompt": "x"} if path == COMPLETIONS else {"messages": [{"role": "user", "content": "x"}]}
            response = api.post(path, body)
            assert response.status_code == 503 and response.json()["error"]["code"] == "shutting_down"
        assert api.get("/health").status_code == 503
    finally:
        api.served.admission.draining = False


def test_nothing_of_a_request_is_logged(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    api.post(COMPLETIONS, {"prompt": "a secret of mine", "max_tokens": 3})
    api.post(COMPLETIONS, {"prompt": "a secret of mine", "max_tokens": "a secret of mine"})
    own = [record for record in caplog.records if record.name not in ("asyncio", "httpx")]
    assert "secret" not in json.dumps([record.getMessage() for record in own])


def test_a_client_that_reads_no_more_gives_its_place_back() -> None:
    closed: list[bool] = []

    async def objects() -> AsyncIterator[dict[str, Any]]:
        while True:
            yield {"text": "x"}

    async def send(_: Any) -> None:
        await asyncio.sleep(30)  # as a socket does whose buffers are full

    async def receive() -> Any:
        await asyncio.sleep(30)

    async def serve() -> None:
        stream = EventStream(objects(), lambda: closed.append(True), send_seconds=0.05)
        started = False

        async def first_goes_through(message: Any) -> None:
            nonlocal started
            if started:
                await send(message)
            started = True

        await asyncio.wait_for(stream({"type": "http"}, receive, first_goes_through), 5)

    asyncio.run(serve())
    assert closed == [True]


def test_adaptive_depth_gives_logprobs() -> None:
    """What plain decoding says, whatever depth is chosen."""
    loaded, tokenizer = shipped()
    speculation = SpeculativeConfig(method="mtp", num_speculative_tokens=DEPTH, adaptive=True)
    served = ServedModel(loaded.engine(speculation, tokenizer=tokenizer), tokenizer, ("tiny",), max_waiting=4)
    served.engine.start()
    try:
        api = Api(served.engine._engine, served, build_app(served))
        body = {"prompt": "There are 3", "max_tokens": 24, "logprobs": 3, "temperature": 0, "ignore_eos": True}
        drafted, plain = (
            api.post(COMPLETIONS, {**body, "speculation": speculation}).json()["choices"][0]
            for speculation in ("auto", "off")
        )
        assert drafted["text"] == plain["text"]
        pairs = zip(drafted["logprobs"]["token_logprobs"], plain["logprobs"]["token_logprobs"], strict=True)
        assert max(abs(a - b) for a, b in pairs) < 1e-4
        assert all(value <= 0 for value in drafted["logprobs"]["token_logprobs"])
        assert any(value < 0 for value in drafted["logprobs"]["token_logprobs"])
    finally:
        served.engine.stop()
