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

_SLOWEST_RATE = 0.05  # weight of a new measurement in the ratio of an arm that has been seen often
_DRIFT_RATE = 0.1  # and in the factor that all arms share
_OWN_RATE = 0.05  # and in what this arm differs from the others
_NEW = 8  # measurements that say nothing about drift yet
_MOST = math.log(2.0)  # a ratio stays within [0.5, 2]


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

    A step that takes longer than predicted may do so because its own arm is priced wrongly or because everything has
    become slower: a longer context, a busy machine. The first few measurements of an arm are taken as the former, later
    ones mostly as the latter; steps of other arms, run now and then, tell them apart.
    """

    def __init__(self, measured: MeasuredCosts, max_requests: int, max_rows: int) -> None:
        self.max_depth = len(measured.draft_ms) - 1
        self.max_rows = max_rows
        self._decode = _dense(measured.decode_ms, max_requests).tolist()  # single values are read: lists are quicker
        self._draft = [_dense(points, max_requests).tolist() for points in measured.draft_ms]
        self._verify = _dense(measured.verify_ms, max_rows).astype(np.float32)
        self._plain_ratios = _Ratios(1, max_requests)
        self._verify_ratios = _Ratios(self.max_depth + 1, max_requests)
        self._draft_ratios = _Ratios(self.max_depth + 1, max_requests)
        self._drift = 0.0  # logarithm

    def decode_ms(self, requests: int) -> float:
        """A plain step."""
        return self._decode[requests] * self.factor * self._plain_ratios.factors(requests)[0]

    def draft_steps(self, requests: int, most: int) -> tuple[NDArray[np.float32], list[float], list[float]]:
        """(table, scales, draft_ms): a step with n drafts in all, up to d a request, takes the target
        table[n - 1] * scales[d] ms and the drafter draft_ms[d]. table: [most]."""
        factor = self.factor
        scales = [factor * ratio for ratio in self._verify_ratios.factors(requests)]
        ratios = self._draft_ratios.factors(requests)
        draft_ms = [factor * ratio * table[requests] for ratio, table in zip(ratios, self._draft, strict=True)]
        return self._verify[requests + 1 : requests + most + 1], scales, draft_ms

    @property
    def factor(self) -> float:
        """Of the time that all arms take now to what the tables say."""
        return math.exp(self._drift)

    def ratios(self, requests: int) -> list[float]:
        """Measured over predicted target time of the arms 0 (plain), 1, ..., the shared factor left out."""
        return [self._plain_ratios.factors(requests)[0], *self._verify_ratios.factors(requests)[1:]]

    def observe_target(self, requests: int, rows: int, depth: int, milliseconds: float) -> None:
        """A target pass without prompt rows. depth: 0 for a plain one."""
        if depth == 0:
            self._heal(self._plain_ratios, 0, requests, milliseconds / self._decode[requests])
        else:
            self._heal(self._verify_ratios, depth, requests, milliseconds / float(self._verify[rows]))

    def observe_draft(self, requests: int, depth: int, milliseconds: float) -> None:
        self._heal(self._draft_ratios, depth, requests, milliseconds / self._draft[depth][requests])

    def _heal(self, ratios: _Ratios, arm: int, requests: int, ratio: float) -> None:
        surprise = ratios.observe(arm, requests, math.log(max(ratio, 1e-6)) - self._drift)
        self._drift += _DRIFT_RATE * surprise


class _Ratios:
    """Logarithms of measured over predicted, by power of two of requests: of all arms together, and what each adds.

    A table that is wrong is mostly wrong as a whole, so that what one arm finds out is news for the others.
    """

    def __init__(self, arms: int, max_requests: int) -> None:
        buckets = max_requests.bit_length() + 1
        self._shared = [0.0] * buckets
        self._own = [[0.0] * buckets for _ in range(arms)]
        self._counts = [0] * buckets

    def factors(self, requests: int) -> list[float]:
        """By arm."""
        bucket = requests.bit_length()
        shared = self._shared[bucket]
        return [math.exp(shared + own[bucket]) for own in self._own]

    def observe(self, arm: int, requests: int, found: float) -> float:
        """What of this measurement is left to be explained by a drift of all arms, logarithm too."""
        bucket, own = requests.bit_length(), self._own[arm]
        found = min(max(found, -_MOST), _MOST)
        surprise = found - self._shared[bucket] - own[bucket]
        surprise = min(max(surprise, -_MOST), _MOST)  # one stalled step does not overturn a table
        rate = max(1 / (self._counts[bucket] + 2), _SLOWEST_RATE)
        self._counts[bucket] += 1
        self._shared[bucket] += rate * surprise
        own[bucket] += _OWN_RATE * (1 - rate) * surprise
        return (1 - rate) * surprise if self._counts[bucket] > _NEW else 0.0


def _dense(points: Mapping[int, float], most: int) -> NDArray[np.float64]:
    """[most + 1] by linear interpolation, never falling; beyond the last point it goes on as between the last two."""
    at = sorted(points)
    values = np.maximum.accumulate(np.array([points[x] for x in at], dtype=np.float64))
    dense = np.interp(np.arange(most + 1), at, values)
    if len(at) > 1 and at[-1] < most:
        slope = (values[-1] - values[0]) / (at[-1] - at[0])
        dense[at[-1] :] = values[-1] + slope * np.arange(most - at[-1] + 1)
    return np.asarray(dense, dtype=np.float64)
