"""The MTP drafter: keeps the layer's cache in step with the committed tokens, then looks ahead.

After every target pass the rows of the newly committed tokens are written from the trunk's own streams (replacing what
earlier drafts left there), and the last of them gives the first draft. Each further one feeds the layer's output back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from outrider.cache.batch import RequestRows
from outrider.cache.paged_cache import LayerCache
from outrider.cache.pages import RequestPages
from outrider.model.mtp import MultiTokenPredictor

# (logits [1, V], drafts so far) -> the next draft, or None: nothing can be guessed
Draw = Callable[[Tensor, Sequence[int]], int | None]


@dataclass(frozen=True)
class DraftJob:
    """What the drafter does for one request after a target pass.

    token_ids: committed tokens at positions start, start + 1, ... (at least one); previous_streams: [T, n, d], the
    trunk's, of the token before each. depth: tokens to draft after the last one, 0 to write rows only. Pages must be
    reserved up to position start + len(token_ids) + depth - 2. first_position: the lowest that holds a drafter row.
    draw: the request's own sampler, with the same noise at the same positions as the target will use.
    """

    pages: RequestPages
    start: int
    token_ids: Sequence[int]
    previous_streams: Tensor
    first_position: int
    depth: int
    draw: Draw


class MtpDrafter:
    """Drafts with one MTP layer at any depth, for any number of requests together."""

    def __init__(self, layer: MultiTokenPredictor, cache: LayerCache) -> None:
        self._layer = layer
        self._cache = cache

    def run(self, jobs: Sequence[DraftJob]) -> list[list[int]]:
        """The drafts of each job (at least one job)."""
        drafts: list[list[int]] = [[] for _ in jobs]
        rows = [RequestRows(job.pages, job.start, len(job.token_ids), job.first_position) for job in jobs]
        ids = torch.tensor([token for job in jobs for token in job.token_ids])
        ends = torch.tensor([len(job.token_ids) for job in jobs]).cumsum(0).tolist()
        live = [index for index, job in enumerate(jobs) if job.depth > 0]
        streams = self._layer.forward(
            torch.cat([job.previous_streams for job in jobs]),
            ids,
            rows,
            self._cache,
            query_rows=[ends[index] - 1 for index in live],
        )
        while live:
            logits = self._layer.logits(streams)
            going_on = []
            for row, index in enumerate(live):
                draft = jobs[index].draw(logits[row : row + 1], drafts[index])
                if draft is not None:
                    drafts[index].append(draft)
                    if len(drafts[index]) < jobs[index].depth:
                        going_on.append(row)
            streams = streams[going_on]
            live = [live[row] for row in going_on]
            if live:
                streams = self._next(streams, [jobs[index] for index in live], [drafts[index] for index in live])
        return drafts

    def _next(self, streams: Tensor, jobs: Sequence[DraftJob], drafts: Sequence[Sequence[int]]) -> Tensor:
        """One more row of each request: its last draft, from the streams that drafted it."""
        rows = [
            RequestRows(job.pages, job.start + len(job.token_ids) + len(own) - 1, 1, job.first_position)
            for job, own in zip(jobs, drafts, strict=True)
        ]
        return self._layer.forward(streams, torch.tensor([own[-1] for own in drafts]), rows, self._cache)
