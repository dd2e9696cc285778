"""The client against a server whose times are known: what it calls first, last and per token; and what it survives."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from tests.bench.scripted_server import ScriptedServer, chunk, running, usage

from outrider.bench import http_client
from outrider.bench.http_client import Target
from outrider.bench.prompts import BenchPrompt
from outrider.bench.window import Load, Window
from outrider.config import ConfigError

# 9 tokens in three chunks, the first of which is one token; times per chunk would be three times as long
SCRIPT = [
    (0.0, chunk("")),
    (0.2, chunk("one")),
    (0.2, chunk(" two three four five")),
    (0.2, chunk(" six", "stop")),
    (0.1, usage(9)),
]


def window_of(
    url: str, count: int, *, chat: bool = True, fields: Mapping[str, Any] | None = None, content: Any = "x"
) -> Window:
    target = Target(url, "m", "sesame", chat, fields or {}, timeout=5)
    prompts = [BenchPrompt(content, 16)] * count
    return asyncio.run(http_client.run_window(target, prompts, Load(count, concurrency=2), seed=0))


def test_times_of_an_answer() -> None:
    scripted = ScriptedServer(SCRIPT)
    with running(scripted) as url:
        found = window_of(url, 3)
    for request in found.requests:
        assert request.error is None and (request.output_tokens, request.prompt_tokens) == (9, 7)
        assert request.output == "one two three four five six"
        assert request.time_to_first_token == pytest.approx(0.2, abs=0.1)
        assert request.time_per_output_token == pytest.approx(0.05, abs=0.02)  # 0.4 s for 8 tokens
        assert request.end_to_end == pytest.approx(0.6, abs=0.15)  # without what comes after the text
    assert scripted.most_at_a_time == 2 and found.seconds == pytest.approx(1.3, abs=0.3)
    assert found.drafts is None and found.cached_prompt_tokens is None  # no metrics there


def test_what_is_asked() -> None:
    scripted = ScriptedServer([(0.0, chunk("a", "stop")), (0.0, usage(1))])
    with running(scripted) as url:
        window_of(url, 1, fields={"speculation": "off"})
        window_of(url, 1, chat=False)
        window_of(url, 1, content=(5, 6))
    (chat_path, chat), (text_path, text), (ids_path, ids) = scripted.bodies
    assert chat_path == "/v1/chat/completions" and chat["messages"] == [{"role": "user", "content": "x"}]
    assert chat["speculation"] == "off" and chat["stream_options"] == {"include_usage": True}
    assert (text_path, text["prompt"]) == ("/v1/completions", "x") and "speculation" not in text
    assert (ids_path, ids["prompt"]) == ("/v1/completions", [5, 6])  # token ids are no chat


@pytest.mark.parametrize(
    ("script", "status", "words"),
    [
        ([(0.0, chunk("a")), (0.0, {"error": {"message": "it broke"}})], 200, "it broke"),
        ([(0.0, chunk("a", "stop"))], 200, "without usage"),
        ([(0.0, usage(0))], 200, "without any text"),
        ([(0.0, {"error": "busy"})], 429, "429: .*busy"),
    ],
)
def test_failures_are_told_apart(script: list[tuple[float, dict[str, Any]]], status: int, words: str) -> None:
    with running(ScriptedServer(script, status)) as url:
        found = window_of(url, 2)
    for request in found.requests:
        assert request.error is not None
        with pytest.raises(AssertionError, match=words):
            raise AssertionError(request.error)


def test_nobody_there() -> None:
    with pytest.raises(ConfigError, match=r"--base-url: .* does not answer"):
        window_of("http://127.0.0.1:9/v1", 1)
    with pytest.raises(ConfigError, match=r"--base-url: .* does not answer"):
        http_client.served_model("http://127.0.0.1:9/v1", None)
