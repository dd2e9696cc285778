"""The depth controller in worlds whose costs and acceptance are known: against no speculation and every fixed depth.

    python benchmarks/controller_sim.py [--held-out] [--wrong-by-two] [--busy 1.8] [--tokens 1500] [--seeds 2]
                                        [--seed-start 1000] [--processes 2] [--json FILE] [--markdown FILE]

A world has a cost shape, a number of requests, an acceptance that may drift as the text goes on, and tables that are
wrong by a quarter in one place or another; --wrong-by-two: by a factor of two. In a busy one everything takes --busy
times as long for a while, again and again, as on a machine that others use. The controller sees drawn outcomes and
noisy times; what is compared are expected tokens and true times of a quiet machine, so that luck is in neither. Time is
counted, never measured: results repeat exactly. Its constants were settled on seeds below 1000 of the ordinary worlds.
The held-out ones (other curves of the same four kinds, other numbers of requests, acceptances and errors, a dearer
drafter) decided nothing; the errors by two are the same ones in both.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.cost_tables import CostTables, MeasuredCosts
from outrider.speculative.depth_controller import DepthController

MAX_DEPTH = 3
REQUEST_TOKENS = 250  # of a request, then a new one takes its place
COLD_STEPS = 8  # until a drafter that starts without its window is as good as ever
COLD = 0.7  # of its acceptance in the first of them
TIME_NOISE = 0.03


def flat(rows: int) -> float:
    """Weights are read once, rows cost next to nothing."""
    return 10 + 0.01 * rows


def linear(rows: int) -> float:
    """Rows cost as on a CPU."""
    return 8 + 2 * rows


def staircase(rows: int) -> float:
    """Graphs for powers of two; each bucket costs what its edge costs."""
    edge = 1 << (rows - 1).bit_length()
    return 6 + 0.35 * edge


def v_shaped(rows: int) -> float:
    """Sparse experts: the first rows touch new ones each, later rows find theirs touched, many rows are arithmetic."""
    return 1.9 + 35 * (1 - (1 - 6 / 256) ** rows) + max(0, rows - 256) * 0.11


SHAPES: dict[str, Callable[[int], float]] = {
    "flat": flat, "linear": linear, "staircase": staircase, "v": v_shaped,
}  # fmt: skip
# conditional acceptance by position at the text's beginning and end; "waves" goes to and fro
ACCEPTANCE: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "good": ((0.88, 0.8, 0.75), (0.88, 0.8, 0.75)),
    "middling": ((0.65, 0.5, 0.4), (0.65, 0.5, 0.4)),
    "poor": ((0.3, 0.2, 0.1), (0.3, 0.2, 0.1)),
    "falling": ((0.9, 0.85, 0.8), (0.2, 0.1, 0.1)),
    "rising": ((0.2, 0.1, 0.1), (0.9, 0.85, 0.8)),
    "waves": ((0.9, 0.8, 0.75), (0.25, 0.2, 0.1)),
}
ERRORS = {"right": (1.0, 1.0), "decode -25 %": (0.75, 1.0), "decode +25 %": (1.25, 1.0),
          "verify -25 %": (1.0, 0.75), "verify +25 %": (1.0, 1.25)}  # fmt: skip
WRONG_BY_TWO = {"decode / 2": (0.5, 1.0), "decode * 2": (2.0, 1.0), "verify / 2": (1.0, 0.5),
                "verify * 2": (1.0, 2.0), "both * 2": (2.0, 2.0)}  # fmt: skip
BUSY_STEPS = (20, 300)  # a busy time or a quiet one lasts so many steps
REQUESTS = (1, 4, 16, 64, 256)


def flat_with_a_knee(rows: int) -> float:
    """Weights are read once; from 160 rows on arithmetic counts."""
    return 14 + 0.02 * rows + 0.15 * max(0, rows - 160)


def steep_linear(rows: int) -> float:
    """Rows cost nearly all there is."""
    return 3 + 2.6 * rows


def uneven_staircase(rows: int) -> float:
    """Graphs at 1, 2, 4, then every 8 rows, then every 32; the step to 16 rows changes kernels."""
    edge = next((edge for edge in (1, 2, 4) if rows <= edge), 0)
    edge = edge or (-(-rows // 8) * 8 if rows <= 64 else -(-rows // 32) * 32)
    return 9 + 0.22 * edge + (3 if edge >= 16 else 0)


def deep_v(rows: int) -> float:
    """Sparser experts than above, and arithmetic that starts earlier."""
    return 3.2 + 60 * (1 - (1 - 8 / 384) ** rows) + 0.07 * max(0, rows - 128)


HELD_OUT_SHAPES: dict[str, Callable[[int], float]] = {
    "flat, knee": flat_with_a_knee, "linear, steep": steep_linear, "staircase, uneven": uneven_staircase,
    "v, deep": deep_v,
}  # fmt: skip
HELD_OUT_ACCEPTANCE: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "excellent": ((0.95, 0.93, 0.9), (0.95, 0.93, 0.9)),
    "first only": ((0.8, 0.25, 0.1), (0.8, 0.25, 0.1)),
    "even": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "useless": ((0.05, 0.05, 0.05), (0.05, 0.05, 0.05)),
    "falling": ((0.85, 0.7, 0.6), (0.35, 0.25, 0.2)),
    "waves": ((0.8, 0.75, 0.7), (0.1, 0.1, 0.1)),
}
HELD_OUT_ERRORS = {"right": (1.0, 1.0), "both -25 %": (0.75, 0.75), "decode -25 %, verify +25 %": (0.75, 1.25),
                   "decode +25 %, verify -25 %": (1.25, 0.75), "verify -25 %": (1.0, 0.75)}  # fmt: skip
HELD_OUT_REQUESTS = (1, 2, 12, 48, 160)
DRAFT_SHARE, HELD_OUT_DRAFT_SHARE = 0.07, 0.11  # of a plain step, for a draft


@dataclass(frozen=True)
class World:
    shape: str
    requests: int
    acceptance: str
    error: str
    seed: int
    draft_share: float = DRAFT_SHARE
    busy: float = 1.0

    def step_ms(self, rows: int) -> float:
        return (SHAPES | HELD_OUT_SHAPES)[self.shape](rows)

    def draft_ms(self, depth: int) -> float:
        """The catch-up is a small part of a plain step, every draft a larger one."""
        return self.step_ms(self.requests) * (0.02 + self.draft_share * depth)

    def conditional(self, progress: float) -> NDArray[np.float64]:
        """[MAX_DEPTH] true acceptance at this share of the text."""
        held_out = self.shape in HELD_OUT_SHAPES
        start, end = (np.array(p) for p in (HELD_OUT_ACCEPTANCE if held_out else ACCEPTANCE)[self.acceptance])
        share = progress if self.acceptance != "waves" else 0.5 - 0.5 * math.cos(4 * math.pi * progress)
        return start + (end - start) * share

    def tables(self) -> CostTables:
        decode, verify = (ERRORS | HELD_OUT_ERRORS | WRONG_BY_TWO)[self.error]
        rows = range(1, self.requests * (1 + MAX_DEPTH) + 1)
        return CostTables(
            MeasuredCosts(
                decode_ms={self.requests: decode * self.step_ms(self.requests)},
                verify_ms={t: verify * self.step_ms(t) for t in rows},
                draft_ms=[{self.requests: self.draft_ms(d)} for d in range(MAX_DEPTH + 1)],
            ),
            max_requests=self.requests,
            max_rows=rows[-1],
        )


def fixed_ms(world: World, depth: int, tokens: int) -> float:
    """Milliseconds for `tokens` a request at a fixed depth; 0 is off."""
    c = world.requests
    cost = world.step_ms(c * (1 + depth)) + (world.draft_ms(depth) if depth else 0.0)
    shares = (np.arange(tokens) + 0.5) / tokens
    return sum(cost / (1 + float(np.cumprod(world.conditional(x)[:depth]).sum())) for x in shares)


@dataclass(frozen=True)
class Result:
    """Rates of the controller over those of plain decoding and of the best fixed depth (0 included)."""

    of_off: float
    of_best: float
    best_depth: int
    fixed_of_off: float  # of the deepest fixed depth
    turns: int


def run(world: World, tokens: int) -> Result:
    """`tokens` of each request with the controller; the engine's own order of calls."""
    rng = np.random.default_rng(world.seed)
    c = world.requests
    controller = DepthController(world.tables(), c)
    slots = np.arange(c)
    most = np.full(c, MAX_DEPTH)
    ages = rng.integers(0, REQUEST_TOKENS, c).astype(float)
    depths, warm = np.zeros(c, dtype=np.int64), COLD_STEPS
    done = spent = 0.0
    machine, change = world.busy, 0  # quiet and busy in turn

    def noisy(ms: float) -> float:
        return machine * ms * math.exp(TIME_NOISE * float(rng.standard_normal()))

    while done < tokens * c:
        change -= 1
        if change < 0:
            machine, change = world.busy / machine, int(rng.integers(*BUSY_STEPS))
        target = world.step_ms(c + int(depths.sum()))
        quality = COLD + (1 - COLD) * min(warm / COLD_STEPS, 1.0)
        p = world.conditional(min(done / (tokens * c), 1.0)) * quality
        within = np.arange(MAX_DEPTH) < depths[:, None]
        stood = np.cumprod((rng.random((c, MAX_DEPTH)) < p) & within, axis=1)
        accepted = stood.sum(1)
        expected = 1 + np.where(within, np.cumprod(p), 0.0).sum(1)
        done += float(expected.sum())
        spent += target
        emitted = c + int(accepted.sum())
        controller.observe_target(c, int(depths.sum()), int(depths.max()), emitted, noisy(target))
        controller.observe_drafts(slots, depths.astype(np.uint8), accepted.astype(np.uint8))
        ages += expected
        for slot in np.nonzero(ages > REQUEST_TOKENS)[0]:
            ages[slot] = 0.0
            controller.acceptance.reset(int(slot))
        decided = None if controller.waits() else controller.decide(slots, most)
        if decided is None:
            depths, warm = np.zeros(c, dtype=np.int64), 0
            continue
        depths, warm = decided, warm + 1
        draft = world.draft_ms(int(depths.max()))
        spent += draft
        controller.observe_draft(c, int(depths.max()), noisy(draft))
    times = [fixed_ms(world, depth, tokens) for depth in range(MAX_DEPTH + 1)]
    own = spent * tokens * c / done  # the last step goes beyond
    best = min(times)
    return Result(times[0] / own, best / own, times.index(best), times[0] / times[-1], controller.summary().num_turns)


