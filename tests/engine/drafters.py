"""Drafters whose guesses are known: the cache is kept by the real one, the tokens are replaced."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from outrider.cache.pages import RequestPages
from outrider.engine.engine import Engine
from outrider.sampling.params import SamplingParams
from outrider.speculative.drafter import MtpDrafter, Sample


class OracleDrafter:
    """Right for exactly `right[i]` of the drafts of its i-th proposal (all the way round), then wrong."""

    def __init__(self, inner: MtpDrafter, truth: Sequence[int], right: Sequence[int], vocab_size: int) -> None:
        self._inner = inner
        self._truth = list(truth)
        self._right = right
        self._vocab_size = vocab_size
        self.proposed: list[tuple[int, int]] = []  # (drafted, right) of each proposal

    def catch_up(self, previous_streams: Tensor, token_ids: Sequence[int], pages: RequestPages, start: int) -> None:
        self._inner.catch_up(previous_streams, token_ids, pages, start)

    def propose(
        self,
        previous_streams: Tensor,
        token_ids: Sequence[int],
        pages: RequestPages,
        start: int,
        depth: int,
        sample: Sample,
    ) -> list[int]:
        self._inner.propose(previous_streams, token_ids, pages, start, depth, sample)
        drafts = self._truth[start + len(token_ids) :][:depth]
        right = min(self._right[len(self.proposed) % len(self._right)], len(drafts))
        if right < len(drafts):
            drafts[right] = (drafts[right] + 1) % self._vocab_size
        self.proposed.append((len(drafts), right))
        return drafts


class TargetCopyDrafter:
    """Drafts with the target itself, through the sampler it is handed."""

    def __init__(self, engine: Engine, prompt: Sequence[int]) -> None:
        self._engine = engine
        self._tokens = list(prompt)

    def catch_up(self, previous_streams: Tensor, token_ids: Sequence[int], pages: RequestPages, start: int) -> None:
        self._tokens[start:] = token_ids

    def propose(
        self,
        previous_streams: Tensor,
        token_ids: Sequence[int],
        pages: RequestPages,
        start: int,
        depth: int,
        sample: Sample,
    ) -> list[int]:
        self._tokens[start:] = token_ids
        drafts: list[int] = []
        for _ in range(depth):
            drafts += self._next([*self._tokens, *drafts], sample)
        return drafts

    def _next(self, tokens: list[int], sample: Sample) -> list[int]:
        request = self._engine.add_request(tokens, SamplingParams(max_tokens=1))
        streams = self._engine._forward(request, tokens, 0)
        request.pages.release()
        return sample(self._engine.model.logits(streams[-1:]), [len(tokens)])
