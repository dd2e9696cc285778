"""Throughput against per-user speed, and ratio against load, of a result file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.config import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def read_result(path: Path) -> dict[str, Any]:
    """Raises ConfigError when the file is not a result of `outrider bench`."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read as JSON ({error})") from None
    if not isinstance(report, dict) or not report.get("cells") or "arms" not in report["cells"][0]:
        raise ConfigError(f"{path}: not a result of outrider bench (it has no cells with arms)")
    return report


def plot(report: dict[str, Any], stem: Path) -> list[Path]:
    """Writes `stem`.png and `stem`.svg and returns them. Raises ConfigError without matplotlib."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ConfigError(
            "bench plot: matplotlib is not installed; `pip install 'outrider[bench]'` brings it"
        ) from None
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    speed, ratio = figure.subplots(1, 2)
    _draw_speed(speed, report)
    _draw_ratio(ratio, report)
    machine = report["machine"]
    place = ", ".join(machine["gpus"]) or machine["processor"]
    figure.suptitle(f"{report['model']}, {report['dataset']['name']}: {place}", fontsize=10)
    paths = [stem.with_name(stem.name + ending) for ending in (".png", ".svg")]
    # the same figures give the same bytes, so that a commit shows what changed
    with rc_context({"svg.hashsalt": "outrider"}):
        figure.savefig(paths[0], dpi=150)
        figure.savefig(paths[1], metadata={"Date": None})
    return paths


def _loads(report: dict[str, Any]) -> list[str]:
    cells = report["cells"]
    return [f"{c['request_rate']:g}/s" if c["concurrency"] is None else str(c["concurrency"]) for c in cells]


def _draw_speed(axes: Axes, report: dict[str, Any]) -> None:
    for number, name in enumerate(report["cells"][0]["arms"]):
        points = [
            (arm["tokens_per_second_per_user"]["median"], arm["output_tokens_per_second"]["median"], load)
            for load, cell in zip(_loads(report), report["cells"], strict=True)
            if (arm := cell["arms"][name])["tokens_per_second_per_user"] is not None
        ]
        axes.plot([x for x, _, _ in points], [y for _, y, _ in points], marker="o", color=f"C{number}", label=name)
        for x, y, load in points:
            axes.annotate(load, (x, y), textcoords="offset points", xytext=(5, 4), fontsize=8)
    axes.set(xlabel="tokens/s of a user (1 / median TPOT)", ylabel="output tokens/s of all", xlim=(0, None))
    axes.set_ylim(bottom=0)
    axes.legend()
    axes.grid(alpha=0.3)


def _draw_ratio(axes: Axes, report: dict[str, Any]) -> None:
    loads = _loads(report)
    names = list(report["cells"][0]["arms"])
    for number, name in enumerate(names[1:], 1):
        ratios = [cell["arms"][name]["ratio"] for cell in report["cells"]]
        middle = [ratio["median"] for ratio in ratios]
        below = [ratio["median"] - ratio["low"] for ratio in ratios]
        above = [ratio["high"] - ratio["median"] for ratio in ratios]
        axes.errorbar(
            range(len(loads)), middle, yerr=(below, above), marker="o", capsize=3, color=f"C{number}", label=name
        )
    axes.axhline(1.0, color="black", linewidth=1)
    axes.set_xticks(range(len(loads)), loads)
    axes.set_ylim(bottom=0)
    unit = "requests a second" if report["cells"][0]["concurrency"] is None else "requests at a time"
    axes.set(xlabel=unit, ylabel=f"output tokens/s, ratio to {names[0]}")
    if names[1:]:
        axes.legend()
    axes.grid(alpha=0.3)
