"""One request run once, with its clock: what `outrider generate` reports comes from here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from outrider.engine.engine import Engine
from outrider.engine.request import FinishReason, StepOutput
from outrider.sampling.params import SamplingParams
from outrider.speculative.statistics import SpeculationStatistics


@dataclass(frozen=True)
class TimedRun:
    """A finished request. first_token_seconds counts from admission (prefill included), decode_seconds from there."""

    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    seed: int
    statistics: SpeculationStatistics
    first_token_seconds: float
    decode_seconds: float

    @property
    def tokens_per_second(self) -> float | None:
        """Decode only: the tokens after the first, over the time after the first. None for a single token."""
        decoded = len(self.token_ids) - 1
        return decoded / self.decode_seconds if decoded > 0 else None


def run_once(
    engine: Engine,
    prompt_token_ids: Sequence[int],
    params: SamplingParams,
    on_step: Callable[[StepOutput], None] | None = None,
) -> TimedRun:
    """Runs a request to its end. Raises ConfigError (see `Engine.add_request`) and LogitsError."""
    start = perf_counter()
    request = engine.add_request(prompt_token_ids, params)
    first_token = None
    for output in engine.generate(request):
        if first_token is None:
            first_token = perf_counter()
        if on_step is not None:
            on_step(output)
    end = perf_counter()
    assert first_token is not None and request.finish_reason is not None
    return TimedRun(
        token_ids=tuple(request.output_token_ids),
        finish_reason=request.finish_reason,
        seed=request.sampler.seed,
        statistics=request.statistics,
        first_token_seconds=first_token - start,
        decode_seconds=end - first_token,
    )


def statistics_report(statistics: SpeculationStatistics) -> dict[str, Any]:
    """Counts and rates of one request, as they stand in --json."""
    return {
        "num_steps": statistics.num_steps,
        "num_drafts": statistics.num_drafts,
        "num_draft_tokens": statistics.num_draft_tokens,
        "num_accepted_tokens": statistics.num_accepted_tokens,
        "acceptance_length": statistics.acceptance_length,
        "acceptance_per_position": statistics.acceptance_per_position,
        "acceptance_given_previous": statistics.conditional_acceptance,
    }
