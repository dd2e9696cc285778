"""Where a step's time goes at batch 8 with the shipped model, and what of it is not the model.

    python benchmarks/engine_overhead_cpu.py [--batch 8] [--steps 60] [--rounds 5] [--json FILE]

Each part is timed by wall clock around the method that does it, without what it calls of the other parts. The model is
its matrix products, attention and everything else between token ids and logits, trunk and drafter; what is left is the
engine's own: planning (slots, angles and tables of a step), scheduling, drawing and verifying, bookkeeping. Steps in
which a prompt is computed are not counted. Of the rounds, the one with the median share is shown.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from outrider.assets import shipped_model
from outrider.bench.environment import environment_report
from outrider.checkpoint.reader import Checkpoint
from outrider.config import EngineConfig, SpeculativeConfig
from outrider.engine.engine import Engine
from outrider.engine.loading import load_model, load_tokenizer
from outrider.engine.scheduler import Scheduler
from outrider.evaluation.arithmetic import problems
from outrider.model.mtp import MultiTokenPredictor
from outrider.model.plan import Planner
from outrider.model.transformer import Transformer
from outrider.sampling.params import SamplingParams
from outrider.sampling.sampler import Sampler

MODEL_PARTS = ("trunk", "trunk head", "drafter", "drafter head")
PARTS: dict[str, list[tuple[type, str]]] = {
    "trunk": [(Transformer, "forward")],
    "trunk head": [(Transformer, "logits")],
    "drafter": [(MultiTokenPredictor, "forward")],
    "drafter head": [(MultiTokenPredictor, "logits")],
    "planning": [(Planner, "plan")],
    "drawing": [(Sampler, "verify"), (Sampler, "draft")],
    "scheduling": [(Scheduler, "schedule")],
    "bookkeeping": [(Engine, "step")],
}


class Clock:
    """Seconds of each part, without the parts that ran inside it."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._inner = [0.0]
        for part, methods in PARTS.items():
            for owner, name in methods:
                setattr(owner, name, self._timed(part, getattr(owner, name)))

    def _timed(self, part: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self._inner.append(0.0)
            began = time.perf_counter()
            try:
                return method(*args, **options)
            finally:
                took = time.perf_counter() - began
                self.seconds[part] += took - self._inner.pop()
                self._inner[-1] += took

        return call

    def reset(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, default=None)
    a = parser.parse_args()
    torch.set_grad_enabled(False)
    checkpoint = Checkpoint.open(shipped_model())
    tokenizer = load_tokenizer(checkpoint)
    mtp = SpeculativeConfig(method="mtp", num_speculative_tokens=3)
    model = load_model(checkpoint, speculative_config=mtp)
    options = EngineConfig(max_num_seqs=a.batch, max_model_len=1024, enable_prefix_caching=True)
    prompts = [tokenizer.chat_prompt(p.question) for p in problems(seed=2026, count=a.batch, split="heldout")]
    clock = Clock()
    report: dict[str, Any] = {"batch": a.batch, "steps": a.steps, "rounds": a.rounds} | environment_report()
    for name, speculation, temperature in (
        ("off, greedy", None, 0.0),
        ("off, T = 0.7", None, 0.7),
        ("mtp 3, greedy", mtp, 0.0),
        ("mtp 3, T = 0.7", mtp, 0.7),
    ):
        engine = model.engine(speculation, options)
        rounds = []
        for number in range(-1, a.rounds):  # the round before the first warms up
            params = SamplingParams(temperature=temperature, seed=number + 1, max_tokens=800, ignore_eos=True)
            measured = one_round(engine, prompts, params, a.steps, clock)
            if number >= 0:
                rounds.append(measured)
        shares = [overhead(seconds) for seconds in rounds]
        chosen = min(rounds, key=lambda seconds: abs(overhead(seconds) - median(shares)))
        report[name] = {
            "overhead": round(median(shares), 4),
            "overhead_range": [round(min(shares), 4), round(max(shares), 4)],
            "milliseconds_a_step": {part: round(1e3 * s / a.steps, 3) for part, s in chosen.items()},
        }
        show(name, report[name])
    if a.json is not None:
        a.json.write_text(json.dumps(report, indent=1) + "\n")


def one_round(
    engine: Engine, prompts: list[list[int]], params: SamplingParams, steps: int, clock: Clock
) -> dict[str, float]:
    requests = [engine.add_request(prompt, params) for prompt in prompts]
    while any(request.num_computed < request.prompt_length for request in requests):
        engine.step()
    clock.reset()
    for _ in range(steps):
        engine.step()
    seconds = clock.seconds
    for request in requests:
        if request.finish_reason is not None:
            raise RuntimeError("a request ended while steps were timed: fewer --steps")
        engine.abort(request)
    return seconds


def overhead(seconds: dict[str, float]) -> float:
    """The share of a step that is not the model."""
    return 1 - sum(seconds[part] for part in MODEL_PARTS) / sum(seconds.values())


def show(name: str, result: dict[str, Any]) -> None:
    low, high = result["overhead_range"]
    print(f"{name}: {result['overhead']:.1%} of a step is not the model [{low:.1%}, {high:.1%}]")
    for part, milliseconds in result["milliseconds_a_step"].items():
        print(f"    {part:<14}{milliseconds:9.3f} ms")


if __name__ == "__main__":
    main()
