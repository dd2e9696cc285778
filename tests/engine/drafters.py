"""Drafters whose guesses are known: the cache is kept by the real one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from outrider.cache.pages import RequestPages
from outrider.engine.engine import Engine
from outrider.sampling.params import SamplingParams
from outrider.speculative.drafter import DraftJob, MtpDrafter


class OracleDrafter:
    """Knows one request's tokens. Right for exactly `right[i]` of the drafts of its i-th proposal (round and round)."""

    def __init__(self, inner: MtpDrafter, truth: Sequence[int], right: Sequence[int], vocab_size: int) -> None:
        self._inner = inner
        self._truth = list(truth)
        self._right = right
        self._vocab_size = vocab_size
        self.proposed: list[tuple[int, int]] = []  # (drafted, right) of each proposal

    def run(self, jobs: Sequence[DraftJob]) -> list[list[int]]:
        self._inner.run(jobs)
        return [self._drafts(job) for job in jobs]

    def _drafts(self, job: DraftJob) -> list[int]:
        if job.depth == 0:
            return []
        drafts = self._truth[job.start + len(job.token_ids) :][: job.depth]
        right = min(self._right[len(self.proposed) % len(self._right)], len(drafts))
        if right < len(drafts):
            drafts[right] = (drafts[right] + 1) % self._vocab_size
        self.proposed.append((len(drafts), right))
        return drafts


class BatchedOracle:
    """Oracles for some requests of a batch, as `OracleDrafter` for one; the others draft with the MTP layer."""

    def __init__(self, inner: MtpDrafter, vocab_size: int) -> None:
        self._inner = inner
        self._vocab_size = vocab_size
        self._known: dict[int, tuple[RequestPages, list[int], Sequence[int], list[int]]] = {}

    def know(self, pages: RequestPages, truth: Sequence[int], right: Sequence[int]) -> None:
        """The request that holds `pages` is right for exactly `right[i]` of its i-th drafts (round and round)."""
        self._known[id(pages)] = (pages, list(truth), right, [])

    def run(self, jobs: Sequence[DraftJob]) -> list[list[int]]:
        return self._inner.run([self._told(job) if id(job.pages) in self._known else job for job in jobs])

    def _told(self, job: DraftJob) -> DraftJob:
        """The same job with the oracle's tokens in place of draws: the MTP layer writes the rows of what is drafted."""
        if job.depth == 0:
            return job
        _, truth, pattern, proposals = self._known[id(job.pages)]
        tokens = truth[job.start + len(job.token_ids) :][: job.depth]
        right = min(pattern[len(proposals) % len(pattern)], len(tokens))
        if right < len(tokens):
            tokens[right] = (tokens[right] + 1) % self._vocab_size
        proposals.append(right)
        return replace(job, draw=lambda _, drafts: tokens[len(drafts)] if len(drafts) < len(tokens) else None)


class TargetCopyDrafter:
    """Drafts with the target itself, through the sampler it is handed."""

    def __init__(self, engine: Engine, prompt: Sequence[int]) -> None:
        self._engine = engine
        self._tokens = list(prompt)

    def run(self, jobs: Sequence[DraftJob]) -> list[list[int]]:
        (job,) = jobs
        self._tokens[job.start :] = job.token_ids
        drafts: list[int] = []
        for _ in range(job.depth):
            draft = job.draw(self._logits([*self._tokens, *drafts]), drafts)
            assert draft is not None
            drafts.append(draft)
        return [drafts]

    def _logits(self, tokens: list[int]) -> Tensor:
        """Of the token after these, from a prefill of all of them."""
        request = self._engine.add_request(tokens, SamplingParams(max_tokens=1))
        (work,) = self._engine.scheduler.schedule()
        streams = self._engine.runner._forward([work])
        self._engine.abort(request)
        return self._engine.runner.model.logits(streams[-1:])
