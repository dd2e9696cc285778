"""How deep each request drafts: as configured, or as the depth controller buys it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from outrider.engine.request import Request, Status
from outrider.speculative.cost_tables import CostTables
from outrider.speculative.depth_controller import DepthController


@dataclass
class Verified:
    """The decoding requests of a target pass, in columns: drafts of each, those that stood, tokens that it emitted."""

    requests: list[Request] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    emitted: list[int] = field(default_factory=list)

    def add(self, request: Request, drafted: int, accepted: int, emitted: int) -> None:
        self.requests.append(request)
        self.drafted.append(drafted)
        self.accepted.append(accepted)
        self.emitted.append(emitted)


class DepthPolicy(Protocol):
    """What the runner asks each step, and tells."""

    def depths(self, decoding: Sequence[Request]) -> list[int] | None:
        """Drafts for each request in the next step, at most; None: the drafter is not to run, not even for prompts."""

    def target_ran(self, verified: Verified, seconds: float, *, with_prompts: bool) -> None:
        """A target pass, with the draws behind it; with_prompts: prompt rows were among its rows."""

    def drafter_ran(self, depths: Sequence[int], seconds: float, *, with_prompts: bool) -> None:
        """A run of the drafter for the requests of the last `depths`."""


class FixedDepth:
    """Every request drafts as deep as it may."""

    def depths(self, decoding: Sequence[Request]) -> list[int] | None:
        return [request.depth for request in decoding]

    def target_ran(self, verified: Verified, seconds: float, *, with_prompts: bool) -> None:
        """Nothing is learned."""

    def drafter_ran(self, depths: Sequence[int], seconds: float, *, with_prompts: bool) -> None:
        """Nothing is learned."""


class AdaptiveDepth:
    """The controller, for requests instead of slots. max_num_seqs: requests that run at a time, at most."""

    def __init__(self, tables: CostTables, max_num_seqs: int) -> None:
        self._count = 2 * max_num_seqs  # preempted requests keep what is known of them as long as there is room
        self.controller = DepthController(tables, self._count)
        self._owned: dict[Request, int] = {}  # slots
        self._free = list(range(self._count))
        self._requests: list[Request] = []  # those last looked up, and what was found
        self._slots = self._most = np.zeros(0, np.int64)

    def depths(self, decoding: Sequence[Request]) -> list[int] | None:
        if self.controller.waits():
            return None
        self._look_up(decoding)
        if not self._most.any():
            return [0] * len(decoding) if self.controller.speculating else None
        depths = self.controller.decide(self._slots, self._most)
        return None if depths is None else depths.tolist()

    def target_ran(self, verified: Verified, seconds: float, *, with_prompts: bool) -> None:
        if not verified.requests:
            return
        drafts = sum(verified.drafted)
        if drafts:
            self._look_up(verified.requests)
            drafted, accepted = _small(verified.drafted), _small(verified.accepted)
            slots = self._slots
            if 0 in verified.drafted:
                with_drafts = drafted.nonzero()[0]
                slots, drafted, accepted = slots[with_drafts], drafted[with_drafts], accepted[with_drafts]
            self.controller.observe_drafts(slots, drafted, accepted)
        if not with_prompts:
            self.controller.observe_target(
                requests=len(verified.requests),
                drafted=drafts,
                depth=max(verified.drafted),
                tokens=sum(verified.emitted),
                milliseconds=1e3 * seconds,
            )

    def drafter_ran(self, depths: Sequence[int], seconds: float, *, with_prompts: bool) -> None:
        if depths and not with_prompts:
            self.controller.observe_draft(len(depths), max(depths), 1e3 * seconds)

    def _look_up(self, requests: Sequence[Request]) -> None:
        """Their slots and the drafts that each may have. From step to step requests are mostly the same ones."""
        if requests != self._requests:
            self._requests = list(requests)
            self._slots = np.array([self._slot(request) for request in requests], np.int64)
            self._most = np.array([request.depth for request in requests], np.int64)

    def _slot(self, request: Request) -> int:
        if request not in self._owned:
            if not self._free:
                self._forget()
            slot = self._owned[request] = self._free.pop()
            self.controller.acceptance.reset(slot)
        return self._owned[request]

    def _forget(self) -> None:
        """Those that do not run: most of them have ended."""
        for request in [r for r in self._owned if r.status is not Status.RUNNING]:
            self._free.append(self._owned.pop(request))


def _small(values: Sequence[int]) -> NDArray[np.int64]:
    """As an array, by way of bytes: many times quicker than numpy's own way, and depths are below 256."""
    return np.frombuffer(bytes(values), np.uint8).astype(np.int64)
