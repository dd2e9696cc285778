"""Never slower than off: the shipped model on the CPU, plain, at fixed depths and with the depth controller.

    python benchmarks/depth_controller_cpu.py [--concurrency 1 4 16] [--kinds prose code] [--pairs 10] [--minutes 18]
                                              [--json FILE] [--markdown FILE]

One engine an arm, all on the same weights. A window is the same requests of one kind of text (word problems, prose,
code), run to their end at the same time; windows of all arms alternate, their order turns from round to round, and
every ratio is of two windows of one round. Whole windows are timed, prompts included. A window has as many tokens as
let the whole run end in about --minutes on a quiet machine; the controller keeps what it learned from window to window.
The last line is the verdict: of each demand, where it does not hold. The best fixed depth may be 0.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch

from outrider.assets import shipped_model
from outrider.bench.environment import environment_report
from outrider.checkpoint.reader import Checkpoint
from outrider.config import EngineConfig, SpeculativeConfig
from outrider.engine.engine import Engine
from outrider.engine.loading import load_model, load_tokenizer
from outrider.evaluation.arithmetic import problems
from outrider.sampling.params import SamplingParams
from outrider.text.tokenizer import Tokenizer

FIXED = (1, 2, 3)
PROSE = (
    "The history of the library begins with a small room above the market, where",
    "When a program is started, the operating system first",
    "This module is used to read and write files. It should be",
)
CODE = (
    "def read_lines(path):\n    with open(path) as file:\n",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    "for index, name in enumerate(names):\n    if name in",
)


KINDS = ("word problems", "prose", "code")
LEAST_TOKENS, MOST_TOKENS = 8, 96  # of a request in a window

OF_OFF, LOW_OF_OFF, OF_BEST_FIXED, ALONE = 0.98, 0.95, 0.95, 1.4  # what is demanded of the controller


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=None)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=18.0)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--markdown", type=Path, default=None)
    a = parser.parse_args()

    checkpoint = Checkpoint.open(a.model or shipped_model())
    tokenizer = load_tokenizer(checkpoint)
    fixed = {d: SpeculativeConfig(method="mtp", num_speculative_tokens=d, adaptive=False) for d in FIXED}
    adaptive = SpeculativeConfig(method="mtp", num_speculative_tokens=max(FIXED), adaptive=True)
    model = load_model(checkpoint, speculative_config=adaptive)
    results: list[dict[str, Any]] = []
    report: dict[str, Any] = environment_report() | {"pairs": a.pairs, "results": results}
    windows = len(a.concurrency) * len(a.kinds) * (len(FIXED) + 2) * (a.pairs + 1)
    started = perf_counter()
    for concurrency in a.concurrency:
        options = EngineConfig(max_num_seqs=concurrency, enable_prefix_caching=False, max_model_len=1024)
        engines = {"off": model.engine(engine_config=options), "auto": model.engine(adaptive, options)}
        engines |= {f"mtp {d}": model.engine(config, options) for d, config in fixed.items()}
        for kind in a.kinds:
            prompts = prompts_of(tokenizer, kind, concurrency)
            found = measure(engines, prompts, a.pairs, 60 * a.minutes / windows)
            results.append({"concurrency": concurrency, "kind": kind} | found)
            report["minutes"] = (perf_counter() - started) / 60
            print(f"{concurrency:3d} requests, {kind}: " + line(found), flush=True)
            if a.json is not None:
                a.json.write_text(json.dumps(report, indent=1) + "\n")
            if a.markdown is not None:
                a.markdown.write_text(table(report))
    print(verdict(results))


def prompts_of(tokenizer: Tokenizer, kind: str, count: int) -> list[list[int]]:
    """Beyond the few there are of prose and code they repeat; requests differ by their seeds."""
    if kind == "word problems":
        asked = problems(seed=2026, count=count, split="heldout")
        return [tokenizer.chat_prompt(problem.question) for problem in asked]
    texts = PROSE if kind == "prose" else CODE
    return [tokenizer.completion_prompt(texts[index % len(texts)]) for index in range(count)]


def window(engine: Engine, prompts: Sequence[Sequence[int]], max_tokens: int) -> tuple[float, list[Any]]:
    """Seconds that all prompts take at the same time, and their tokens."""
    sampled = [
        SamplingParams(temperature=0.7, seed=seed, max_tokens=max_tokens, ignore_eos=True)
        for seed in range(len(prompts))
    ]
    start = perf_counter()
    requests = [engine.add_request(prompt, params) for prompt, params in zip(prompts, sampled, strict=True)]
    while engine.has_unfinished:
        engine.step()
    return perf_counter() - start, [request.output_token_ids for request in requests]


def measure(engines: dict[str, Engine], prompts: list[list[int]], pairs: int, seconds: float) -> dict[str, Any]:
    """seconds: about what a window may take."""
    window(engines["off"], prompts, LEAST_TOKENS)  # the first one compiles
    short, _ = window(engines["off"], prompts, LEAST_TOKENS)
    max_tokens = min(max(int(LEAST_TOKENS * seconds / short), LEAST_TOKENS), MOST_TOKENS)
    speeds: dict[str, list[float]] = {name: [] for name in engines}
    same = True
    expected: list[Any] | None = None
    for number in range(-1, pairs):  # the round before the first warms up
        for name in list(engines) if number % 2 == 0 else list(engines)[::-1]:
            spent, tokens = window(engines[name], prompts, max_tokens)
            expected = tokens if expected is None else expected
            same = same and tokens == expected
            if number >= 0:
                speeds[name].append(max_tokens * len(prompts) / spent)
    best = max((name for name in speeds if name != "auto"), key=lambda name: median(speeds[name]))
    controller, acceptance = engines["auto"].depth_report, engines["auto"].acceptance_report
    assert controller is not None and acceptance is not None
    return {
        "max_tokens": max_tokens,
        "tokens_per_second": {name: median(found) for name, found in speeds.items()},
        "of_off": {name: ratio(found, speeds["off"]) for name, found in speeds.items() if name != "off"},
        "best_fixed": best,
        "auto_of_best_fixed": ratio(speeds["auto"], speeds[best]),
        "same_tokens": same,
        "controller": asdict(controller),
        "acceptance": asdict(acceptance),
    }


def ratio(own: list[float], other: list[float]) -> dict[str, float]:
    """Median of the pairs' ratios and its 95 % interval, by resampling pairs."""
    ratios = [a / b for a, b in zip(own, other, strict=True)]
    rng = random.Random(0)
    medians = sorted(median(rng.choices(ratios, k=len(ratios))) for _ in range(2000))
    return {"median": median(ratios), "low": medians[50], "high": medians[1949]}


