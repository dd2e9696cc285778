"""One request on its way through the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from outrider.cache.pages import BlockName, RequestPages
from outrider.engine.stopping import FinishReason, StopRules
from outrider.sampling.logprobs import TokenLogprobs
from outrider.sampling.params import SamplingParams
from outrider.sampling.sampler import Sampler
from outrider.speculative.statistics import SpeculationStatistics


class Status(Enum):
    WAITING = auto()  # no pages; new, or preempted
    RUNNING = auto()
    FINISHED = auto()


@dataclass(frozen=True)
class StepOutput:
    """Tokens that one step published of one request. The first `accepted_drafts` of them had been drafted."""

    request: Request
    token_ids: tuple[int, ...]
    accepted_drafts: int
    finish_reason: FinishReason | None
    logprobs: tuple[TokenLogprobs, ...] | None = None


@dataclass(eq=False)
class Request:
    """token_ids: prompt, then what was generated. num_computed: how many of them have rows in the cache.

    order: (priority, arrival); the lowest goes first. salt: requests share blocks with equal salts only.
    """

    request_id: str
    prompt_length: int
    token_ids: list[int]
    params: SamplingParams
    sampler: Sampler
    stop_rules: StopRules
    pages: RequestPages
    max_length: int  # of token_ids
    depth: int  # drafts a step, at most; 0: no speculation
    order: tuple[int, int]
    salt: bytes | None = None  # None: neither shares blocks nor leaves any
    follows: Request | None = None  # waits until this one's prompt is computed, to share its blocks
    status: Status = Status.WAITING
    num_computed: int = 0
    num_cached: int | None = None  # prompt tokens that the prefix cache saved, at first admission
    admitted_at: float | None = None  # time.monotonic() of the first admission
    num_preemptions: int = 0
    drafts: list[int] = field(default_factory=list)
    # Positions of the drafter's rows: the first that is there, and the next to be written.
    drafter_first: int = 1
    drafter_next: int = 1
    block_names: list[BlockName] = field(default_factory=list)
    num_registered: int = 0  # blocks
    finish_reason: FinishReason | None = None
    error: str | None = None
    statistics: SpeculationStatistics = field(default_factory=SpeculationStatistics)
    prompt_logprobs: list[TokenLogprobs | None] | None = None

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.prompt_length :]

    @property
    def remaining(self) -> int:
        """Tokens that may still be generated."""
        return self.max_length - len(self.token_ids)

    @property
    def uncomputed(self) -> int:
        """Tokens without rows: 1 while decoding, more while prefilling."""
        return len(self.token_ids) - self.num_computed

    @property
    def prefilling(self) -> bool:
        return self.uncomputed > 1 or self.num_computed < self.prompt_length - 1

    def advance(self, token_ids: list[int]) -> list[int]:
        """Appends tokens one by one until a stop rule holds; returns those that were kept.

        A stop token is kept (it is the end of the text) and whatever follows it is as if it had never been.
        """
        kept = 0
        for token in token_ids:
            self.token_ids.append(token)
            kept += 1
            self.finish_reason = self.stop_rules.push(token)
            if self.finish_reason is not None:
                break
        self.sampler.accept(token_ids[:kept])
        return token_ids[:kept]
