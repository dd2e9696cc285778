"""A result as people read it."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table


def show(report: dict[str, Any], console: Console) -> None:
    """One line an arm and load of a result file's object."""
    table = Table(box=None, pad_edge=False)
    for title in ("load", "arm"):
        table.add_column(title)
    titles = ("tok/s", "ratio", "tok/s/user", "TTFT ms p50/90/99", "TPOT ms p50/90/99", "E2E s p50/90/99")
    for title in (*titles, "accepted", "by position", "distinct 4-grams"):
        table.add_column(title, justify="right")
    for cell in report["cells"]:
        load = f"{cell['request_rate']:g}/s" if cell["concurrency"] is None else f"{cell['concurrency']}"
        for name, arm in cell["arms"].items():
            table.add_row(load, name, *_figures(arm))
    console.print(table)
    for line in _remarks(report):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _figures(arm: dict[str, Any]) -> tuple[str, ...]:
    length, distinct = arm["acceptance_length"], arm["distinct_4grams"]
    return (
        _middle(arm["output_tokens_per_second"], 1),
        _range(arm["ratio"]),
        _middle(arm["tokens_per_second_per_user"], 1),
        _percentiles(arm["ttft_ms"], 1, 0),
        _percentiles(arm["tpot_ms"], 1, 1),
        _percentiles(arm["e2e_ms"], 1e-3, 2),
        "-" if length is None else f"{length:.2f}",
        " ".join(f"{share:.2f}" for share in arm["acceptance_per_position"] or ()) or "-",
        "-" if distinct is None else f"{distinct:.2f}",
    )


def _remarks(report: dict[str, Any]) -> list[str]:
    machine = report["machine"]
    place = ", ".join(machine["gpus"]) or f"{machine['processor']}, {machine['threads']} threads"
    what = report["dataset"]
    lines = [
        f"{report['model']}; {what['name']}, {what['num_prompts']} prompts; temperature {report['temperature']:g}; "
        f"median of {report['rounds']} alternating rounds after one to warm up, lowest to highest in brackets",
        f"{place}, torch {report['versions']['torch']}, commit {(report['commit'] or 'unknown')[:12]}",
    ]
    if report["same_output"] is not None:
        lines.append(f"answers of all arms and rounds are the same: {'yes' if report['same_output'] else 'NO'}")
    arms = [arm for cell in report["cells"] for arm in cell["arms"].values()]
    failed = [arm for arm in arms if arm["num_failed"]]
    if failed:
        count = sum(arm["num_failed"] for arm in failed)
        lines.append(f"{count} requests failed, the first of them: {failed[0]['first_error']}")
    cached = sum(arm["cached_prompt_tokens"] or 0 for arm in arms)
    if cached:
        share = cached / sum(arm["prompt_tokens"] for arm in arms)
        lines.append(f"{share:.0%} of the prompt tokens came from a prefix cache: times to the first token flatter")
    return lines


def _middle(spread: dict[str, float] | None, digits: int) -> str:
    return "-" if spread is None else f"{spread['median']:.{digits}f}"


def _range(spread: dict[str, float] | None) -> str:
    return "-" if spread is None else f"{spread['median']:.2f} [{spread['low']:.2f}, {spread['high']:.2f}]"


def _percentiles(found: dict[str, float] | None, scale: float, digits: int) -> str:
    return "-" if found is None else "/".join(f"{value * scale:.{digits}f}" for value in found.values())
