"""All continuations of one HTTP request: admitted together, read together, left together."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from outrider.engine.async_engine import RequestStream
from outrider.engine.request import Request, StepOutput
from outrider.sampling.constraints import TokenMask
from outrider.sampling.noise import derived_seed
from outrider.sampling.params import SamplingParams
from outrider.server.continuation import Continuation, Growth, split_step
from outrider.server.errors import SERVER, ApiError
from outrider.server.fields import GenerationFields
from outrider.server.metrics import RequestMeter
from outrider.server.served_model import ServedModel


class Group:
    """Choice i belongs to prompt i // n. Close it, whatever happens."""

    def __init__(self, served: ServedModel, places: int, samples: int) -> None:
        """places: what was taken of the server's admission, given back at the end."""
        self._served = served
        self._places = places
        self._samples = samples
        self._streams: list[RequestStream] = []
        self._meters: list[RequestMeter] = []
        self._closed = False

    @classmethod
    async def start(
        cls,
        served: ServedModel,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        fields: GenerationFields,
        masks: Sequence[TokenMask] = (),
    ) -> Group:
        """Queues `fields.samples` continuations of each prompt. Samples of a prompt share its blocks.

        masks: what each continuation of the only prompt may say; none if they may say anything.

        Raises ApiError, ConfigError and EngineDeadError; then nothing is left behind.
        """
        samples = fields.samples
        speculation = fields.speculation_depth(served.depth)
        places = len(prompts) * samples
        served.admission.enter(places, "n" if samples > 1 else "prompt")
        group = cls(served, places, samples)
        try:
            for prompt in prompts:
                await group._add_prompt(prompt, params, fields, speculation, masks)
        except BaseException:
            group.close()
            raise
        return group

    async def _add_prompt(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        fields: GenerationFields,
        speculation: int | None,
        masks: Sequence[TokenMask],
    ) -> None:
        seed = self._served.engine.new_seed() if params.seed is None else params.seed
        salt = self._salt(fields.cache_salt)
        first: Request | None = None
        for index in range(self._samples):
            own = replace(
                params,
                seed=seed if self._samples == 1 else derived_seed(seed, index),
                prompt_logprobs=params.prompt_logprobs if first is None else None,
            )
            stream = await self._served.engine.add(
                prompt,
                own,
                speculation=speculation,
                priority=fields.priority,
                mask=masks[index] if masks else None,
                salt=salt,
                follows=first,
            )
            first = first or stream.request
            self._streams.append(stream)
            self._meters.append(RequestMeter(self._served.metrics, stream.request))

    def _salt(self, cache_salt: str | None) -> bytes | None:
        if not self._served.prefix_caching:
            return secrets.token_bytes(16) if self._samples > 1 else None
        return None if cache_salt is None else cache_salt.encode()

    @property
    def requests(self) -> list[Request]:
        """By choice."""
        return [stream.request for stream in self._streams]

    @property
    def by_prompt(self) -> list[list[Request]]:
        requests, n = self.requests, self._samples
        return [requests[start : start + n] for start in range(0, len(requests), n)]

    def first_of_prompt(self, choice: int) -> Request:
        """The request that computed the prompt of this choice."""
        return self._streams[choice - choice % self._samples].request

    async def growths(self, *, drafts_apart: bool = False) -> AsyncIterator[tuple[int, Growth]]:
        """(choice, what a step adds to its text) until all have ended. Errors as for `_steps`.

        drafts_apart: a step with drafts that stood gives two, theirs and the target's own token's.
        """
        tokenizer = self._served.tokenizer
        texts = [Continuation(tokenizer, request.params.stop) for request in self.requests]
        async for choice, output in self._steps():
            for part in split_step(output) if drafts_apart else (output,):
                yield choice, texts[choice].push(part)

    async def _steps(self) -> AsyncIterator[tuple[int, StepOutput]]:
        """(choice, what a step published of it) until all have ended.

        Raises EngineDeadError, and ApiError for a request that ended with an error.
        """
        merged: asyncio.Queue[tuple[int, StepOutput | Exception]] = asyncio.Queue()
        pumps = [asyncio.create_task(_pump(merged, i, stream)) for i, stream in enumerate(self._streams)]
        try:
            running = len(pumps)
            while running:
                choice, item = await merged.get()
                if isinstance(item, Exception):
                    raise item
                self._meters[choice].step(item)
                if item.finish_reason == "error":
                    raise ApiError(500, item.request.error or "the request failed", kind=SERVER, code="request_failed")
                running -= item.finish_reason is not None
                yield choice, item
        finally:
            for pump in pumps:
                pump.cancel()

    def close(self) -> None:
        """Aborts what still runs."""
        if self._closed:
            return
        self._closed = True
        for stream in self._streams:
            stream.close()
        for meter in self._meters:
            meter.end("abort")
        self._served.admission.leave(self._places)


async def _pump(merged: asyncio.Queue[tuple[int, StepOutput | Exception]], choice: int, stream: RequestStream) -> None:
    try:
        async for output in stream:
            merged.put_nowait((choice, output))
    except Exception as error:
        merged.put_nowait((choice, error))
