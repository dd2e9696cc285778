"""Which rows of which requests the next step computes.

Running requests go first, in their order: every decoding one gets its row, then what is left of the token budget goes
to drafts and to prefill chunks, and at last new requests are admitted. When pages run short, the request that comes
last in the order gives all of its own back and is computed again later; the first one can always have what it needs,
so somebody always makes progress.
"""

from __future__ import annotations

import bisect
import time
from dataclasses import dataclass

from outrider.cache.paged_cache import PagedCache
from outrider.cache.prefix import block_names
from outrider.engine.request import Request, Status


@dataclass(frozen=True)
class Limits:
    """max_num_batched_tokens: rows of a step, drafts included. max_prefill_tokens: of them, for prefill chunks while
    other requests decode. max_num_seqs: requests that run at a time."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_prefill_tokens: int


@dataclass(frozen=True)
class Work:
    """Rows of one request in a step: positions start .. start + count - 1, the last `len(request.drafts)` of them
    drafts when it decodes."""

    request: Request
    start: int
    count: int


class Scheduler:
    """First come, first served, within priorities."""

    def __init__(self, cache: PagedCache, limits: Limits) -> None:
        self._cache = cache
        self._limits = limits
        self.waiting: list[Request] = []
        self.running: list[Request] = []

    def add(self, request: Request) -> None:
        bisect.insort(self.waiting, request, key=_order)

    def remove(self, request: Request) -> None:
        """Takes a request out, in any state; its pages go back."""
        (self.running if request.status is Status.RUNNING else self.waiting).remove(request)
        request.pages.release()
        request.drafts = []
        request.status = Status.FINISHED

    def schedule(self) -> list[Work]:
        """Reserves pages and returns the rows of the next step; empty when nothing waits or runs."""
        work: dict[Request, Work] = {}
        decoding = [r for r in self.running if not r.prefilling]
        prefill_wanted = len(decoding) < len(self.running) or bool(self.waiting)
        budget = self._limits.max_num_batched_tokens
        # drafts never take the share with which a waiting prompt gets on
        kept_for_prompts = min(budget // 4, self._limits.max_prefill_tokens) if prefill_wanted else 0
        drafts_left = budget - len(decoding) - kept_for_prompts
        for request in decoding:
            if request.status is not Status.RUNNING:  # preempted by one before it
                continue
            del request.drafts[max(drafts_left, 0) :]
            if self._make_room(request, len(request.token_ids) + len(request.drafts), work):
                drafts_left -= len(request.drafts)
                count = 1 + len(request.drafts)
                work[request] = Work(request, request.num_computed, count)
        budget -= sum(item.count for item in work.values())
        if work:
            budget = min(budget, self._limits.max_prefill_tokens)
        for request in [r for r in self.running if r.prefilling]:
            if request.status is Status.RUNNING and budget > 0:
                budget -= self._prefill(request, budget, work)
        self._admit(budget, work)
        return list(work.values())

    def _prefill(self, request: Request, budget: int, work: dict[Request, Work]) -> int:
        """Rows that it was given."""
        count = min(request.uncomputed, budget)
        if not self._make_room(request, request.num_computed + count, work):
            return 0
        work[request] = Work(request, request.num_computed, count)
        return count

    def _admit(self, budget: int, work: dict[Request, Work]) -> None:
        """Admits waiting requests in order, until one does not fit; nobody is preempted for a new one."""
        ready = [r for r in self.waiting if r.follows is None or _prompt_done(r.follows)]
        for request in ready:
            if budget <= 0 or len(self.running) >= self._limits.max_num_seqs:
                return
            self._resume_from_prefix(request)
            count = min(request.uncomputed, budget)
            if not request.pages.can_reserve(self._reach(request, request.num_computed + count)):
                request.pages.release()
                request.num_computed = 0
                return
            self.waiting.remove(request)
            request.status = Status.RUNNING
            bisect.insort(self.running, request, key=_order)
            if request.num_cached is None:
                request.num_cached = request.num_computed
                request.admitted_at = time.monotonic()
            budget -= self._prefill(request, budget, work)

    def _resume_from_prefix(self, request: Request) -> None:
        """Starts a request, which holds nothing, at the end of the deepest block that is still in the cache."""
        request.num_computed = request.num_registered = 0
        request.drafter_first = request.drafter_next = 1
        if request.salt is None:
            return
        request.block_names = block_names(request.token_ids, request.salt)
        if request.params.prompt_logprobs is not None:
            return  # every prompt row has to be computed
        hit = self._cache.prefixes.find(request.block_names, len(request.token_ids))
        if hit is None:
            return
        self._cache.prefixes.adopt(hit, request.pages)
        request.num_computed = request.drafter_next = hit.length
        request.num_registered = len(hit.entries)
        if not self._cache.has_drafter_rows[hit.window]:
            request.drafter_first = hit.length

    def _make_room(self, request: Request, length: int, work: dict[Request, Work]) -> bool:
        """Reserves pages for positions below `length` and the drafts after them, preempting from the end of the order.

        False: the request itself was the last one and has been preempted.
        """
        reach = self._reach(request, length)
        while not request.pages.can_reserve(reach):
            victim = self.running[-1]
            work.pop(victim, None)
            self._preempt(victim)
            if victim is request:
                return False
        request.pages.reserve(reach)
        return True

    def _preempt(self, request: Request) -> None:
        self.running.remove(request)
        request.pages.release()
        request.num_computed = 0
        request.num_preemptions += 1
        request.drafts = []
        request.status = Status.WAITING
        self.add(request)

    @staticmethod
    def _reach(request: Request, length: int) -> int:
        """Positions that a step to `length` may write: the drafter looks ahead of the token that is sampled."""
        return min(length + 1 + request.depth, request.max_length + request.depth)


def _order(request: Request) -> tuple[int, int]:
    return request.order


def _prompt_done(request: Request) -> bool:
    return request.status is Status.FINISHED or request.num_computed >= request.prompt_length
