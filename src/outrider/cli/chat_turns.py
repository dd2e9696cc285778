"""Where the answers of a terminal chat come from: an engine in this process, or a server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from outrider.engine.engine import Engine
    from outrider.sampling.params import SamplingParams
    from outrider.text.tokenizer import Tokenizer

Messages = Sequence[dict[str, str]]
SILENCE_SECONDS = 600.0  # of a server that may be queueing us


class ChatError(RuntimeError):
    """No answer, or no whole one; the message says why."""


@dataclass(frozen=True)
class Piece:
    """A piece of an answer as it arrives. drafted: its tokens were drafts that stood."""

    text: str
    drafted: bool = False
    reasoning: bool = False


@dataclass
class Account:
    """What an answer was made of, filled in when it has ended. num_steps: target passes after the first token."""

    tokens: int = 0
    finish_reason: str | None = None
    num_steps: int = 0
    acceptance_length: float | None = None
    drafted_per_position: list[int] = field(default_factory=list)
    accepted_per_position: list[int] = field(default_factory=list)


class Answers(Protocol):
    """Closing the iterator early stops the answer. Raises ChatError and, for what is refused, ConfigError."""

    def answer(self, messages: Messages, account: Account) -> Iterator[Piece]: ...


class EngineAnswers:
    """Answers of an engine that nobody else uses. params.max_tokens: less where the context ends before."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer, params: SamplingParams, *, thinking: bool) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._params = params
        self._thinking = thinking

    def answer(self, messages: Messages, account: Account) -> Iterator[Piece]:
        from outrider.text.deltas import Content, Reasoning
        from outrider.text.encoding import effort_generation, render_chat
        from outrider.text.output_parser import OutputParser
        from outrider.text.tokenizer import IncrementalDetokenizer

        prompt = render_chat(
            messages,
            thinking="thinking" if self._thinking else "chat",
            generation=effort_generation(self._engine.config),
        )
        parser = OutputParser(prompt.starts_in_reasoning, tools=False)
        text = IncrementalDetokenizer(self._tokenizer)
        request = self._engine.add_request(self._tokenizer.encode_prompt(prompt), self._params)
        for step in self._engine.generate(request):
            count = step.accepted_drafts
            for ids, drafted in ((step.token_ids[:count], True), (step.token_ids[count:], False)):
                deltas = parser.feed(text.push(ids)) if ids else []
                if step.finish_reason is not None and not drafted:
                    deltas += parser.feed(text.finish()) + parser.finish(truncated=step.finish_reason != "stop")
                for delta in deltas:
                    if isinstance(delta, Content | Reasoning):
                        yield Piece(delta.text, drafted, isinstance(delta, Reasoning))
        if request.error is not None:
            raise ChatError(request.error)
        statistics = request.statistics
        account.tokens, account.finish_reason = len(request.output_token_ids), request.finish_reason
        account.num_steps, account.acceptance_length = statistics.num_steps, statistics.acceptance_length
        account.drafted_per_position = statistics.drafted_per_position
        account.accepted_per_position = statistics.accepted_per_position


class ServerAnswers:
    """Answers of a server of ours. url: with /v1 at its end or without. sampling: fields of the request."""

    def __init__(self, url: str, api_key: str | None, sampling: dict[str, Any]) -> None:
        """Asks for the served model's name. Raises ChatError when nobody answers."""
        self._url = url.rstrip("/").removesuffix("/v1")
        self._headers = {"Content-Type": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._sampling = sampling
        (listed,) = list(self._lines("/v1/models", None)) or [b"{}"]
        self.model = str(_parse(listed)["data"][0]["id"])

    def answer(self, messages: Messages, account: Account) -> Iterator[Piece]:
        body = {
            "model": self.model,
            "messages": list(messages),
            "stream": True,
            "stream_options": {"include_usage": True, "include_drafts": True},
            **self._sampling,
        }
        done = False
        for line in self._lines("/v1/chat/completions", body):
            data = line.strip().removeprefix(b"data: ")
            if data == b"[DONE]":
                done = True
            elif data:
                yield from _read_event(_parse(data), account)
        if not done:
            raise ChatError(f"{self._url}: the stream broke off")

    def _lines(self, path: str, body: dict[str, Any] | None) -> Iterator[bytes]:
        import http.client
        from urllib.error import HTTPError, URLError
        from urllib.request import Request, urlopen

        data = None if body is None else json.dumps(body).encode()
        try:
            request = Request(self._url + path, data, self._headers)
            with urlopen(request, timeout=SILENCE_SECONDS) as response:
                yield from response
        except HTTPError as error:
            raise ChatError(_told(error.read(), f"{self._url}{path}: HTTP status {error.code}")) from None
        except URLError as error:
            raise ChatError(f"{self._url}: no server answers ({error.reason})") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ChatError(f"{self._url}: {error or type(error).__name__}") from None


def _read_event(event: dict[str, Any], account: Account) -> Iterator[Piece]:
    if "error" in event:
        raise ChatError(str(event["error"].get("message")))
    for choice in event.get("choices", ()):
        delta, drafted = choice["delta"], bool(choice.get("drafted"))
        account.finish_reason = choice["finish_reason"] or account.finish_reason
        for name in ("reasoning_content", "content"):
            if delta.get(name):
                yield Piece(delta[name], drafted, name != "content")
    if usage := event.get("usage"):
        account.tokens = usage["completion_tokens"]
        found = usage.get("speculation") or {}
        account.num_steps, account.acceptance_length = found.get("num_steps", 0), found.get("acceptance_length")
        account.drafted_per_position = found.get("num_draft_tokens_per_pos", [])
        account.accepted_per_position = found.get("num_accepted_tokens_per_pos", [])


def _parse(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ChatError("what answers at this address is no server of this kind")
    return value


def _told(body: bytes, otherwise: str) -> str:
    """The message of an error object."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return otherwise
