"""Speculation that looks wrong: drafts that hardly ever stand, or that always do."""

from __future__ import annotations

import logging
import math

log = logging.getLogger("outrider.server")

WINDOW = 512  # target passes over drafts
FLOOR, CEILING = 0.1, 0.99
_ADVICE = {
    "low": "the drafter may not belong to the model, or its weights are damaged",
    "high": "texts that loop look like this",
}


class AcceptanceAlarm:
    """Share of drafts that stood in the last window of passes, of all requests together.

    A window whose share is outside [FLOOR, CEILING] is logged once, and so is the first one inside again.
    """

    def __init__(self) -> None:
        self.rate = math.nan  # until the first window is full
        self._state = "usual"
        self._passes = self._drafted = self._accepted = 0

    def record(self, passes: int, drafted: int, accepted: int) -> None:
        """What was verified since the last call: passes over at least one draft, their drafts, those that stood."""
        self._passes += passes
        self._drafted += drafted
        self._accepted += accepted
        if self._passes < WINDOW:
            return
        self.rate = self._accepted / self._drafted
        self._passes = self._drafted = self._accepted = 0
        state = "low" if self.rate < FLOOR else "high" if self.rate > CEILING else "usual"
        if state == self._state:
            return
        self._state = state
        if state == "usual":
            log.warning("%.0f %% of drafts stand, as usual again", 100 * self.rate)
        else:
            shown = 100 * self.rate, WINDOW, _ADVICE[state]
            log.warning("%.1f %% of drafts stood in the last %d passes: %s", *shown)