def verdict(results: Sequence[dict[str, Any]]) -> str:
    """A sentence for each demand: in how many of the measured places it holds, and the others with their figures."""
    of_off = [(place(found), found["of_off"]["auto"]) for found in results]
    alone = [own for found, own in zip(results, of_off, strict=True) if found["concurrency"] == 1]
    of_best = [(f"{place(found)} ({found['best_fixed']})", found["auto_of_best_fixed"]) for found in results]
    return "verdict: " + "; ".join((
        holds(f"median of off >= {OF_OFF}", "median", OF_OFF, of_off),
        holds(f"lower bound of off >= {LOW_OF_OFF}", "low", LOW_OF_OFF, of_off),
        holds(f"median of the best fixed depth >= {OF_BEST_FIXED}", "median", OF_BEST_FIXED, of_best),
        holds(f"median of off at 1 request >= {ALONE}", "median", ALONE, alone),
        f"same tokens {'everywhere' if all(found['same_tokens'] for found in results) else 'NOT everywhere'}",
    ))  # fmt: skip


def place(found: dict[str, Any]) -> str:
    return f"{found['concurrency']} {found['kind']}"


def holds(demand: str, figure: str, least: float, ratios: Sequence[tuple[str, dict[str, float]]]) -> str:
    if not ratios:
        return f"{demand} not measured"
    misses = [f"{where} {ratio[figure]:.3f}" for where, ratio in ratios if ratio[figure] < least]
    kept = f"{demand} {'FAILS' if misses else 'holds'}: {len(ratios) - len(misses)} of {len(ratios)}"
    return kept + (f", not at {', '.join(misses)}" if misses else "")


def text(r: dict[str, float]) -> str:
    return f"{r['median']:.2f} [{r['low']:.2f}, {r['high']:.2f}]"


def table(report: dict[str, Any]) -> str:
    """Markdown: a row for each number of requests and kind of text."""
    arms = ["auto", *(f"mtp {depth}" for depth in FIXED)]
    lines = [
        "# The depth controller on the CPU, shipped model",
        "",
        f"{report['machine']['processor']}, {report['machine']['threads']} threads, "
        f"torch {report['versions']['torch']}; T = 0.7; {report['pairs']} alternating rounds, {report['minutes']:.0f} "
        "minutes in all: median of the ratios to off [95 % interval].",
        "",
        f"| requests | text | tokens each | off tok/s | {' | '.join(arms)} | auto of the best fixed | same tokens |",
        "|" + "---|" * (len(arms) + 6),
    ]
    for found in report["results"]:
        ratios = " | ".join(text(found["of_off"][arm]) for arm in arms)
        lines.append(
            f"| {found['concurrency']} | {found['kind']} | {found['max_tokens']} | "
            f"{found['tokens_per_second']['off']:.1f} | {ratios} | "
            f"{text(found['auto_of_best_fixed'])} ({found['best_fixed']}) | {'yes' if found['same_tokens'] else 'NO'} |"
        )
    lines += ["", verdict(report["results"]) + "."]
    return "\n".join(lines) + "\n"


def line(found: dict[str, Any]) -> str:
    arms = ", ".join(f"{name} {text(r)}" for name, r in found["of_off"].items())
    return (
        f"off {found['tokens_per_second']['off']:.1f} tok/s; of off: {arms}; auto of {found['best_fixed']} "
        f"{text(found['auto_of_best_fixed'])}; depths {found['acceptance']['depth_histogram']}; "
        f"same tokens: {found['same_tokens']}"
    )


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
