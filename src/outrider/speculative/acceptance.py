"""How likely each draft is to stand, by request and position, from what the verifier saw."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

PRIOR = (0.8, 0.7, 0.65)  # of the first three positions, before anything was seen; the last one goes on
_RATE = 0.1
_ENGINE_RATE = 0.03  # of one observation in the engine's own estimate
_RELAXATION = 0.02  # of what was not observed, towards the engine's estimate
_LEAST = 0.02  # nothing is certain, either way


class AcceptanceEstimates:
    """Conditional acceptance: the chance of draft j given that those before it stood. Requests are known by slots.

    A request's estimate is the engine's, which all observations move, plus what the request differs by.
    """

    def __init__(self, max_requests: int, max_depth: int) -> None:
        prior = [*PRIOR, *[PRIOR[-1]] * max_depth][:max_depth]
        self.engine = np.array(prior)  # [max_depth], of all requests
        self._differs = np.zeros((max_requests, max_depth))
        self._seen = np.zeros((max_requests, max_depth))
        self._positions = np.arange(max_depth)

    def reset(self, slot: int) -> None:
        """A new request: it starts from what the engine knows."""
        self._differs[slot] = 0
        self._seen[slot] = 0

    def survival(self, slots: NDArray[np.int64]) -> NDArray[np.float64]:
        """[R, max_depth]: the chance that drafts 0 .. j all stand, above 0. It never rises along a row."""
        return np.cumprod((self.engine + self._differs[slots]).clip(_LEAST, 1 - _LEAST), axis=1)

    def observe(self, slots: Sequence[int], drafted: Sequence[int], accepted: Sequence[int]) -> None:
        """One verification a slot. Of its drafts those that stood and the first that did not are observations.

        A request without drafts is none; it need not be given.
        """
        rows, depth = np.array(slots), np.array(drafted)[:, None]
        reached = np.array(accepted)[:, None]
        stood = self._positions < reached
        observed = self._positions < np.minimum(reached + 1, depth)
        count = observed.sum(0)
        mean = stood.sum(0) / np.maximum(count, 1)
        self.engine += (1 - (1 - _ENGINE_RATE) ** count) * (mean - self.engine)
        differs, seen = self._differs[rows], self._seen[rows]
        rate = np.maximum(1 / (seen + 6), _RATE)  # what the engine knows counts as a few observations
        differs += np.where(observed, rate * (stood - self.engine - differs), -_RELAXATION * differs)
        self._differs[rows] = differs
        self._seen[rows] = seen + observed
