"""Executes the rows of a step: the trunk over all of them, then draws and verification by request, then drafting."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from outrider.cache.batch import RequestRows
from outrider.cache.layout import BLOCK_TOKENS
from outrider.cache.paged_cache import PagedCache
from outrider.engine.depth_policy import DepthPolicy, FixedDepth, Verified
from outrider.engine.request import StepOutput
from outrider.engine.scheduler import Work
from outrider.model.transformer import Transformer
from outrider.sampling.logprobs import token_logprobs
from outrider.sampling.sampler import LogitsError
from outrider.speculative.acceptance_monitor import ALL_STOOD, AcceptanceMonitor
from outrider.speculative.drafter import DraftJob


class Drafter(Protocol):
    """What the engine asks of a drafter; `MtpDrafter` is the one that ships, tests bring oracles."""

    def run(self, jobs: Sequence[DraftJob]) -> list[list[int]]:
        """Writes the rows of each job and returns its drafts."""


class Runner:
    """A model, its cache and, if speculation is on, its drafter."""

    def __init__(
        self, model: Transformer, cache: PagedCache, drafter: Drafter | None = None, *, max_depth: int = 0
    ) -> None:
        self.model = model
        self.cache = cache
        self.drafter = drafter
        self.depth_policy: DepthPolicy = FixedDepth()
        self.acceptance = AcceptanceMonitor(max_depth)
        self.num_forwards = 0  # passes of the trunk

    @torch.inference_mode()
    def execute(self, work: Sequence[Work]) -> list[StepOutput]:
        """Computes the rows, advances the requests and drafts for those that go on. Pages are reserved already."""
        started = perf_counter()
        streams = self._forward(work)
        outputs = []
        verified = Verified()
        going_on: list[tuple[Work, Tensor]] = []
        for item, own in zip(work, streams.split([item.count for item in work]), strict=True):
            request, drafted, decoding = item.request, len(item.request.drafts), not item.request.prefilling
            found = self._advance(item, own)
            outputs += found
            if decoding:
                for each in found:
                    verified.add(request, drafted, each.accepted_drafts, len(each.token_ids))
            if self.drafter is not None and request.finish_reason is None:
                going_on.append((item, own))
        seconds = perf_counter() - started
        if verified.requests and self.drafter is not None:
            self.acceptance.record(np.frombuffer(verified.lengths, np.int64), *verified.counts)
        self.depth_policy.target_ran(verified, seconds, with_prompts=len(verified.requests) < len(work))
        if going_on and self.drafter is not None:
            self._draft(going_on, self.drafter)
        return outputs

    def _draft(self, going_on: Sequence[tuple[Work, Tensor]], drafter: Drafter) -> None:
        """Drafts for the requests that speculate, at the depths that were decided."""
        requests = [item.request for item, _ in going_on]
        decoding = [r for r in requests if not r.prefilling and len(r.token_ids) > r.prompt_length]
        decided = self.depth_policy.depths(decoding)
        speculating = [(item, own) for item, own in going_on if item.request.depth > 0]
        if decided is None or not speculating:
            return
        started = perf_counter()
        depths = dict(zip(decoding, decided, strict=True))
        jobs = [self._draft_job(item, own, depths.get(item.request, 0)) for item, own in speculating]
        for (item, _), drafts in zip(speculating, drafter.run(jobs), strict=True):
            item.request.drafts = drafts
            item.request.drafter_next = item.request.num_computed + 1
        seconds = perf_counter() - started
        self.depth_policy.drafter_ran(decided, seconds, with_prompts=len(decoding) < len(going_on))

    def _forward(self, work: Sequence[Work]) -> Tensor:
        rows = [RequestRows(item.request.pages, item.start, item.count) for item in work]
        ids = [t for item in work for t in [*item.request.token_ids, *item.request.drafts][item.start :][: item.count]]
        streams = self.model.forward(torch.tensor(ids), rows, self.cache)
        self.num_forwards += 1
        if self.drafter is not None:
            self._keep_last_streams(work, streams)
        return streams

    def _keep_last_streams(self, work: Sequence[Work], streams: Tensor) -> None:
        """Stores the streams of each block's last token: a request that resumes there drafts from them."""
        row = 0
        for item in work:
            for position in range(item.start | (BLOCK_TOKENS - 1), item.start + item.count, BLOCK_TOKENS):
                page = item.request.pages.window[position // BLOCK_TOKENS]
                self.cache.last_streams[page] = streams[row + position - item.start]
            row += item.count

    def _advance(self, item: Work, streams: Tensor) -> list[StepOutput]:
        """Draws behind the rows that somebody waits for; nothing while the prompt is not finished."""
        request, drafts = item.request, item.request.drafts
        request.drafts = []
        self._prompt_logprobs(item, streams)
        if item.start + item.count < len(request.token_ids):
            request.num_computed = item.start + item.count
            return []
        logits = self.model.logits(streams[-1 - len(drafts) :])
        first = len(request.token_ids) == request.prompt_length
        try:
            emitted = request.sampler.verify(logits, request.token_ids, drafts)
        except LogitsError as error:
            request.finish_reason, request.error = "error", str(error)
            return [StepOutput(request, (), 0, "error")]
        kept = request.advance(emitted)
        request.num_computed = len(request.token_ids) - 1
        accepted = min(len(emitted) - 1, len(kept))
        if not first:
            request.statistics.record(len(drafts), accepted, len(kept))
            if drafts and (passes := request.statistics.all_stood) and passes % ALL_STOOD == 0:
                self.acceptance.look_for_a_loop(request.token_ids, passes)
        count = request.params.logprobs
        logprobs = None if count is None else tuple(token_logprobs(logits[: len(kept)], kept, count))
        return [StepOutput(request, tuple(kept), accepted, request.finish_reason, logprobs)]

    def _prompt_logprobs(self, item: Work, streams: Tensor) -> None:
        request, count = item.request, item.request.params.prompt_logprobs
        if count is None or item.start >= request.prompt_length:
            return
        if request.prompt_logprobs is None:
            request.prompt_logprobs = [None]  # nothing stands before the first token
        end = min(item.start + item.count, request.prompt_length - 1)
        known = len(request.prompt_logprobs) - 1  # after a preemption rows are computed a second time
        begin = max(item.start, known)
        if begin < end:
            logits = self.model.logits(streams[begin - item.start : end - item.start])
            request.prompt_logprobs += token_logprobs(logits, request.token_ids[begin + 1 : end + 1], count)

    def _draft_job(self, item: Work, streams: Tensor, depth: int) -> DraftJob:
        """The rows whose tokens are now committed: the streams of each and the token after it.

        A drafter that did not run for a while starts anew from the rows of this pass: it sees nothing before them.
        """
        request = item.request
        at_block_end = request.drafter_next == item.start and item.start % BLOCK_TOKENS == 0
        if request.drafter_next <= item.start and not at_block_end:
            request.drafter_first = request.drafter_next = item.start + 1
        start, known = request.drafter_next, min(request.num_computed + 1, len(request.token_ids))
        previous = streams[max(start - 1 - item.start, 0) : known - 1 - item.start]
        if at_block_end:  # the streams before it lie with its page
            page = request.pages.window[(start - 1) // BLOCK_TOKENS]
            previous = torch.cat([self.cache.last_streams[page : page + 1], previous])
        return DraftJob(
            pages=request.pages,
            start=start,
            token_ids=request.token_ids[start:known],
            previous_streams=previous,
            first_position=request.drafter_first,
            depth=min(depth, request.remaining - 1),
            draw=lambda logits, drafts: request.sampler.draft(logits, request.token_ids, drafts),
        )
