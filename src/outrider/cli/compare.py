"""`outrider generate --compare`: the same request without and with speculation, in alternation, on the same weights."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from outrider.bench.distinct import distinct_share
from outrider.bench.environment import environment_report
from outrider.cli.session import Session
from outrider.cli.terminal import progress_bar
from outrider.cli.timed_run import TimedRun, run_once, statistics_report
from outrider.engine.request import StepOutput


@dataclass(frozen=True)
class Arm:
    """The runs of one arm. The warm-up is not timed, its tokens are compared like all others."""

    warm_up: TimedRun
    timed: list[TimedRun]

    @property
    def speeds(self) -> list[float]:
        """Decode tokens/s of the timed runs; empty where a run gave a single token."""
        return [speed for run in self.timed if (speed := run.tokens_per_second) is not None]

    @property
    def tokens_per_second(self) -> float | None:
        return median(self.speeds) if self.speeds else None

    @property
    def first_token_seconds(self) -> float:
        return median(run.first_token_seconds for run in self.timed)


@dataclass(frozen=True)
class Comparison:
    """Both arms. `off` is plain decoding."""

    off: Arm
    on: Arm

    @property
    def speedup(self) -> float | None:
        off, on = self.off.tokens_per_second, self.on.tokens_per_second
        return on / off if off and on else None

    @property
    def difference(self) -> tuple[int, TimedRun] | None:
        """(index, run): the first token in which a run departs from the first plain one; None if all are equal."""
        expected = self.off.warm_up.token_ids
        for run in (*self.off.timed, self.on.warm_up, *self.on.timed):
            index = first_difference(expected, run.token_ids)
            if index is not None:
                return index, run
        return None


def compare_arms(session: Session, pairs: int) -> bool:
    """Runs and reports; whether all texts are identical."""
    comparison = _run(session, pairs)
    if session.quiet:
        print(json.dumps(report(session, comparison)))
    else:
        print()
        show(session, comparison, Console(file=sys.stdout))
    return comparison.difference is None


def _run(session: Session, pairs: int) -> Comparison:
    engines = {"off": session.engine(None), "on": session.engine(session.speculation)}

    def run(arm: str, on_step: Callable[[StepOutput], None] | None = None) -> TimedRun:
        return run_once(engines[arm], session.prompt_token_ids, session.params, on_step)

    if session.quiet:
        warm_on = run("on")
    else:
        stream = session.text_stream()
        warm_on = run("on", stream.push_step)
        stream.finish()
    total = 1 + 2 * pairs
    timed: dict[str, list[TimedRun]] = {"off": [], "on": []}
    with progress_bar("comparing", hidden=session.quiet) as progress:
        warm_off = run("off")
        for pair in range(pairs):
            for arm in ("off", "on") if pair % 2 == 0 else ("on", "off"):
                if progress is not None:
                    progress(1 + len(timed["off"]) + len(timed["on"]), total)
                timed[arm].append(run(arm))
    return Comparison(Arm(warm_off, timed["off"]), Arm(warm_on, timed["on"]))


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Index of the first token that differs (one sequence may have ended there); None if they are equal."""
    for index, (a, b) in enumerate(zip_longest(left, right)):
        if a != b:
            return index
    return None


def report(session: Session, comparison: Comparison) -> dict[str, Any]:
    """The object of --json."""
    off, on = comparison.off, comparison.on
    tokens = on.warm_up.token_ids
    decode = session.tokenizer.decode
    assert session.speculation is not None
    return {
        "text_off": decode(off.warm_up.token_ids),
        "text_on": decode(tokens),
        "identical": comparison.difference is None,
        "first_difference": _difference_report(session, comparison),
        "tokens": {"off": len(off.warm_up.token_ids), "on": len(tokens)},
        "tokens_per_second": {"off": off.tokens_per_second, "on": on.tokens_per_second},
        "tokens_per_second_range": {name: _range(arm.speeds) for name, arm in (("off", off), ("on", on))},
        "time_to_first_token": {"off": off.first_token_seconds, "on": on.first_token_seconds},
        "speedup": comparison.speedup,
        **statistics_report(on.warm_up.statistics),
        "distinct_4grams": distinct_share(tokens),
        "finish_reason": on.warm_up.finish_reason,
        "prompt_tokens": len(session.prompt_token_ids),
        "seed": on.warm_up.seed,
        "temperature": session.params.temperature,
        "pairs": len(on.timed),
        "speculative_config": session.speculation.model_dump(),
        "model": session.model_name,
        **environment_report(),
    }


