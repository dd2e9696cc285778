"""The lines of `--stats` about speculation."""

from __future__ import annotations

from outrider.cli.speculation_report import acceptance_lines, depth_lines
from outrider.speculative.acceptance_monitor import AcceptanceReport, ContextAcceptance
from outrider.speculative.depth_controller import ControllerReport


def test_acceptance() -> None:
    contexts = [ContextAcceptance(512, (8, 4), (6, 1)), ContextAcceptance(None, (2, 0), (1, 0))]
    quiet = AcceptanceReport(0.815, [3, 4, 5], contexts, too_low=False, looping=False)
    assert acceptance_lines(quiet) == [
        "passes by drafts: 3 of 0, 4 of 1, 5 of 2; self-check: 0.81 of first drafts stood",
        "acceptance by context length and position: to 512 0.75 0.25; longer 0.50",
    ]
    alarmed = AcceptanceReport(None, [3], [], too_low=True, looping=True)
    first, low, loop = acceptance_lines(alarmed)
    assert first == "passes by drafts: 3 of 0"
    assert low.startswith("ALARM: acceptance is far below") and loop.startswith("ALARM: all drafts stand")


def test_depth() -> None:
    report = ControllerReport(
        speculating=False, predicted_rate=61.24, off_rate=60.0, realised_rate=0.0, table_ratios=[1.0, 1.234],
        drift=0.95, acceptance=[0.8, 0.65], num_turns=3,
    )  # fmt: skip
    assert depth_lines(report) == [
        "depth: speculation is off after 3 turns; tokens/s predicted 61.2, in the last 64 speculative steps -, plain "
        "60.0",
        "costs, measured over predicted: plain and by depth 1.00 1.23, of all 0.95; expected acceptance given the "
        "drafts before 0.80 0.65",
    ]
    assert "costs, measured over predicted: plain and by depth -," in depth_lines(ControllerReport())[1]
    assert "is on after 0 turns" in depth_lines(ControllerReport())[0]
