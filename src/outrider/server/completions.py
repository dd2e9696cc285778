"""/v1/completions: texts that go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from outrider.server.answer import Envelope
from outrider.server.completion_request import CompletionRequest, Prompt
from outrider.server.continuation import Growth
from outrider.server.events import EventStream, single_body
from outrider.server.group import Group
from outrider.server.logprob_bodies import completion_logprobs
from outrider.server.served_model import ServedModel
from outrider.text.tokenizer import IncrementalDetokenizer, Tokenizer

KIND = "text_completion"


async def complete(served: ServedModel, body: CompletionRequest, request: Request) -> Response:
    """Raises ApiError, ConfigError and EngineDeadError before anything is sent."""
    served.require_name(body.model)
    max_tokens = 16 if body.max_tokens is None else body.max_tokens
    params = body.sampling_params(
        max_tokens=max(1, max_tokens), logprobs=body.logprobs, prompt_logprobs=body.logprobs if body.echo else None
    )
    prompts = await asyncio.to_thread(_encode, served.tokenizer, body.prompts)
    group = await Group.start(served, prompts, params, body)
    answer = _Completion(served, body, group)
    if body.stream:
        return EventStream(answer.chunks(), group.close)
    return await single_body(request, answer.body(), group.close)


def _encode(tokenizer: Tokenizer, prompts: Sequence[Prompt]) -> list[list[int]]:
    """Texts get a begin token, token ids are taken as they are."""
    return [tokenizer.completion_prompt(prompt) if isinstance(prompt, str) else prompt for prompt in prompts]


class _Completion:
    def __init__(self, served: ServedModel, body: CompletionRequest, group: Group) -> None:
        self._tokenizer = served.tokenizer
        self._fields = body
        self._group = group
        self._envelope = Envelope("cmpl", served, body, group)

    async def chunks(self) -> AsyncIterator[dict[str, Any]]:
        async for choice, growth in self._growths():
            if growth.text or growth.finish_reason or (growth.token_ids and self._fields.logprobs is not None):
                yield self._envelope.chunk(KIND, [self._choice(choice, growth)])
        if self._envelope.wants_usage:
            yield self._envelope.usage_chunk(KIND)

    async def body(self) -> dict[str, Any]:
        whole = [Growth() for _ in self._group.requests]
        async for choice, growth in self._growths():
            whole[choice].extend(growth)
        return self._envelope.body(KIND, [self._choice(choice, growth) for choice, growth in enumerate(whole)])

    async def _growths(self) -> AsyncIterator[tuple[int, Growth]]:
        """The continuations', with the prompt in front if it is to be echoed."""
        echoed: dict[int, int] = {}  # choice -> characters of its prompt
        async for choice, growth in self._group.growths(drafts_apart=self._fields.marks_drafts):
            if self._fields.max_tokens == 0:  # the engine always makes one
                growth = Growth(finish_reason=growth.finish_reason)
            self._envelope.completion_tokens += len(growth.token_ids)
            if self._fields.echo:
                front = Growth() if choice in echoed else self._prompt(choice)
                shift = echoed.setdefault(choice, len(front.text))
                growth.offsets = [offset + shift for offset in growth.offsets]
                front.extend(growth)
                growth = front
            yield choice, growth

    def _prompt(self, choice: int) -> Growth:
        request = self._group.first_of_prompt(choice)
        given = self._fields.prompts[choice // self._fields.samples]
        growth = Growth(token_ids=request.token_ids[: request.prompt_length])
        detokenizer = IncrementalDetokenizer(self._tokenizer)
        for token in growth.token_ids:
            growth.offsets.append(len(growth.text))
            growth.text += detokenizer.push([token])
        growth.text = given if isinstance(given, str) else growth.text + detokenizer.finish()
        growth.logprobs = list(request.prompt_logprobs or ())
        return growth

    def _choice(self, choice: int, growth: Growth) -> dict[str, Any]:
        logprobs = None
        if self._fields.logprobs is not None:
            logprobs = completion_logprobs(self._tokenizer, growth.token_ids, growth.logprobs, growth.offsets)
        drafted = {"drafted": growth.drafted} if self._fields.marks_drafts else {}
        ended = {"seed": self._envelope.seed_of(choice)} if growth.finish_reason else {}
        return {
            "index": choice,
            "text": growth.text,
            "logprobs": logprobs,
            "finish_reason": growth.finish_reason,
            **drafted,
            **ended,
        }
