"""How deep each request drafts: as configured, or as the depth controller buys it."""

from __future__ import annotations

from array import array
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
    """The decoding requests of a target pass, in columns that numpy reads where they lie.

    drafted, accepted: drafts of each (255 at most) and those that stood; lengths: tokens that it has now (int64);
    emitted: tokens that the pass gave all of them together.
    """

    requests: list[Request] = field(default_factory=list)
    drafted: bytearray = field(default_factory=bytearray)
    accepted: bytearray = field(default_factory=bytearray)
    lengths: array[int] = field(default_factory=lambda: array("q"))
    emitted: int = 0

    def add(self, request: Request, drafted: int, accepted: int, emitted: int) -> None:
        self.requests.append(request)
        self.drafted.append(drafted)
        self.accepted.append(accepted)
        self.lengths.append(len(request.token_ids))
        self.emitted += emitted

    @property
    def counts(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """drafted and accepted."""
        return np.frombuffer(self.drafted, np.uint8), np.frombuffer(self.accepted, np.uint8)


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
        self._may_draft = False  # any of them

    def depths(self, decoding: Sequence[Request]) -> list[int] | None:
        if self.controller.waits():
            return None
        self._look_up(decoding)
        if not self._may_draft:
            return [0] * len(decoding) if self.controller.speculating else None
        depths = self.controller.decide(self._slots, self._most)
        return None if depths is None else depths.tolist()

    def target_ran(self, verified: Verified, seconds: float, *, with_prompts: bool) -> None:
        if not verified.requests:
            return
        drafts = deepest = 0
        if verified.drafted.count(0) < len(verified.requests):
            self._look_up(verified.requests)
            drafts, deepest = self.controller.observe_drafts(self._slots, *verified.counts)
        if not with_prompts:
            self.controller.observe_target(
                requests=len(verified.requests),
                drafted=drafts,
                depth=deepest,
                tokens=verified.emitted,
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
            self._may_draft = bool(self._most.any())

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
