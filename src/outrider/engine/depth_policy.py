"""How deep each request drafts: as configured, or as the depth controller buys it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from outrider.engine.request import Request, Status
from outrider.speculative.cost_tables import CostTables
from outrider.speculative.depth_controller import DepthController


class Verified(NamedTuple):
    """A decoding request's part in a target pass: its drafts, those that stood, the tokens it emitted."""

    request: Request
    drafted: int
    accepted: int
    emitted: int


class DepthPolicy(Protocol):
    """What the runner asks each step, and tells."""

    def depths(self, decoding: Sequence[Request]) -> list[int] | None:
        """Drafts for each request in the next step, at most; None: the drafter is not to run, not even for prompts."""

    def target_ran(self, verified: Sequence[Verified], seconds: float, *, with_prompts: bool) -> None:
        """A target pass, with the draws behind it; with_prompts: prompt rows were among its rows."""

    def drafter_ran(self, depths: Sequence[int], seconds: float, *, with_prompts: bool) -> None:
        """A run of the drafter for the requests of the last `depths`."""


class FixedDepth:
    """Every request drafts as deep as it may."""

    def depths(self, decoding: Sequence[Request]) -> list[int] | None:
        return [request.depth for request in decoding]

    def target_ran(self, verified: Sequence[Verified], seconds: float, *, with_prompts: bool) -> None:
        """Nothing is learned."""

    def drafter_ran(self, depths: Sequence[int], seconds: float, *, with_prompts: bool) -> None:
        """Nothing is learned."""


class AdaptiveDepth:
    """The controller, for requests instead of slots. max_num_seqs: requests that run at a time, at most."""

    def __init__(self, tables: CostTables, max_num_seqs: int) -> None:
        self._count = 2 * max_num_seqs  # preempted requests keep what is known of them as long as there is room
        self.controller = DepthController(tables, self._count)
        self._slots: dict[Request, int] = {}
        self._free = list(range(self._count))

    def depths(self, decoding: Sequence[Request]) -> list[int] | None:
        if self.controller.waits():
            return None
        most = np.array([request.depth for request in decoding], np.int64)
        if not most.any():
            return [0] * len(decoding) if self.controller.speculating else None
        depths = self.controller.decide(self._slots_of(decoding), most)
        return None if depths is None else depths.tolist()

    def target_ran(self, verified: Sequence[Verified], seconds: float, *, with_prompts: bool) -> None:
        if not verified:
            return
        requests, drafted, accepted, emitted = zip(*verified, strict=True)
        if any(drafted):
            had = np.array(drafted, np.int64)
            with_drafts = had.nonzero()[0]
            slots, stood = self._slots_of(requests), np.array(accepted, np.int64)
            self.controller.observe_drafts(slots[with_drafts], had[with_drafts], stood[with_drafts])
        if not with_prompts:
            self.controller.observe_target(
                requests=len(verified),
                drafted=sum(drafted),
                depth=max(drafted),
                tokens=sum(emitted),
                milliseconds=1e3 * seconds,
            )

    def drafter_ran(self, depths: Sequence[int], seconds: float, *, with_prompts: bool) -> None:
        if depths and not with_prompts:
            self.controller.observe_draft(len(depths), max(depths), 1e3 * seconds)

    def _slots_of(self, requests: Sequence[Request]) -> NDArray[np.int64]:
        slots = [self._slots.get(request) for request in requests]
        if None in slots:
            slots = [self._slot(request) for request in requests]
        return np.array(slots, np.int64)

    def _slot(self, request: Request) -> int:
        if request not in self._slots:
            if not self._free:
                self._forget()
            slot = self._slots[request] = self._free.pop()
            self.controller.acceptance.reset(slot)
        return self._slots[request]

    def _forget(self) -> None:
        """Those that do not run: most of them have ended."""
        for request in [r for r in self._slots if r.status is not Status.RUNNING]:
            self._free.append(self._slots.pop(request))
