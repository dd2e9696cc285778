"""One request on its way through the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from outrider.cache.pages import RequestPages
from outrider.sampling.sampler import Sampler
from outrider.speculative.statistics import SpeculationStatistics

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class StepOutput:
    """Tokens that one step published. The first `accepted_drafts` of them had been drafted."""

    token_ids: tuple[int, ...]
    accepted_drafts: int
    finish_reason: FinishReason | None


@dataclass
class Request:
    """token_ids: prompt, then what was generated. num_computed: how many of them have rows in the cache."""

    prompt_length: int
    token_ids: list[int]
    sampler: Sampler
    pages: RequestPages
    max_length: int  # of token_ids
    stop_token_ids: frozenset[int]
    num_computed: int = 0
    drafts: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    statistics: SpeculationStatistics = field(default_factory=SpeculationStatistics)

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.prompt_length :]

    @property
    def remaining(self) -> int:
        """Tokens that may still be generated."""
        return self.max_length - len(self.token_ids)

    def advance(self, token_ids: list[int]) -> list[int]:
        """Appends tokens one by one until a stop rule holds; returns those that were kept.

        A stop token is kept (it is the end of the text) and whatever follows it is as if it had never been.
        """
        kept = 0
        for token in token_ids:
            self.token_ids.append(token)
            kept += 1
            if token in self.stop_token_ids:
                self.finish_reason = "stop"
            elif self.remaining == 0:
                self.finish_reason = "length"
            if self.finish_reason is not None:
                break
        return token_ids[:kept]
