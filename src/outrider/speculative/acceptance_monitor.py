"""Acceptance of all requests together, by position and by context length, and an alarm when it cannot be right.

Far too few drafts that stand mean a drafter that is broken or belongs to other weights; a request whose drafts all
stand for long, over text that repeats itself, loops.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.speculative import decision

log = logging.getLogger("outrider")

CONTEXTS = (128, 512, 2_048, 8_192, 32_768, 131_072)  # tokens: the longest of each bucket; one more is open
USUAL = 0.8  # of first drafts stand, where no self-check said otherwise
LEAST_USUAL = 0.4  # whatever it said: of a drafter that it found broken nothing may be called usual
FAR_BELOW = 0.3  # of the usual share
WINDOW = 128  # target passes with drafts
ALL_STOOD = 64  # passes of a request
_PERIOD, _SPAN = 64, 192  # tokens: the longest loop that is recognised, and where it is looked for


@dataclass(frozen=True)
class ContextAcceptance:
    """Counts of one bucket of context lengths, by position in the draft. longest: None for the open bucket."""

    longest: int | None
    drafted: tuple[int, ...]
    accepted: tuple[int, ...]

    @property
    def shares(self) -> list[float]:
        """Accepted over drafted, as far as anything was drafted."""
        return [accepted / drafted for accepted, drafted in zip(self.accepted, self.drafted, strict=True) if drafted]


@dataclass(frozen=True)
class AcceptanceReport:
    """self_check: share of first drafts that stood in the check at the start; None: there was none.

    depth_histogram: target passes of a request by its drafts: 0, 1, ... contexts: buckets in which something was
    drafted. too_low, looping: the alarms of the last window.
    """

    self_check: float | None
    depth_histogram: list[int]
    contexts: list[ContextAcceptance]
    too_low: bool
    looping: bool


class AcceptanceMonitor:
    """Told of every target pass, and of requests whose drafts all stand."""

    def __init__(self, max_depth: int) -> None:
        self.self_check: float | None = None
        self.too_low = False
        self.looping = False
        # passes by context bucket, drafts and those that stood
        self._passes = np.zeros((len(CONTEXTS) + 1, max_depth + 1, max_depth + 1), np.int64)
        self._contexts = np.array(CONTEXTS)
        self._window = self._first_stood = 0
        self._loop_seen = False
        nothing = np.zeros(1, np.uint8)
        decision.count_passes(self._passes.copy(), self._contexts, np.zeros(1, np.int64), nothing, nothing)  # compiles

    def record(self, lengths: NDArray[np.int64], drafted: NDArray[np.uint8], accepted: NDArray[np.uint8]) -> None:
        """A target pass of [R] requests: tokens that it left them with, drafts and those that stood."""
        drew, stood = decision.count_passes(self._passes, self._contexts, lengths, drafted, accepted)
        self._window += drew
        self._first_stood += stood
        if self._window >= WINDOW:
            self._end_window()

    def report(self) -> AcceptanceReport:
        return AcceptanceReport(
            self_check=self.self_check,
            depth_histogram=self._passes.sum((0, 2)).tolist(),
            contexts=[own for index in range(len(self._passes)) if any((own := self._context(index)).drafted)],
            too_low=self.too_low,
            looping=self.looping,
        )

    def _context(self, index: int) -> ContextAcceptance:
        bucket = self._passes[index]
        positions = range(len(bucket) - 1)  # p: passes with more than p drafts, and those in which more than p stood
        return ContextAcceptance(
            longest=CONTEXTS[index] if index < len(CONTEXTS) else None,
            drafted=tuple(int(bucket[p + 1 :].sum()) for p in positions),
            accepted=tuple(int(bucket[:, p + 1 :].sum()) for p in positions),
        )

    def look_for_a_loop(self, token_ids: Sequence[int], all_stood: int) -> None:
        """Of a request whose drafts all stood in so many passes running; asked once in ALL_STOOD of them."""
        period = loop_period(token_ids)
        if period is None:
            return  # easy text: a list of numbers, a copied page
        if not self.looping and not self._loop_seen:
            log.warning(
                "acceptance is at its ceiling: all drafts of a request stood for %d passes, and its text repeats "
                "itself every %d tokens; speeds measured on it mean nothing",
                all_stood,
                period,
            )
        self.looping = self._loop_seen = True

    def _end_window(self) -> None:
        usual = USUAL if self.self_check is None else max(self.self_check, LEAST_USUAL)
        share = self._first_stood / self._window
        low = share < FAR_BELOW * usual
        if low and not self.too_low:
            log.warning(
                "acceptance is far below what is usual: %.2f of the first drafts stood in the last %d passes, usual is "
                "%.2f; the text is garbled, or the drafter does not belong to these weights",
                share,
                self._window,
                usual,
            )
        self.too_low = low
        self.looping, self._loop_seen = self._loop_seen, False
        self._window = self._first_stood = 0


def loop_period(token_ids: Sequence[int]) -> int | None:
    """The shortest period, in tokens, with which the end of a text repeats itself; None if it does not."""
    tail = list(token_ids[-_SPAN:])
    if len(tail) < _SPAN:
        return None
    return next((period for period in range(1, _PERIOD + 1) if tail[period:] == tail[:-period]), None)