def _difference_report(session: Session, comparison: Comparison) -> dict[str, Any] | None:
    if comparison.difference is None:
        return None
    index, run = comparison.difference
    expected = comparison.off.warm_up.token_ids
    return {
        "index": index,
        "plain": _token(session, expected, index),
        "other": _token(session, run.token_ids, index),
    }


def _token(session: Session, token_ids: Sequence[int], index: int) -> dict[str, Any] | None:
    if index >= len(token_ids):
        return None
    return {"id": token_ids[index], "text": session.tokenizer.decode([token_ids[index]])}


def _range(speeds: list[float]) -> list[float] | None:
    return [min(speeds), max(speeds)] if speeds else None


# ------------------------------------------------------------------------------------------------ for people


def show(session: Session, comparison: Comparison, console: Console) -> None:
    """The table."""
    assert session.speculation is not None
    off, on = comparison.off, comparison.on
    statistics = on.warm_up.statistics
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column("plain", justify="right")
    table.add_column(f"MTP, up to {session.speculation.num_speculative_tokens} drafts", justify="right")
    table.add_row("tokens generated", str(len(off.warm_up.token_ids)), str(len(on.warm_up.token_ids)))
    table.add_row("tokens/s, decode only", _speed(off), _speed(on))
    table.add_row("  lowest to highest", _spread(off), _spread(on))
    table.add_row("time to first token", f"{off.first_token_seconds:.2f} s", f"{on.first_token_seconds:.2f} s")
    table.add_row("speed-up", "", "-" if comparison.speedup is None else f"{comparison.speedup:.2f}x")
    table.add_row("acceptance length", "", f"{statistics.acceptance_length:.2f}")
    table.add_row("acceptance by position", "", _shares(statistics.acceptance_per_position))
    table.add_row("  given the ones before", "", _shares(statistics.conditional_acceptance))
    distinct = distinct_share(on.warm_up.token_ids)
    table.add_row("distinct 4-grams of the text", "", "-" if distinct is None else f"{distinct:.2f}")
    table.add_row("texts identical", "", "yes" if comparison.difference is None else "NO")
    console.print(table)
    environment = environment_report()
    machine, versions = environment["machine"], environment["versions"]
    lines = [
        f"Median of {len(on.timed)} alternating pairs after a warm-up; tokens/s counts the tokens after the first.",
        f"{machine['processor']}, {machine['threads']} threads, torch {versions['torch']}; seed {on.warm_up.seed}",
    ]
    if comparison.difference is not None:
        lines.append(_difference_sentence(session, comparison))
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _difference_sentence(session: Session, comparison: Comparison) -> str:
    found = _difference_report(session, comparison)
    assert found is not None
    plain, other = (
        "the end" if token is None else f"{token['id']} {token['text']!r}" for token in (found["plain"], found["other"])
    )
    return (
        f"The texts differ from generated token {found['index']} on: plain decoding gives {plain}, another run {other}."
    )


def _speed(arm: Arm) -> str:
    return "-" if arm.tokens_per_second is None else f"{arm.tokens_per_second:.1f}"


def _spread(arm: Arm) -> str:
    return f"{min(arm.speeds):.1f} to {max(arm.speeds):.1f}" if arm.speeds else "-"


def _shares(shares: list[float]) -> str:
    return "  ".join(f"{share:.2f}" for share in shares) or "-"
