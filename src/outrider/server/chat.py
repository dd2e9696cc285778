"""/v1/chat/completions: answers, with reasoning and tool calls taken apart."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from outrider.server.answer import Envelope
from outrider.server.answer_grammar import answer_grammar
from outrider.server.chat_prompt import tokenize_chat
from outrider.server.chat_request import ChatCompletionRequest
from outrider.server.continuation import Growth
from outrider.server.events import EventStream, single_body
from outrider.server.group import Group
from outrider.server.logprob_bodies import chat_logprobs
from outrider.server.served_model import ServedModel
from outrider.text.deltas import Content, Delta, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart
from outrider.text.output_parser import OutputParser

KIND, CHUNK_KIND = "chat.completion", "chat.completion.chunk"


async def chat(served: ServedModel, body: ChatCompletionRequest, request: Request) -> Response:
    """Raises ApiError, PromptError, ConfigError and EngineDeadError before anything is sent."""
    served.require_name(body.model)
    tools = body.offered_tools
    prompt = await tokenize_chat(served, body, tools)
    most = body.max_new_tokens
    params = body.sampling_params(
        max_tokens=max(1, served.max_model_len - len(prompt.token_ids)) if most is None else most,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
    )
    grammar = answer_grammar(body, tools, starts_in_reasoning=prompt.starts_in_reasoning)
    masks = await served.grammars.masks(grammar, body.samples) if grammar is not None else []
    literal = body.answer_schema is not None
    parsers = [OutputParser(prompt.starts_in_reasoning, bool(tools), literal=literal) for _ in range(body.samples)]
    group = await Group.start(served, [prompt.token_ids], params, body, masks)
    answer = _Chat(served, body, group, parsers)
    if body.stream:
        return EventStream(answer.chunks(), group.close)
    return await single_body(request, answer.body(), group.close)


class _Message:
    """One choice: the deltas of its text, and the message that they add up to."""

    def __init__(self, parser: OutputParser, think_end_id: int | None, *, parallel_calls: bool) -> None:
        self.reasoning_tokens = 0
        self._parser = parser
        self._think_end_id = think_end_id
        self._think_ended = False
        self._parallel_calls = parallel_calls
        self._content = ""
        self._reasoning = ""
        self._calls: dict[int, dict[str, Any]] = {}  # in the order of their beginning
        self._complete: set[int] = set()

    def push(self, growth: Growth) -> list[dict[str, Any]]:
        """Deltas of a streamed message."""
        self._count_reasoning(growth.token_ids)
        deltas = list(self._parser.feed(growth.text)) if growth.text else []
        if growth.finish_reason is not None:
            deltas += self._parser.finish(truncated=not growth.ended_by_model)
        return [shown for delta in deltas if (shown := self._take(delta)) is not None]

    def finish_reason(self, reason: str) -> str:
        return "tool_calls" if reason == "stop" and self._complete else reason

    def body(self) -> dict[str, Any]:
        """The whole message. A call that was cut is not in it: nobody may run it."""
        calls = [call for index, call in self._calls.items() if index in self._complete]
        return {
            "role": "assistant",
            "content": None if calls and not self._content else self._content,
            **({"reasoning_content": self._reasoning} if self._reasoning else {}),
            **({"tool_calls": calls} if calls else {}),
        }

    def _count_reasoning(self, token_ids: Sequence[int]) -> None:
        """Up to `</think>`. A step in whose middle anything else ends the reasoning counts as a whole."""
        if self._think_ended or not self._parser.in_reasoning:
            return
        self._think_ended = self._think_end_id in token_ids
        end = token_ids.index(self._think_end_id) + 1 if self._think_end_id in token_ids else len(token_ids)
        self.reasoning_tokens += end

    def _take(self, delta: Delta) -> dict[str, Any] | None:
        match delta:
            case Content(text):
                self._content += text
                return {"content": text}
            case Reasoning(text):
                self._reasoning += text
                return {"reasoning_content": text}
            case _ if delta.index > 0 and not self._parallel_calls:
                return None
            case ToolCallStart(index, name):
                call = {"id": f"call_{secrets.token_hex(12)}", "type": "function"}
                self._calls[index] = {**call, "function": {"name": name, "arguments": ""}}
                return {"tool_calls": [{"index": index, **call, "function": {"name": name, "arguments": ""}}]}
            case ToolCallArguments(index, text):
                self._calls[index]["function"]["arguments"] += text
                return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
            case ToolCallEnd(index):
                self._complete.add(index)
                return None


class _Chat:
    def __init__(
        self, served: ServedModel, body: ChatCompletionRequest, group: Group, parsers: Sequence[OutputParser]
    ) -> None:
        self._tokenizer = served.tokenizer
        self._fields = body
        self._group = group
        self._envelope = Envelope("chatcmpl", served, body, group)
        parallel = body.parallel_tool_calls is not False
        think_end = served.tokenizer.think_end_id
        self._messages = [_Message(parser, think_end, parallel_calls=parallel) for parser in parsers]

    async def chunks(self) -> AsyncIterator[dict[str, Any]]:
        begun: set[int] = set()
        async for choice, growth in self._group.growths(drafts_apart=self._fields.marks_drafts):
            deltas = self._push(choice, growth)
            drafted = {"drafted": growth.drafted} if self._fields.marks_drafts else {}
            if choice not in begun:  # not before the first token: clients take this chunk for it
                begun.add(choice)
                deltas.insert(0, {"role": "assistant", "content": ""})
            logprobs = self._logprobs([growth])
            if logprobs is not None and not deltas:
                deltas = [{}]
            for delta in deltas:
                yield self._chunk(
                    {"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": None, **drafted}
                )
                logprobs = None
            if growth.finish_reason is not None:
                yield self._chunk(
                    {"index": choice, "delta": {}, "logprobs": None, **self._ending(choice, growth.finish_reason)}
                )
        if self._envelope.wants_usage:
            yield self._envelope.usage_chunk(CHUNK_KIND)

    async def body(self) -> dict[str, Any]:
        whole: list[list[Growth]] = [[] for _ in self._messages]
        async for choice, growth in self._group.growths():
            self._push(choice, growth)
            whole[choice].append(growth)
        return self._envelope.body(
            KIND,
            [
                {
                    "index": choice,
                    "message": self._messages[choice].body(),
                    "logprobs": self._logprobs(growths),
                    **self._ending(choice, growths[-1].finish_reason),
                }
                for choice, growths in enumerate(whole)
            ],
        )

    def _push(self, choice: int, growth: Growth) -> list[dict[str, Any]]:
        deltas = self._messages[choice].push(growth)
        self._envelope.completion_tokens += len(growth.token_ids)
        self._envelope.reasoning_tokens = sum(message.reasoning_tokens for message in self._messages)
        return deltas

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        return self._envelope.chunk(CHUNK_KIND, [choice])

    def _ending(self, choice: int, reason: str | None) -> dict[str, Any]:
        assert reason is not None
        return {
            "finish_reason": self._messages[choice].finish_reason(reason),
            "seed": self._envelope.seed_of(choice),
        }

    def _logprobs(self, growths: Sequence[Growth]) -> dict[str, Any] | None:
        if not self._fields.logprobs:
            return None
        token_ids = [token for growth in growths for token in growth.token_ids]
        logprobs = [own for growth in growths for own in growth.logprobs]
        return chat_logprobs(self._tokenizer, token_ids, logprobs, self._fields.top_logprobs or 0)
