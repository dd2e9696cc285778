"""Windows made by hand."""

from __future__ import annotations

from outrider.bench.window import DraftCounts, RequestTiming, Window

NO_DRAFTS = DraftCounts(0, 0, 0, ())


def timing(first: float, last: float, output: tuple[int, ...], error: str | None = None) -> RequestTiming:
    return RequestTiming(0.0, first, last, 10, len(output), output, error)


def window(seconds: float, *requests: RequestTiming, drafts: DraftCounts | None = NO_DRAFTS) -> Window:
    return Window(requests, seconds, drafts, cached_prompt_tokens=0)
