"""A depth policy that decides anything at all: off and on again, any depth for any request."""

from __future__ import annotations

import random
from collections.abc import Sequence

from outrider.engine.depth_policy import FixedDepth
from outrider.engine.request import Request


class RandomDepths(FixedDepth):
    """Stays in each state for some steps, so that drafters get cold and warm."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._off = False
        self.num_off = 0  # decisions in which the drafter was not to run

    def depths(self, decoding: Sequence[Request]) -> list[int] | None:
        if self._rng.random() < 0.3:
            self._off = not self._off
        if self._off:
            self.num_off += 1
            return None
        return [self._rng.randint(0, request.depth) for request in decoding]
