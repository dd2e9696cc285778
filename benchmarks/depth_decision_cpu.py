"""What deciding costs: the depth controller alone, on one core of the host, with as many requests as run.

    OMP_NUM_THREADS=1 python benchmarks/depth_decision_cpu.py [--requests 1 16 64 256] [--depth 3] [--steps 2000]

Three times a step: `decide`; `observe` (what the verifier said, and how long the target and the drafter took); and both
through the engine's policy, which holds requests and no arrays, with the counts of the acceptance monitor. The columns
that the runner fills while it draws are not timed. Costs are made up so that most steps draft; acceptance is drawn. No
model runs, so caches are warmer than in an engine. The p10 is what a busy machine disturbs least.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import numpy as np

from outrider.bench.environment import environment_report
from outrider.engine.depth_policy import AdaptiveDepth, Verified
from outrider.engine.request import Request, Status
from outrider.speculative.acceptance_monitor import AcceptanceMonitor
from outrider.speculative.cost_tables import CostTables, MeasuredCosts
from outrider.speculative.depth_controller import DepthController

ACCEPTANCE = 0.8


@dataclass(eq=False)
class FakeRequest:
    """What a policy looks at."""

    depth: int
    status: Status = Status.RUNNING
    token_ids: Sequence[int] = range(600)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 16, 64, 256])
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--json", type=Path, default=None)
    a = parser.parse_args()
    report: dict[str, Any] = environment_report() | {"depth": a.depth, "steps": a.steps, "microseconds": {}}
    for requests in a.requests:
        found = measure(requests, a.depth, a.steps)
        report["microseconds"][requests] = found
        print(f"{requests:4d} requests: " + ", ".join(
            f"{name} {own['p50']:.0f} us (p10 {own['p10']:.0f}, p99 {own['p99']:.0f})" for name, own in found.items()
        ))  # fmt: skip
    if a.json is not None:
        a.json.write_text(json.dumps(report, indent=1) + "\n")


def tables(requests: int, depth: int) -> CostTables:
    rows = requests * (1 + depth)
    return CostTables(
        MeasuredCosts(
            decode_ms={1: 10.0, max(requests, 2): 12.0},
            verify_ms={1: 10.0, max(rows, 2): 14.0},
            draft_ms=[{1: 0.1 + 0.2 * d} for d in range(depth + 1)],
        ),
        max_requests=requests,
        max_rows=rows,
    )


def measure(requests: int, depth: int, steps: int) -> dict[str, dict[str, float]]:
    """Microseconds of `steps` steps after a tenth as many that are not counted."""
    rng = np.random.default_rng(0)
    controller = DepthController(tables(requests, depth), requests)
    policy = AdaptiveDepth(tables(requests, depth), requests)
    monitor = AcceptanceMonitor(depth)
    running = cast("list[Request]", [FakeRequest(depth) for _ in range(requests)])
    slots, most = np.arange(requests), np.full(requests, depth)
    times: dict[str, list[float]] = {"decide": [], "observe": [], "policy, all of it": []}
    for number in range(-steps // 10, steps):
        stood = np.cumprod(rng.random((requests, depth)) < ACCEPTANCE, axis=1).sum(1)
        begin = perf_counter()
        decided = controller.decide(slots, most)
        middle = perf_counter()
        depths = np.zeros(requests, dtype=np.int64) if decided is None else decided
        accepted = np.minimum(stood, depths)
        seen = depths.astype(np.uint8), accepted.astype(np.uint8)
        tokens = requests + int(accepted.sum())
        pause = perf_counter()
        drafted, deepest = controller.observe_drafts(slots, *seen)
        controller.observe_target(requests, drafted, deepest, tokens, milliseconds=12.0)
        if decided is not None:
            controller.observe_draft(requests, deepest, milliseconds=0.7)
        end = perf_counter()
        whole = policy_step(policy, monitor, running, stood.tolist())
        if number >= 0:
            times["decide"].append(middle - begin)
            times["observe"].append(end - pause)
            times["policy, all of it"].append(whole)
    return {
        name: {f"p{percent}": 1e6 * float(np.percentile(own, percent)) for percent in (10, 50, 99)}
        for name, own in times.items()
    }


def policy_step(
    policy: AdaptiveDepth, monitor: AcceptanceMonitor, running: Sequence[Request], stood: Sequence[int]
) -> float:
    begin = perf_counter()
    depths = policy.depths(running)
    decided = perf_counter() - begin
    given = depths or [0] * len(running)
    verified = Verified()
    for request, drafted, could in zip(running, given, stood, strict=True):
        accepted = min(drafted, could)
        verified.add(request, drafted, accepted, 1 + accepted)
    begin = perf_counter()
    monitor.record(np.frombuffer(verified.lengths, np.int64), *verified.counts)
    if depths is not None:
        policy.drafter_ran(depths, 0.0007, with_prompts=False)
    policy.target_ran(verified, 0.012, with_prompts=False)
    return decided + perf_counter() - begin


if __name__ == "__main__":
    main()
