"""One arm under one load, once: what its clients saw, and what its drafter did meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.bench.distinct import distinct_share


@dataclass(frozen=True)
class Load:
    """Either `concurrency` requests at any time, or arrivals at `request_rate` a second (Poisson), of num_prompts."""

    num_prompts: int
    concurrency: int | None = None
    request_rate: float | None = None

    def __post_init__(self) -> None:
        assert (self.concurrency is None) != (self.request_rate is None)

    @property
    def label(self) -> str:
        return f"{self.request_rate:g}/s" if self.request_rate is not None else str(self.concurrency)


@dataclass(frozen=True)
class RequestTiming:
    """Seconds of one clock. output: token ids in this process, text over HTTP. error: why it gave none."""

    sent: float
    first_token: float
    last_token: float
    prompt_tokens: int
    output_tokens: int
    output: tuple[int, ...] | str
    error: str | None = None

    @property
    def time_to_first_token(self) -> float:
        return self.first_token - self.sent

    @property
    def end_to_end(self) -> float:
        return self.last_token - self.sent

    @property
    def time_per_output_token(self) -> float | None:
        """(last - first token) / (tokens - 1); None for a single token. Gaps between chunks are something else."""
        if self.output_tokens < 2:
            return None
        return (self.last_token - self.first_token) / (self.output_tokens - 1)

    @property
    def distinct_4grams(self) -> float | None:
        """Of tokens, or of words where only the text is known."""
        return distinct_share(self.output.split() if isinstance(self.output, str) else self.output)


@dataclass(frozen=True)
class DraftCounts:
    """num_drafts: target passes over at least one draft. Counts as in the metrics `vllm:spec_decode_*`."""

    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens: int
    accepted_per_position: tuple[int, ...]

    @property
    def acceptance_length(self) -> float | None:
        """Tokens a target pass with drafts gives, the target's own included."""
        return 1 + self.num_accepted_tokens / self.num_drafts if self.num_drafts else None

    @property
    def acceptance_per_position(self) -> list[float]:
        """Share of the passes with drafts in which the draft at that place was there and stood."""
        return [accepted / self.num_drafts for accepted in self.accepted_per_position] if self.num_drafts else []


def add_counts(counts: Sequence[DraftCounts]) -> DraftCounts:
    depth = max((len(each.accepted_per_position) for each in counts), default=0)
    padded = [each.accepted_per_position + (0,) * (depth - len(each.accepted_per_position)) for each in counts]
    return DraftCounts(
        sum(each.num_drafts for each in counts),
        sum(each.num_draft_tokens for each in counts),
        sum(each.num_accepted_tokens for each in counts),
        tuple(map(sum, zip(*padded, strict=True))),
    )


@dataclass(frozen=True)
class Window:
    """requests: in the order of the prompts. seconds: from the first sent to the last token.

    drafts: None where the server does not say. cached_prompt_tokens: of all prompt tokens, found in a prefix cache.
    """

    requests: tuple[RequestTiming, ...]
    seconds: float
    drafts: DraftCounts | None
    cached_prompt_tokens: int | None

    @property
    def output_tokens_per_second(self) -> float:
        return sum(request.output_tokens for request in self.requests) / self.seconds
