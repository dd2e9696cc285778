"""Buys depth: decides every step whether to draft and how deep, for each request.

Speculating, it takes the depths of the best rate and leaves at once when a plain step would be faster. Off, nothing
drafts; it returns when speculation has looked better twice running. What it cannot see it pays to look at: a short
probe while off, a step without drafts while on, each out of a budget that is a share of the elapsed time. A look begins
when the budget covers what it is expected to lose; a probe is charged with what it did lose.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.acceptance import AcceptanceEstimates
from outrider.speculative.cost_tables import CostTables
from outrider.speculative.draft_budget import DraftBudget, best_budget, share_budget
from outrider.speculative.watchdog import Watchdog

log = logging.getLogger("outrider")

ENTER = 1.02  # of the plain rate
PROBE_SHARE = 0.008  # of the elapsed time may be lost by probes while off
PLAIN_SHARE = 0.004  # and by plain steps while on
PROBE_STEPS = 4  # a drafter that starts cold needs a few rows
_LEAST_LOSS = 0.01  # of a step, charged for a look even where none is expected: predictions are uncertain
_SAVED = 16  # plain steps: a budget holds no more
_FIRST_CREDIT = 3.0  # plain steps that probes may lose when it first turns off: it may be the tables that are wrong
_OFF_STEPS = 4  # between decisions while off: little is learned then, and a plain step should cost nothing more
_SAY_MS = 10_000.0  # between two lines about turning off or on
_FIRST_GAP, _LEAST_GAP = 4, 32  # steps between plain ones while on: the first few come soon and free


@dataclass
class ControllerReport:
    """What the controller did and believes; rates in tokens a second of all requests together."""

    speculating: bool = True
    predicted_rate: float = 0.0
    off_rate: float = 0.0
    realised_rate: float = 0.0
    table_ratios: list[float] = field(default_factory=list)  # measured / predicted, by arm: plain, depth 1, ...
    drift: float = 1.0  # of all arms
    acceptance: list[float] = field(default_factory=list)  # by position, given those before
    num_turns: int = 0  # off or on


class DepthController:
    """Decisions for at most max_requests requests, which it knows by slots. Times are milliseconds."""

    def __init__(self, tables: CostTables, max_requests: int) -> None:
        self.tables = tables
        self.acceptance = AcceptanceEstimates(max_requests, tables.max_depth)
        self.speculating = True
        self._report = ControllerReport()
        self._watchdog = Watchdog()
        self._promising = 0  # decisions running in which speculation would have paid
        self._probe_left = 0
        self._credit = 0.0
        self._since_plain = 0
        self._gap = _FIRST_GAP
        self._requests = 0
        self._plain_ms = 0.0  # of a plain step, as last believed
        self._waited = 0
        self._elapsed_ms = 0.0
        self._said_at: float | None = None
        self._unsaid = 0
        self._compile()

    def waits(self) -> bool:
        """Asked before each decision. True: speculation is off and nothing was learned lately; nobody need decide."""
        if self.speculating or self._promising or self._probe_left:
            return False
        self._waited = (self._waited + 1) % _OFF_STEPS
        return self._waited > 0

    def decide(self, slots: NDArray[np.int64], most: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """slots, most: [R] requests that decode in the next step, and the drafts each may have -> [R] depths.

        None: the drafter is not to run at all.
        """
        survival = self.acceptance.survival(slots, most)
        budget = best_budget(survival, self.tables)
        self._note(budget, len(slots))
        depths = self._speculating(budget) if self.speculating else self._probing(budget)
        if depths and budget.drafts:
            return share_budget(survival, budget)
        return np.zeros(len(slots), dtype=np.int64) if self.speculating else None

    def observe_drafts(
        self, slots: NDArray[np.int64], drafted: NDArray[np.uint8], accepted: NDArray[np.uint8]
    ) -> tuple[int, int]:
        """What the verifier said to the drafts of each slot. -> drafts of all together, and the most of one."""
        return self.acceptance.observe(slots, drafted, accepted)

    def observe_target(self, requests: int, drafted: int, depth: int, tokens: int, milliseconds: float) -> None:
        """A step without prompt rows. drafted: drafts in it; depth: the most of one request; tokens: emitted."""
        self.tables.observe_target(requests, requests + drafted, depth, milliseconds)
        self._plain_ms = self.tables.decode_ms(requests)
        self._budget_time(milliseconds, tokens if drafted else None, requests)
        if self.speculating:
            self._watchdog.count(tokens, milliseconds, requests / self._plain_ms)
        else:
            self._watchdog.rest()

    def observe_draft(self, requests: int, depth: int, milliseconds: float) -> None:
        """A run of the drafter for requests that all decode, behind a step that was observed."""
        self.tables.observe_draft(requests, depth, milliseconds)
        self._budget_time(milliseconds, 0, requests)
        if self.speculating:
            self._watchdog.count(0, milliseconds, requests / self._plain_ms)

    def summary(self) -> ControllerReport:
        """What there is to see."""
        return replace(
            self._report,
            speculating=self.speculating,
            realised_rate=1e3 * self._watchdog.realised,
            table_ratios=self.tables.ratios(self._requests) if self._requests else [],
            drift=self.tables.factor,
            acceptance=list(self.acceptance.engine),
        )

    def _compile(self) -> None:
        """Kernels are compiled, or read from a cache, at their first call: now, and not while requests wait."""
        one, nothing = np.zeros(1, np.int64), np.zeros(1, np.uint8)
        survival = self.acceptance.survival(one, one)
        share_budget(survival, best_budget(survival, self.tables))
        self.acceptance.observe(one, nothing, nothing)

    # -------- states

    def _speculating(self, budget: DraftBudget) -> bool:
        """Whether the next step has drafts."""
        realised = self._watchdog.verdict()
        if realised is not None:
            self._turn(False, f"its steps gave {realised:.2f} of the plain rate")
            return False
        if budget.rate < budget.off_rate:
            self._turn(False, f"it is predicted to give {budget.rate / budget.off_rate:.2f} of the plain rate")
            return False
        self._since_plain += 1
        loss = max(budget.rate / budget.off_rate - 1, _LEAST_LOSS) * self._plain_ms
        early = self._gap < _LEAST_GAP
        if self._since_plain >= self._gap and (early or self._credit >= loss):
            if early:
                self._gap *= 2
            else:
                self._credit -= loss
            self._since_plain = 0
            return False
        return True

    def _probing(self, budget: DraftBudget) -> bool:
        if self._watchdog.resting:
            self._promising = self._probe_left = 0
            return False
        self._promising = self._promising + 1 if budget.rate > ENTER * budget.off_rate else 0
        if self._promising >= 2:
            self._turn(True, f"it is predicted to give {budget.rate / budget.off_rate:.2f} of the plain rate")
            return True
        if self._probe_left > 0:
            self._probe_left -= 1
            return True
        loss = max(1 - budget.rate / budget.off_rate, _LEAST_LOSS) * self._plain_ms * PROBE_STEPS
        if self._credit >= loss:  # and is charged as it goes
            self._probe_left = PROBE_STEPS - 1
            return True
        return False

    def _turn(self, speculating: bool, reason: str) -> None:
        self.speculating = speculating
        self._report.num_turns += 1
        self._promising = self._probe_left = self._since_plain = 0
        self._credit = 0.0 if self._report.num_turns > 1 else _FIRST_CREDIT * self._plain_ms
        self._watchdog.restart()
        if self._said_at is not None and self._elapsed_ms - self._said_at < _SAY_MS:
            self._unsaid += 1
            return
        since = f" (after {self._unsaid} more turns)" if self._unsaid else ""
        log.info("speculation turns itself %s: %s%s", "on" if speculating else "off", reason, since)
        self._said_at, self._unsaid = self._elapsed_ms, 0

    def _budget_time(self, milliseconds: float, tokens: int | None, requests: int) -> None:
        """tokens: what the time gave, if drafts had a part in it."""
        self._elapsed_ms += milliseconds
        if self.speculating:
            self._credit += PLAIN_SHARE * milliseconds
        elif tokens is None:
            self._credit += PROBE_SHARE * milliseconds
        else:
            self._credit -= milliseconds - tokens / requests * self._plain_ms
        self._credit = min(self._credit, _SAVED * self._plain_ms)

    def _note(self, budget: DraftBudget, requests: int) -> None:
        self._requests = requests
        self._plain_ms = requests / budget.off_rate
        report = self._report
        report.predicted_rate = 1e3 * (budget.rate if self.speculating else budget.off_rate)
        report.off_rate = 1e3 * budget.off_rate
