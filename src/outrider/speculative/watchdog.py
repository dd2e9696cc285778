"""Counts what speculation really gives, whatever the tables predict."""

from __future__ import annotations

WINDOW = 64  # steps
LEAST = 0.98  # of the plain rate
_FIRST_REST, _LONGEST_REST = 64, 4096  # steps


class Watchdog:
    """Windows of speculative steps against the plain rate; two bad ones running send speculation to rest.

    The rest doubles each time, and is short again after a good window.
    """

    def __init__(self) -> None:
        self.realised = 0.0  # tokens a millisecond in the last full window
        self._rest_steps = _FIRST_REST
        self._resting = 0
        self._bad: list[float] = []
        self._clear()

    def count(self, tokens: int, milliseconds: float, off_rate: float) -> None:
        """A target pass (tokens > 0) or a drafter's run (tokens 0). off_rate: plain tokens a millisecond then."""
        self._steps += tokens > 0
        self._tokens += tokens
        self._milliseconds += milliseconds
        self._plain += milliseconds * off_rate

    def verdict(self) -> float | None:
        """Share of the plain rate in the second bad window running, which starts a rest; None: no complaint."""
        if self._steps < WINDOW:
            return None
        share = self._tokens / self._plain
        self.realised = self._tokens / self._milliseconds
        self._clear()
        if share >= LEAST:
            self._bad.clear()
            self._rest_steps = _FIRST_REST
            return None
        self._bad.append(share)
        if len(self._bad) < 2:
            return None
        self._resting = self._rest_steps
        self._rest_steps = min(2 * self._rest_steps, _LONGEST_REST)
        return share

    @property
    def resting(self) -> bool:
        return self._resting > 0

    def rest(self) -> None:
        """A plain step went by."""
        self._resting = max(self._resting - 1, 0)

    def restart(self) -> None:
        """Speculation was turned off or on: what was counted belongs to another time."""
        self._bad.clear()
        self._clear()

    def _clear(self) -> None:
        self._steps = 0
        self._tokens = 0
        self._milliseconds = self._plain = 0.0
