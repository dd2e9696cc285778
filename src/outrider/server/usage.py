"""What a request cost and what speculation did for it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from outrider.engine.request import Request


def usage_body(groups: Sequence[Sequence[Request]], completion_tokens: int, reasoning_tokens: int) -> dict[str, Any]:
    """groups: the continuations of each prompt. A prompt counts once, whatever n is. reasoning_tokens: those of
    completion_tokens that went into thinking, `</think>` included."""
    prompt_tokens = sum(group[0].prompt_length for group in groups)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(group[0].num_cached or 0 for group in groups)},
        "completion_tokens_details": {"reasoning_tokens": reasoning_tokens},
        "speculation": speculation_body([request for group in groups for request in group]),
    }


def speculation_body(requests: Sequence[Request]) -> dict[str, Any]:
    """Sums over requests; acceptance_length is tokens per target pass after the first token, bonus included."""
    statistics = [request.statistics for request in requests]
    steps = sum(s.num_steps for s in statistics)
    emitted = sum(s.num_emitted_tokens for s in statistics)
    return {
        "num_steps": steps,
        "num_drafts": sum(s.num_drafts for s in statistics),
        "num_draft_tokens": sum(s.num_draft_tokens for s in statistics),
        "num_accepted_tokens": sum(s.num_accepted_tokens for s in statistics),
        "num_draft_tokens_per_pos": _sum_per_position([s.drafted_per_position for s in statistics]),
        "num_accepted_tokens_per_pos": _sum_per_position([s.accepted_per_position for s in statistics]),
        "acceptance_length": emitted / steps if steps else None,
    }


def _sum_per_position(counts: Sequence[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip_longest(*counts, fillvalue=0)]
