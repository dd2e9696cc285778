"""What speculation did, in lines for people: `--stats` prints them."""

from __future__ import annotations

from outrider.speculative.acceptance_monitor import AcceptanceReport
from outrider.speculative.depth_controller import ControllerReport


def acceptance_lines(report: AcceptanceReport) -> list[str]:
    """Self-check, depths, acceptance by context length, alarms."""
    counts = ", ".join(f"{count} of {drafts}" for drafts, count in enumerate(report.depth_histogram))
    lines = [f"passes by drafts: {counts}"]
    if report.self_check is not None:
        lines[0] += f"; self-check: {report.self_check:.2f} of first drafts stood"
    if report.contexts:
        buckets = (
            f"{_context(context.longest)} {' '.join(f'{share:.2f}' for share in context.shares)}"
            for context in report.contexts
        )
        lines.append("acceptance by context length and position: " + "; ".join(buckets))
    if report.too_low:
        lines.append("ALARM: acceptance is far below what is usual (garbled text, or a drafter of other weights)")
    if report.looping:
        lines.append("ALARM: all drafts stand and the text repeats itself; its speed means nothing")
    return lines


def depth_lines(report: ControllerReport) -> list[str]:
    """State, rates and cost ratios of the depth controller."""
    ratios = " ".join(f"{ratio:.2f}" for ratio in report.table_ratios)
    estimates = " ".join(f"{share:.2f}" for share in report.acceptance)
    realised = f"{report.realised_rate:.1f}" if report.realised_rate else "-"
    return [
        f"depth: speculation is {'on' if report.speculating else 'off'} after {report.num_turns} turns; tokens/s "
        f"predicted {report.predicted_rate:.1f}, in the last 64 speculative steps {realised}, plain "
        f"{report.off_rate:.1f}",
        f"costs, measured over predicted: plain and by depth {ratios or '-'}, of all {report.drift:.2f}; expected "
        f"acceptance given the drafts before {estimates}",
    ]


def _context(longest: int | None) -> str:
    return "longer" if longest is None else f"to {longest:,}"
