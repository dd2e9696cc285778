"""MTP on against off on the CPU, batch 1, real prompts: held-out arithmetic problems for the shipped model.

    python benchmarks/speculation_cpu.py [--model M] [--problems 8] [--rounds 5] [--json FILE]

Arms alternate within a round and their order turns from round to round. "off" is plain decode with the row-invariant
products that make speculation lossless; "off, ordinary" is plain decode with `torch.nn.functional.linear` on single
rows and the library's own choice of kernel, which an engine without that promise would use. The speed-up that counts
is against the faster of the two. Decode only: the first token's time (prefill) is not in it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from outrider import ops
from outrider.assets import shipped_model
from outrider.bench.distinct import distinct_share
from outrider.bench.environment import environment_report
from outrider.checkpoint.reader import Checkpoint
from outrider.cli.timed_run import TimedRun, run_once
from outrider.config import EngineConfig, SpeculativeConfig
from outrider.engine.engine import Engine
from outrider.engine.loading import load_model, load_tokenizer
from outrider.evaluation.arithmetic import problems
from outrider.sampling.params import SamplingParams

DEPTHS = (1, 2, 3, 4)


@contextmanager
def ordinary_products() -> Iterator[None]:
    """Every `ops.Linear` as a plain F.linear over the rows that are there."""
    row_invariant = ops.Linear.__call__

    def ordinary(self: ops.Linear, x: Tensor) -> Tensor:
        return F.linear(x, self._weight[:, : self.in_features])

    ops.Linear.__call__ = ordinary  # type: ignore[method-assign]
    try:
        yield
    finally:
        ops.Linear.__call__ = row_invariant  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=None)
    parser.add_argument("--problems", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--json", type=Path, default=None)
    a = parser.parse_args()

    checkpoint = Checkpoint.open(a.model or shipped_model())
    tokenizer = load_tokenizer(checkpoint)
    configs = {depth: SpeculativeConfig(method="mtp", num_speculative_tokens=depth, adaptive=False) for depth in DEPTHS}
    model = load_model(checkpoint, speculative_config=configs[1])
    prompts = [tokenizer.chat_prompt(p.question) for p in problems(seed=2026, count=a.problems, split="heldout")]
    params = SamplingParams(temperature=a.temperature, seed=1, max_tokens=a.max_tokens)

    alone = EngineConfig(max_num_seqs=1, enable_prefix_caching=False)
    plain = model.engine(engine_config=alone)
    engines: dict[str, Engine] = {"off": plain, "off, ordinary": plain}
    engines |= {f"mtp {depth}": model.engine(config, alone) for depth, config in configs.items()}
    runs: dict[str, list[list[TimedRun]]] = {name: [] for name in engines}
    for number in range(-1, a.rounds):  # the round before the first warms up
        names = list(engines) if number % 2 == 0 else list(engines)[::-1]
        for name in names:
            done = round_of(name, engines[name], prompts, params)
            if number >= 0:
                runs[name].append(done)
    report = summarise(runs) | environment_report()
    report |= {"problems": a.problems, "rounds": a.rounds, "max_tokens": a.max_tokens, "temperature": a.temperature}
    show(report)
    if a.json is not None:
        a.json.write_text(json.dumps(report, indent=1) + "\n")


def round_of(name: str, engine: Engine, prompts: list[list[int]], params: SamplingParams) -> list[TimedRun]:
    if name != "off, ordinary":
        return [run_once(engine, prompt, params) for prompt in prompts]
    with ordinary_products():
        return [run_once(engine, prompt, params) for prompt in prompts]


def summarise(runs: dict[str, list[list[TimedRun]]]) -> dict[str, Any]:
    speeds = {name: [_speed(r) for r in rounds] for name, rounds in runs.items()}
    faster = max(("off", "off, ordinary"), key=lambda name: median(speeds[name]))
    arms = {}
    expected = [run.token_ids for run in runs["off"][0]]
    for name, rounds in runs.items():
        ratios = [on / off for on, off in zip(speeds[name], speeds[faster], strict=True)]
        found = rounds[0]
        steps = sum(run.statistics.num_steps for run in found)
        arms[name] = {
            "tokens_per_second": median(speeds[name]),
            "ratio": median(ratios),
            "ratio_quartiles": quantiles(ratios, n=4) if len(ratios) > 1 else None,
            "same_tokens": all([run.token_ids for run in r] == expected for r in rounds),
            "acceptance_length": sum(run.statistics.num_emitted_tokens for run in found) / steps,
            "acceptance_per_position": _pooled(found, lambda run: run.statistics.drafted_per_position),
        }
    distinct = [share for run in runs["off"][0] if (share := distinct_share(run.token_ids)) is not None]
    return {"against": faster, "arms": arms, "distinct_4grams": sum(distinct) / len(distinct)}


def _speed(rounds: list[TimedRun]) -> float:
    """Tokens after the first over the time after the first, of all prompts of a round together."""
    return sum(len(run.token_ids) - 1 for run in rounds) / sum(run.decode_seconds for run in rounds)


def _pooled(runs: list[TimedRun], drafted: Callable[[TimedRun], list[int]]) -> list[float]:
    depth = max(len(drafted(run)) for run in runs)
    shares = []
    for position in range(depth):
        tried = sum(drafted(run)[position] for run in runs if len(drafted(run)) > position)
        right = sum(run.statistics.accepted_per_position[position] for run in runs if len(drafted(run)) > position)
        shares.append(right / tried)
    return shares


def show(report: dict[str, Any]) -> None:
    print(f"ratio against '{report['against']}'; distinct 4-grams {report['distinct_4grams']:.2f}")
    for name, arm in report["arms"].items():
        low, _, high = arm["ratio_quartiles"] or (arm["ratio"],) * 3
        positions = " ".join(f"{share:.2f}" for share in arm["acceptance_per_position"])
        print(
            f"{name:14s} {arm['tokens_per_second']:7.1f} tok/s   {arm['ratio']:.2f}x [{low:.2f}, {high:.2f}]   "
            f"acceptance length {arm['acceptance_length']:.2f} ({positions})   same tokens: {arm['same_tokens']}"
        )
    print(json.dumps({key: report[key] for key in ("machine", "versions")}))


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
