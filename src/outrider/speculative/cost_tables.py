"""What a step costs: tables measured when the engine starts, corrected by every step that runs.

ms(c, t, d) = verify_ms[t] + draft_ms[d][c]     c requests, t > c rows, drafts up to depth d
ms(c)       = decode_ms[c]                      the plain step
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Variances of logarithms: of a measured time; and of what is believed, at first and how they grow from step to step.
_NOISE = 0.08**2
_SHARED, _SHARED_GROWS = 0.4**2, 1.5e-5  # what all arms of a kind have in common
_OWN, _OWN_GROWS = 0.15**2, 4e-6  # what an arm differs by
_DRIFT_GROWS = 0.03**2  # the state of the machine
_MOST = math.log(4.0)  # a ratio stays within [1/4, 4]
_JUMP = math.log(2.0)  # one stalled step does not overturn a table


@dataclass(frozen=True)
class MeasuredCosts:
    """Milliseconds at the points that were measured (at least one in each table).

    decode_ms: by requests; verify_ms: by rows; draft_ms[d]: by requests, drafting d tokens (0: only the rows of
    committed tokens are written). A staircase has a point at both ends of every step.
    """

    decode_ms: Mapping[int, float]
    verify_ms: Mapping[int, float]
    draft_ms: Sequence[Mapping[int, float]]


class CostTables:
    """Dense tables over requests and rows, each arm with its ratio of measured to predicted time.

    A step that takes longer than predicted may do so because its arm is priced wrongly or because everything has become
    slower: a longer context, a busy machine. The surprise is shared out by how uncertain each of these is (the gains of
    a Kalman filter, correlations left out): an arm that is new, or has not run for a while, takes most of it; one that
    runs all the time leaves it to the machine. So a step of another arm is compared with the steps just before it.
    """

    def __init__(self, measured: MeasuredCosts, max_requests: int, max_rows: int) -> None:
        self.max_depth = len(measured.draft_ms) - 1
        self.max_rows = max_rows
        self._decode = _dense(measured.decode_ms, max_requests).tolist()  # single values are read: lists are quicker
        self._draft = np.stack([_dense(points, max_requests) for points in measured.draft_ms], axis=1)
        self._verify = _dense(measured.verify_ms, max_rows).astype(np.float32)
        self._plain_ratios = _Ratios(1, max_requests)
        self._verify_ratios = _Ratios(self.max_depth + 1, max_requests)
        self._draft_ratios = _Ratios(self.max_depth + 1, max_requests)
        self._drift = 0.0  # logarithm
        self._drift_variance = 0.0
        self._step = 0

    def decode_ms(self, requests: int) -> float:
        """A plain step."""
        return self._decode[requests] * math.exp(self._drift + self._plain_ratios.logarithm(0, requests))

    def draft_steps(
        self, requests: int, most: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.float64]]:
        """(table, scales, draft_ms): a step with n drafts in all, up to d a request, takes the target
        table[n - 1] * scales[d] ms and the drafter draft_ms[d]. table: [most]."""
        scales = self._verify_ratios.factors(requests, self._drift)
        draft_ms = self._draft_ratios.factors(requests, self._drift)
        draft_ms *= self._draft[requests]
        return self._verify[requests + 1 : requests + most + 1], scales, draft_ms

    @property
    def factor(self) -> float:
        """Of the time that all arms take now to what the tables say."""
        return math.exp(self._drift)

    def ratios(self, requests: int) -> list[float]:
        """Measured over predicted target time of the arms 0 (plain), 1, ..., the shared factor left out."""
        return [*self._plain_ratios.factors(requests).tolist(), *self._verify_ratios.factors(requests)[1:].tolist()]

    def observe_target(self, requests: int, rows: int, depth: int, milliseconds: float) -> None:
        """A target pass without prompt rows. depth: 0 for a plain one."""
        self._step += 1
        if depth == 0:
            self._heal(self._plain_ratios, 0, requests, milliseconds / self._decode[requests])
        else:
            self._heal(self._verify_ratios, depth, requests, milliseconds / float(self._verify[rows]))

    def observe_draft(self, requests: int, depth: int, milliseconds: float) -> None:
        self._heal(self._draft_ratios, depth, requests, milliseconds / float(self._draft[requests, depth]))

    def _heal(self, ratios: _Ratios, arm: int, requests: int, ratio: float) -> None:
        self._drift_variance += _DRIFT_GROWS
        found = min(max(math.log(max(ratio, 1e-6)) - self._drift, -_MOST), _MOST)
        surprise, uncertainty = ratios.observe(arm, requests, found, self._drift_variance, self._step)
        gain = self._drift_variance / uncertainty
        self._drift += gain * surprise
        self._drift_variance *= 1 - gain


class _Ratios:
    """Logarithms of measured over predicted, by power of two of requests: of all arms together, and what each adds.

    A table that is wrong is mostly wrong as a whole, so that what one arm finds out is news for the others.
    """

    def __init__(self, arms: int, max_requests: int) -> None:
        buckets = max_requests.bit_length() + 1
        self._shared = [0.0] * buckets
        self._shared_variance = [_SHARED] * buckets
        self._own = np.zeros((buckets, arms))
        self._own_variance = [[_OWN] * arms for _ in range(buckets)]
        self._shared_seen = [0] * buckets  # the step
        self._own_seen = [[0] * arms for _ in range(buckets)]

    def logarithm(self, arm: int, requests: int) -> float:
        bucket = requests.bit_length()
        return self._shared[bucket] + float(self._own[bucket, arm])

    def factors(self, requests: int, drift: float = 0.0) -> NDArray[np.float64]:
        """[arms], all of them times exp(drift)."""
        bucket = requests.bit_length()
        return np.asarray(np.exp(self._own[bucket] + (drift + self._shared[bucket])))

    def observe(self, arm: int, requests: int, found: float, drift_variance: float, step: int) -> tuple[float, float]:
        """Takes its part of the surprise. -> the surprise and how large it may be (a variance)."""
        bucket = requests.bit_length()
        own, seen = self._own_variance[bucket], self._own_seen[bucket]
        shared = min(self._shared_variance[bucket] + _SHARED_GROWS * (step - self._shared_seen[bucket]), _SHARED)
        mine = min(own[arm] + _OWN_GROWS * (step - seen[arm]), _OWN)
        self._shared_seen[bucket] = seen[arm] = step
        uncertainty = drift_variance + shared + mine + _NOISE
        surprise = found - self.logarithm(arm, requests)
        surprise = min(max(surprise, -_JUMP), _JUMP)
        self._shared[bucket] += shared / uncertainty * surprise
        self._own[bucket, arm] += mine / uncertainty * surprise
        self._shared_variance[bucket] = shared * (1 - shared / uncertainty)
        own[arm] = mine * (1 - mine / uncertainty)
        return surprise, uncertainty


def _dense(points: Mapping[int, float], most: int) -> NDArray[np.float64]:
    """[most + 1] by linear interpolation, never falling; beyond the last point it goes on as between the last two."""
    at = sorted(points)
    values = np.maximum.accumulate(np.array([points[x] for x in at], dtype=np.float64))
    dense = np.interp(np.arange(most + 1), at, values)
    if len(at) > 1 and at[-1] < most:
        slope = (values[-1] - values[0]) / (at[-1] - at[0])
        dense[at[-1] :] = values[-1] + slope * np.arange(most - at[-1] + 1)
    return np.asarray(dense, dtype=np.float64)
