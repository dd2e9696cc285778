"""What a caller gets for a prompt."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.engine.request import Request
from outrider.engine.stopping import FinishReason
from outrider.sampling.logprobs import TokenLogprobs
from outrider.speculative.statistics import SpeculationStatistics
from outrider.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class CompletionOutput:
    """One of a prompt's `n` continuations. seed: repeats it. logprobs: one entry a token, if they were asked for."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    seed: int
    statistics: SpeculationStatistics
    logprobs: tuple[TokenLogprobs, ...] | None = None
    error: str | None = None


@dataclass(frozen=True)
class RequestOutput:
    """A prompt and its continuations. num_cached_tokens: prompt tokens that the prefix cache saved the first one."""

    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...]
    num_cached_tokens: int
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None


def completion_output(
    index: int, request: Request, tokenizer: Tokenizer, logprobs: tuple[TokenLogprobs, ...] | None
) -> CompletionOutput:
    """The result of a finished request; its text ends in front of a stop string."""
    assert request.finish_reason is not None
    return CompletionOutput(
        index=index,
        text=tokenizer.decode(request.output_token_ids)[: request.stop_rules.text_limit],
        token_ids=tuple(request.output_token_ids),
        finish_reason=request.finish_reason,
        seed=request.sampler.seed,
        statistics=request.statistics,
        logprobs=logprobs,
        error=request.error,
    )
