"""The MTP drafter of one request: keeps the layer's cache in step with the committed tokens, then looks ahead.

After every target pass the rows of the newly committed tokens are written from the trunk's own streams (replacing what
earlier drafts left there), and the last of them gives the first draft. Each further one feeds the layer's output back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from outrider.cache.batch import RequestRows
from outrider.cache.paged_cache import LayerCache
from outrider.cache.pages import RequestPages
from outrider.model.mtp import MultiTokenPredictor

Sample = Callable[[Tensor, list[int]], list[int]]


class MtpDrafter:
    """Drafts with one MTP layer at any depth."""

    def __init__(self, layer: MultiTokenPredictor, cache: LayerCache) -> None:
        self._layer = layer
        self._cache = cache

    def catch_up(self, previous_streams: Tensor, token_ids: Sequence[int], pages: RequestPages, start: int) -> None:
        """Writes the rows of committed tokens at start, start + 1, ... without drafting (a prefill chunk).

        previous_streams: [T, n, d], the trunk's, of the tokens at start - 1, start, ...
        """
        rows = [RequestRows(pages, start, len(token_ids))]
        ids = torch.tensor(token_ids)
        self._layer.forward(previous_streams, ids, rows, self._cache, query_rows=[])

    def propose(
        self,
        previous_streams: Tensor,
        token_ids: Sequence[int],
        pages: RequestPages,
        start: int,
        depth: int,
        sample: Sample,
    ) -> list[int]:
        """Writes the rows of committed tokens as `catch_up` does, then drafts `depth` >= 1 tokens after the last.

        `sample` is the request's own sampler: the same noise at the same positions as the target will use. Pages must
        be reserved up to position start + len(token_ids) + depth - 2.
        """
        count = len(token_ids)
        rows = [RequestRows(pages, start, count)]
        ids = torch.tensor(token_ids)
        streams = self._layer.forward(previous_streams, ids, rows, self._cache, query_rows=[count - 1])
        position = start + count  # of the token being drafted
        drafts = sample(self._layer.logits(streams), [position])
        while len(drafts) < depth:
            rows = [RequestRows(pages, position, 1)]
            streams = self._layer.forward(streams, torch.tensor(drafts[-1:]), rows, self._cache)
            position += 1
            drafts += sample(self._layer.logits(streams), [position])
        return drafts
