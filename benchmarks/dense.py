"""The dense ops of V4-Flash on a GPU: linears, norms, hyper-connections, head, against their floors and torch.

    python benchmarks/dense.py [--only linear norm mhc head] [--tokens 1 64 4096] [--repeats 8]

Random inputs; arms alternate; medians; L2 flushed before each launch. Up to 64 tokens also inside a graph of repeated
launches, whose weights may stay in L2 where they are small. Floors as in kernels.py. torch: the same shape in bfloat16.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels import DEVICE, Launch, Machine, Timer, measure_machine, report  # type: ignore[import-not-found]
from outrider.ops.reference.mhc_site import MixWeights, Written
from outrider.ops.reference.scaled_linear import LinearWeight, fp8_weight
from outrider.ops.triton.greedy_head import greedy_tokens
from outrider.ops.triton.mhc_site import mhc_site
from outrider.ops.triton.row_norms import norm_rows, quantize_rows
from outrider.ops.triton.scaled_linear import scaled_linear

HIDDEN, STREAMS, VOCABULARY = 4096, 4, 129280
LINEARS = {"wq_a + wkv": (1536, 4096), "wq_b": (32768, 1024), "wo_b": (4096, 8192), "square": (4096, 4096)}


def random_weight(rows: int, width: int) -> LinearWeight:
    codes = torch.randint(0, 120, (rows, width), dtype=torch.uint8, device=DEVICE)
    return fp8_weight(codes, torch.full((rows // 128, width // 128), 118, dtype=torch.uint8, device=DEVICE))


def timed(
    timer: Timer, machine: Machine, label: str, tokens: int, arms: dict[str, Launch], moved: float, flop: float
) -> None:
    """A line for the kernel, one for each other arm, and one inside a graph for few tokens."""
    seconds = timer.medians(arms)
    for name, value in seconds.items():
        report(label if name == "kernel" else f"  {name}", value, machine, moved, flop)
    if tokens <= 64:
        report("  in a graph", timer.graphed(arms["kernel"]), machine, moved, flop)


def linear(timer: Timer, machine: Machine, tokens: int) -> None:
    """FP8 weights in blocks of 128 x 128, bfloat16 rows and rows quantised before."""
    for name, (rows, width) in LINEARS.items():
        weight = random_weight(rows, width)
        x = torch.randn(tokens, width, device=DEVICE).bfloat16()
        coded = quantize_rows(x)
        plain = torch.randn(rows, width, device=DEVICE).bfloat16()
        arms: dict[str, Launch] = {
            "kernel": lambda x=coded, w=weight: scaled_linear(x, w),
            "bfloat16 rows": lambda x=x, w=weight: scaled_linear(x, w),
            "torch, bfloat16": lambda x=x, w=plain: F.linear(x, w),
        }
        moved = rows * width + x.nbytes / 2 + 2.0 * tokens * rows
        timed(
            timer,
            machine,
            f"{name} {rows} x {width}, {tokens} tokens",
            tokens,
            arms,
            moved,
            2.0 * rows * width * tokens,
        )


def norm(timer: Timer, machine: Machine, tokens: int) -> None:
    x, weight = torch.randn(tokens, HIDDEN, device=DEVICE).bfloat16(), torch.rand(HIDDEN, device=DEVICE)
    arms: dict[str, Launch] = {"kernel": lambda: norm_rows(x, weight, 1e-6), "copy": x.clone}
    timed(timer, machine, f"norm, {tokens} tokens", tokens, arms, 2.0 * x.nbytes, 0.0)


def mhc(timer: Timer, machine: Machine, tokens: int) -> None:
    """A whole site: the write of the sublayer before and the read of the next."""
    n = STREAMS
    streams = torch.randn(tokens, n, HIDDEN, device=DEVICE).bfloat16()
    y = torch.randn(tokens, HIDDEN, device=DEVICE).bfloat16()
    comb = torch.softmax(torch.randn(tokens, n, n, device=DEVICE), -1)
    written = Written(y, 2 * torch.rand(tokens, n, device=DEVICE), comb)
    mixes = (2 + n) * n
    fn, base = torch.randn(mixes, n * HIDDEN, device=DEVICE) / 8, torch.randn(mixes, device=DEVICE)
    weights = MixWeights(fn, base, torch.rand(3, device=DEVICE) + 0.5)
    norm_weight = torch.rand(HIDDEN, device=DEVICE)

    def launch() -> object:
        return mhc_site(streams, written, weights, norm_weight, iterations=20, hc_eps=1e-6, norm_eps=1e-6)

    moved = 2.0 * streams.nbytes + 2.0 * y.nbytes + fn.nbytes
    arms: dict[str, Launch] = {"kernel": launch, "copy of the streams": streams.clone}
    timed(timer, machine, f"mHC site, {tokens} tokens", tokens, arms, moved, 2.0 * tokens * fn.numel())


def head(timer: Timer, machine: Machine, tokens: int) -> None:
    """Greedy tokens of the FP8 vocabulary head; decode batches only."""
    if tokens > 64:
        return
    weight = random_weight(VOCABULARY, HIDDEN)
    x = torch.randn(tokens, HIDDEN, device=DEVICE).bfloat16()
    plain = torch.randn(VOCABULARY, HIDDEN, device=DEVICE).bfloat16()

    def torch_arm() -> Tensor:
        return F.linear(x, plain).argmax(-1)

    arms: dict[str, Launch] = {"kernel": lambda: greedy_tokens(x, weight), "torch, bfloat16": torch_arm}
    flop = 2.0 * VOCABULARY * HIDDEN * tokens
    timed(timer, machine, f"greedy head fp8, {tokens} tokens", tokens, arms, VOCABULARY * HIDDEN, flop)


OPS: dict[str, Callable[[Timer, Machine, int], None]] = {"linear": linear, "head": head, "mhc": mhc, "norm": norm}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=OPS, default=list(OPS))
    parser.add_argument("--tokens", nargs="+", type=int, default=[1, 64, 4096])
    parser.add_argument("--repeats", type=int, default=8)
    a = parser.parse_args()
    torch.manual_seed(0)
    timer = Timer(a.repeats)
    machine = measure_machine(timer)
    for op in a.only:
        for tokens in a.tokens:
            OPS[op](timer, machine, tokens)


if __name__ == "__main__":
    main()