def worlds(
    seeds: int, seed_start: int, *, held_out: bool = False, wrong_by_two: bool = False, busy: float = 1.0
) -> Iterator[World]:
    axes = (SHAPES, REQUESTS, ACCEPTANCE)
    if held_out:
        axes = (HELD_OUT_SHAPES, HELD_OUT_REQUESTS, HELD_OUT_ACCEPTANCE)
    errors = WRONG_BY_TWO if wrong_by_two else HELD_OUT_ERRORS if held_out else ERRORS
    share = HELD_OUT_DRAFT_SHARE if held_out else DRAFT_SHARE
    for shape, c, acceptance, error in product(*axes, errors):
        for seed in range(seed_start, seed_start + seeds):
            yield World(shape, c, acceptance, error, seed, share, busy)


def _one(job: tuple[World, int]) -> tuple[World, Result]:
    return job[0], run(*job)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--seed-start", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--wrong-by-two", action="store_true")
    parser.add_argument("--busy", type=float, default=1.0)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--markdown", type=Path, default=None)
    a = parser.parse_args()
    settings = {"held_out": a.held_out, "wrong_by_two": a.wrong_by_two, "busy": a.busy}
    jobs = [(world, a.tokens) for world in worlds(a.seeds, a.seed_start, **settings)]
    with multiprocessing.get_context("spawn").Pool(a.processes) as pool:
        results = list(pool.imap(_one, jobs, chunksize=8))
    report = summarise(results) | settings | {"tokens": a.tokens, "seeds": a.seeds, "seed_start": a.seed_start}
    print(json.dumps(report, indent=1))
    if a.json is not None:
        a.json.write_text(json.dumps(report, indent=1) + "\n")
    if a.markdown is not None:
        a.markdown.write_text(table(results, report))


