"""From windows to the figures of a result file.

Times are pooled over the requests of all rounds. Rates and ratios are taken a round, and their median stands beside the
least and the largest: a ratio is of two windows that ran one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

import numpy as np

from outrider.bench.sweep import Cell
from outrider.bench.window import Window, add_counts

PERCENTILES = (50, 90, 99)


def cell_report(cell: Cell) -> dict[str, Any]:
    """{"concurrency", "request_rate", "num_prompts", "arms": {name: figures}}; ratios are to the first arm."""
    first = next(iter(cell.windows.values()))
    return {
        "concurrency": cell.load.concurrency,
        "request_rate": cell.load.request_rate,
        "num_prompts": cell.load.num_prompts,
        "arms": {name: _arm_report(windows, first) for name, windows in cell.windows.items()},
    }


def same_output(cell: Cell) -> bool:
    """Whether all rounds of all arms gave the same answers; a request that failed is never the same."""
    first, *others = [[(r.output, r.error) for r in w.requests] for ws in cell.windows.values() for w in ws]
    return all(error is None for _, error in first) and all(other == first for other in others)


def percentiles(values: Iterable[float | None], scale: float = 1.0) -> dict[str, float] | None:
    """{"p50": ..., "p90": ..., "p99": ...}, interpolated, of those that are not None; None if there are none."""
    known = [value * scale for value in values if value is not None]
    if not known:
        return None
    return {f"p{p}": float(found) for p, found in zip(PERCENTILES, np.percentile(known, PERCENTILES), strict=True)}


def _arm_report(windows: Sequence[Window], first: Sequence[Window]) -> dict[str, Any]:
    requests = [request for window in windows for request in window.requests if request.error is None]
    errors = [request.error for window in windows for request in window.requests if request.error is not None]
    known = [window.drafts for window in windows if window.drafts is not None]
    drafts = add_counts(known) if known else None
    distinct = [share for request in requests if (share := request.distinct_4grams) is not None]
    cached = [window.cached_prompt_tokens for window in windows]
    prompt_tokens = sum(request.prompt_tokens for request in requests)
    return {
        "output_tokens_per_second": _spread([window.output_tokens_per_second for window in windows]),
        "requests_per_second": _spread([len(window.requests) / window.seconds for window in windows]),
        "tokens_per_second_per_user": _spread([_per_user(window) for window in windows]),
        "ratio": _ratio(windows, first, lambda window: window.output_tokens_per_second),
        "ratio_per_user": _ratio(windows, first, _per_user),
        "ttft_ms": percentiles((r.time_to_first_token for r in requests), 1e3),
        "tpot_ms": percentiles((r.time_per_output_token for r in requests), 1e3),
        "e2e_ms": percentiles((r.end_to_end for r in requests), 1e3),
        "acceptance_length": drafts.acceptance_length if drafts else None,
        "acceptance_per_position": drafts.acceptance_per_position if drafts else None,
        "drafts_per_pass": drafts.num_draft_tokens / drafts.num_drafts if drafts and drafts.num_drafts else None,
        "distinct_4grams": sum(distinct) / len(distinct) if distinct else None,
        "num_requests": len(requests),
        "num_failed": len(errors),
        "first_error": errors[0] if errors else None,
        "prompt_tokens": prompt_tokens,
        "output_tokens": sum(request.output_tokens for request in requests),
        "cached_prompt_tokens": None if None in cached else sum(tokens for tokens in cached if tokens is not None),
    }


def _per_user(window: Window) -> float | None:
    """1 / the median time per output token."""
    times = [time for r in window.requests if r.error is None and (time := r.time_per_output_token)]
    return 1 / median(times) if times else None


def _ratio(windows: Sequence[Window], first: Sequence[Window], rate: Any) -> dict[str, float] | None:
    pairs = [(rate(own), rate(base)) for own, base in zip(windows, first, strict=True)]
    return _spread([own / base if own and base else None for own, base in pairs])


def _spread(values: Sequence[float | None]) -> dict[str, float] | None:
    known = [value for value in values if value is not None]
    return {"median": median(known), "low": min(known), "high": max(known)} if known else None
