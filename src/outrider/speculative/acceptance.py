"""How likely each draft is to stand, by request and position, from what the verifier saw."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from outrider.speculative import decision

PRIOR = (0.8, 0.7, 0.65)  # of the first three positions, before anything was seen; the last one goes on


class AcceptanceEstimates:
    """Conditional acceptance: the chance of draft j given that those before it stood. Requests are known by slots.

    A request's estimate is the engine's, which all observations move, plus what the request differs by.
    """

    def __init__(self, max_requests: int, max_depth: int) -> None:
        self._engine = np.array([*PRIOR, *[PRIOR[-1]] * max_depth][:max_depth])
        self._differs = np.zeros((max_depth, max_requests), np.float32)  # a position is a row: few and long ones

    @property
    def engine(self) -> list[float]:
        """Of all requests, by position."""
        return self._engine.tolist()

    def reset(self, slot: int) -> None:
        """A new request: it starts from what the engine knows."""
        self._differs[:, slot] = 0

    def survival(self, slots: NDArray[np.int64], most: NDArray[np.int64]) -> NDArray[np.float32]:
        """[max_depth, R]: the chance that drafts 0 .. j all stand. It falls from position to position.

        most: [R] drafts that each may have; from there on it is 0, before above 0.
        """
        return decision.survival(self._differs, self._engine, slots, most)

    def observe(
        self, slots: NDArray[np.int64], drafted: NDArray[np.uint8], accepted: NDArray[np.uint8]
    ) -> tuple[int, int]:
        """One verification a slot. Of its drafts those that stood and the first that did not are observations.

        No slot twice. A request without drafts is none; it need not be given. -> drafts of all requests together, and
        the most of one.
        """
        return decision.observe(self._differs, self._engine, slots, drafted, accepted)
