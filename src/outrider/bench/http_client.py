"""The client of `outrider bench serve`: streams answers of any server with OpenAI's API, and looks at the clock.

Under speculation a chunk holds several tokens, so that tokens are counted by the server's own `usage` and never by
chunks, and the time per token is taken over the whole answer.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from outrider.bench.arrivals import arrival_times
from outrider.bench.prompts import BenchPrompt
from outrider.bench.server_metrics import ServerCounters, parse_metrics
from outrider.bench.window import Load, RequestTiming, Window
from outrider.config import ConfigError

_CONNECT_SECONDS = 10.0


class StreamError(RuntimeError):
    """An answer that did not come, or not to its end."""


@dataclass(frozen=True)
class Target:
    """base_url: up to and with /v1. fields: of every request's body. timeout: seconds without any bytes."""

    base_url: str
    model: str
    api_key: str | None
    chat: bool
    fields: Mapping[str, Any]
    timeout: float

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.api_key is None else {"Authorization": f"Bearer {self.api_key}"}


@dataclass
class _Answer:
    """What has come of an answer. `tokens` and `prompt_tokens`: of the usage chunk at its end."""

    sent: float
    first: float | None = None
    last: float = 0.0
    text: list[str] = field(default_factory=list)
    tokens: int | None = None
    prompt_tokens: int = 0

    def chunk(self, item: Mapping[str, Any], now: float) -> None:
        if item.get("error"):
            error = item["error"]
            raise StreamError(error.get("message", str(error)) if isinstance(error, dict) else str(error))
        for choice in item.get("choices") or ():
            delta = choice.get("delta") or {}
            piece = choice.get("text") or "".join(delta.get(k) or "" for k in ("reasoning_content", "content"))
            if piece or choice.get("finish_reason"):
                self.first = self.first or now
                self.last = now
            self.text.append(piece)
        if item.get("usage"):
            self.tokens = item["usage"]["completion_tokens"]
            self.prompt_tokens = item["usage"]["prompt_tokens"]

    def timing(self) -> RequestTiming:
        if self.first is None or self.tokens is None:
            raise StreamError("the stream ended without " + ("usage" if self.first else "any text"))
        return RequestTiming(
            self.sent, self.first, self.last, self.prompt_tokens, self.tokens, output="".join(self.text)
        )


def served_model(base_url: str, api_key: str | None) -> str:
    """Name of the first model at a server. Raises ConfigError when there is none, or no server."""
    url = f"{base_url}/models"
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    try:
        response = httpx.get(url, headers=headers, timeout=_CONNECT_SECONDS)
        response.raise_for_status()
        return str(response.json()["data"][0]["id"])
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConfigError(f"--base-url: {url} does not answer ({error})") from None
    except (ValueError, KeyError, IndexError, TypeError):
        raise ConfigError(f"--base-url: {url} lists no models; give --served-model") from None


async def run_window(target: Target, prompts: Sequence[BenchPrompt], load: Load, *, seed: int) -> Window:
    """Sends one request a prompt, as `load` says. Requests that fail are in the window with their error.

    seed: of the arrival times. Raises ConfigError when nothing listens at the address.
    """
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    timeout = httpx.Timeout(target.timeout, connect=_CONNECT_SECONDS)
    async with httpx.AsyncClient(limits=limits, timeout=timeout, headers=target.headers, trust_env=False) as client:
        before = await _counters(client, target)
        places = asyncio.Semaphore(load.concurrency or len(prompts))
        start = time.perf_counter()

        async def one(prompt: BenchPrompt, offset: float) -> RequestTiming:
            await asyncio.sleep(max(0.0, start + offset - time.perf_counter()))
            async with places:
                sent = start + offset if load.request_rate is not None else time.perf_counter()
                return await _request(client, target, prompt, sent)

        offsets = arrival_times(load, len(prompts), seed)
        requests = await asyncio.gather(*(one(*pair) for pair in zip(prompts, offsets, strict=True)))
        after = await _counters(client, target)
    return Window(
        requests=tuple(requests),
        seconds=max(request.last_token for request in requests) - start,
        drafts=after.drafts_since(before) if after and before else None,
        cached_prompt_tokens=after.cached_since(before) if after and before else None,
    )


async def _request(client: httpx.AsyncClient, target: Target, prompt: BenchPrompt, sent: float) -> RequestTiming:
    body: dict[str, Any] = {
        "model": target.model,
        "max_tokens": prompt.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        **target.fields,
    }
    if target.chat and isinstance(prompt.content, str):
        path, body["messages"] = "chat/completions", [{"role": "user", "content": prompt.content}]
    else:
        path, body["prompt"] = "completions", prompt.content
    answer = _Answer(sent)
    try:
        async with client.stream("POST", f"{target.base_url}/{path}", json=body) as response:
            if response.status_code != 200:
                raise StreamError(f"{response.status_code}: {(await response.aread()).decode(errors='replace')[:200]}")
            async for line in response.aiter_lines():
                now = time.perf_counter()
                data = line.removeprefix("data:").strip()
                if line.startswith("data:") and data != "[DONE]":
                    answer.chunk(json.loads(data), now)
            return answer.timing()
    except httpx.ConnectError as error:
        raise ConfigError(f"--base-url: {target.base_url} does not answer ({error})") from None
    except (httpx.HTTPError, StreamError, ValueError) as error:
        now = time.perf_counter()
        return RequestTiming(sent, now, now, 0, 0, "", error=str(error) or type(error).__name__)


async def _counters(client: httpx.AsyncClient, target: Target) -> ServerCounters | None:
    """None for a server that has no metrics."""
    try:
        response = await client.get(f"{target.base_url.removesuffix('/v1')}/metrics")
        return parse_metrics(response.text) if response.status_code == 200 else None
    except httpx.HTTPError:
        return None
