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
        self.engine = [*PRIOR, *[PRIOR[-1]] * max_depth][:max_depth]  # of all requests, by position
        self._differs = np.zeros((max_depth, max_requests), np.float32)  # a position is a row: few and long ones
        # By outcome of a verification: 2 j + 1 if j drafts stood and the next fell, 2 j if those were all.
        outcomes, positions = np.arange(2 * max_depth + 2), np.arange(max_depth)[:, None]
        self._stood = (positions < outcomes // 2).astype(np.float32)  # [max_depth, outcomes]
        observed = positions < (outcomes + 1) // 2
        self._rates = np.where(observed, _RATE, 0.0).astype(np.float32)
        self._keeps = np.where(observed, 1 - _RATE, 1 - _RELAXATION).astype(np.float32)

    def reset(self, slot: int) -> None:
        """A new request: it starts from what the engine knows."""
        self._differs[:, slot] = 0

    def survival(self, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        """[max_depth, R]: the chance that drafts 0 .. j all stand, above 0. It falls from position to position."""
        survival = self._differs.take(slots, 1)
        survival += self._engine_column()
        survival.clip(_LEAST, 1 - _LEAST, out=survival)
        for position in range(1, len(survival)):
            survival[position] *= survival[position - 1]
        return survival

    def observe(self, slots: NDArray[np.int64], drafted: NDArray[np.int64], accepted: NDArray[np.int64]) -> None:
        """One verification a slot. Of its drafts those that stood and the first that did not are observations.

        A request without drafts is none; it need not be given.
        """
        outcomes = 2 * accepted
        outcomes += drafted > accepted
        self._observe_engine(np.bincount(outcomes, minlength=self._rates.shape[1]).tolist())
        found = self._rates * (self._stood - self._engine_column())
        differs = self._differs.take(slots, 1)
        differs *= self._keeps.take(outcomes, 1)
        differs += found.take(outcomes, 1)
        self._differs[:, slots] = differs

    def _observe_engine(self, times: Sequence[int]) -> None:
        """times: how often there was each outcome."""
        stood = 0
        for position in reversed(range(len(self.engine))):
            stood += times[2 * position + 2] + times[2 * position + 3]
            observed = stood + times[2 * position + 1]
            if observed:
                rate = 1 - (1 - _ENGINE_RATE) ** observed
                self.engine[position] += rate * (stood / observed - self.engine[position])

    def _engine_column(self) -> NDArray[np.float32]:
        return np.array(self.engine, np.float32)[:, None]