def table(results: list[tuple[World, Result]], report: dict[str, Any]) -> str:
    """Markdown: a row for each shape and number of requests."""
    options = "--held-out " if report["held_out"] else ""
    options += "--wrong-by-two " if report["wrong_by_two"] else ""
    options += f"--busy {report['busy']} " if report["busy"] != 1 else ""
    mean = report["mean_of_best_fixed_right_tables"]
    right = "" if mean is None else f" (right tables {mean:.3f})"
    lines = [
        "# The depth controller in simulated worlds",
        "",
        f"`python benchmarks/controller_sim.py {options}--tokens {report['tokens']}"
        f" --seeds {report['seeds']} --seed-start {report['seed_start']}`: {report['runs']} runs, synthetic acceptance "
        "and costs, counted time. Rates of the controller over plain decoding (off) and over the best fixed depth in "
        "hindsight, 0 included.",
        "",
        f"Worst of off {report['worst_of_off']:.3f}; below 0.98 of off: {report['below_0.98_of_off']}. Mean of the "
        f"best fixed depth {report['mean_of_best_fixed']:.3f}{right}; "
        f"below 0.95 of it: {report['below_0.95_of_best_fixed']}. Always drafting 3 gives "
        f"{report['worst_fixed_depth_of_off']:.2f} of off at worst.",
        "",
        "| cost | requests | runs | of off: worst | median | best | of best fixed: worst | mean |",
        "|---|---|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[str, int], list[Result]] = {}
    for world, result in results:
        groups.setdefault((world.shape, world.requests), []).append(result)
    for (shape, requests), own in groups.items():
        off, best = [r.of_off for r in own], [r.of_best for r in own]
        lines.append(
            f"| {shape} | {requests} | {len(own)} | {min(off):.3f} | {np.median(off):.3f} | {max(off):.3f} | "
            f"{min(best):.3f} | {np.mean(best):.3f} |"
        )
    return "\n".join(lines) + "\n"


def summarise(results: list[tuple[World, Result]]) -> dict[str, Any]:
    worst = sorted(results, key=lambda item: item[1].of_off)[:5]
    far = sorted(results, key=lambda item: item[1].of_best)[:5]
    right = [r.of_best for w, r in results if w.error == "right"]
    steady = [
        r.of_best for w, r in results if w.error == "right" and w.acceptance not in ("falling", "rising", "waves")
    ]
    return {
        "runs": len(results),
        "worst_of_off": worst[0][1].of_off,
        "below_0.98_of_off": sum(r.of_off < 0.98 for _, r in results),
        "mean_of_best_fixed": float(np.mean([r.of_best for _, r in results])),
        "mean_of_best_fixed_right_tables": float(np.mean(right)) if right else None,
        "mean_of_best_fixed_right_tables_steady_text": float(np.mean(steady)) if steady else None,
        "below_0.95_of_best_fixed": sum(r.of_best < 0.95 for _, r in results),
        "worst_fixed_depth_of_off": min(r.fixed_of_off for _, r in results),
        "most_turns": max(r.turns for _, r in results),
        "worst_runs": [{**vars(w), **vars(r)} for w, r in worst],
        "farthest_from_best": [{**vars(w), **vars(r)} for w, r in far],
    }


if __name__ == "__main__":
    main()
