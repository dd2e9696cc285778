"""Experts of V4-Flash on a GPU: routing, order of pairs, staged inputs, grouped products, against their floors.

    python benchmarks/experts.py [--tokens 1 8 16 32 64 4096] [--forms fp4 fp8] [--sweep] [--repeats 20]

Random weights of 256 experts, 6 a token; arms alternate; medians; L2 flushed before each launch by reading 256 MB.
Floor: bytes of the experts that anyone chose over the bandwidth of a plain copy measured in this run, or FLOP over a
bfloat16 product measured in this run; the larger counts. Up to 64 tokens the whole op is also timed inside a graph.
torch: weights decoded to bfloat16 beforehand (so three or four times the bytes), one product an expert, at most 64
tokens. `--sweep`: other tiles for the grouped products, each checked to give the same bits.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from kernels import DEVICE, Machine, Timer, measure_machine, report  # type: ignore[import-not-found]
from outrider.ops.expert_bank import ExpertBank
from outrider.ops.reference.expert_routing import Routes
from outrider.ops.reference.paged_attention import Queries
from outrider.ops.triton.expert_order import order_by_expert
from outrider.ops.triton.expert_routing import route_tokens
from outrider.ops.triton.grouped_experts import bank_format, grouped_experts, launch_products, stage_inputs
from outrider.platforms.architectures import gpu_architecture
from outrider.platforms.tiles import ExpertTiles, expert_tiles

EXPERTS, TOPK, HIDDEN, WIDTH, LIMIT, SCALING = 256, 6, 4096, 2048, 10.0, 1.5


def random_bank(form: str) -> ExpertBank:
    """Random codes (none is NaN), scales of about the size that weights have."""
    fp4 = form == "fp4"

    def codes(rows: int, columns: int) -> Tensor:
        shape = (EXPERTS, rows, columns // 2 if fp4 else columns)
        found = torch.randint(0, 256 if fp4 else 0x7F, shape, dtype=torch.uint8, device=DEVICE)
        return found if fp4 else found | (torch.randint_like(found, 0, 2) << 7).masked_fill_(found == 0, 0)

    def scales(rows: int, columns: int) -> Tensor:
        shape = (EXPERTS, rows, columns // 32) if fp4 else (EXPERTS, rows // 128, columns // 128)
        return torch.randint(118, 121, shape, dtype=torch.uint8, device=DEVICE) - (0 if fp4 else 6)

    sizes = ((2 * WIDTH, HIDDEN), (HIDDEN, WIDTH))
    (a, b), (c, d) = ((codes(*size), scales(*size)) for size in sizes)
    return ExpertBank(a, b, c, d, None if fp4 else gpu_architecture(DEVICE).fp8)


def torch_arm(x: Tensor, routes: Routes) -> Callable[[], Tensor]:
    """One product an expert with bfloat16 weights. The host knows who chose what before the clock starts."""
    chosen = routes.selected.flatten().unique().tolist()
    gate_up = torch.randn(len(chosen), 2 * WIDTH, HIDDEN, device=DEVICE, dtype=torch.bfloat16)
    down = torch.randn(len(chosen), HIDDEN, WIDTH, device=DEVICE, dtype=torch.bfloat16)
    places = [(routes.selected == expert).nonzero(as_tuple=True) for expert in chosen]

    def run() -> Tensor:
        out = torch.zeros(x.shape, device=DEVICE)
        for i, (tokens, slots) in enumerate(places):
            gate, up = F.linear(x[tokens], gate_up[i]).float().chunk(2, -1)
            hidden = F.silu(gate.clamp_max(LIMIT)) * up.clamp(-LIMIT, LIMIT) * routes.shares[tokens, slots, None]
            out.index_add_(0, tokens, F.linear(hidden.bfloat16(), down[i]).float())
        return out

    return run


def sweep(tokens: int, chosen: ExpertTiles) -> list[ExpertTiles]:
    """Tiles that could be better than those that ship. k_tile stays: it decides bits."""
    sizes = (16, 32) if tokens <= 64 else (32, 64, 128)
    found = itertools.product(sizes, (4, 8), (2, 3, 4, 5))
    return [replace(chosen, token_tile=n, num_warps=w, num_stages=s) for n, w, s in found if n * s <= 512]


def measure(tokens: int, bank: ExpertBank, timer: Timer, machine: Machine, *, tune: bool) -> None:
    form, parts = bank_format(bank)
    x = torch.randn(tokens, HIDDEN, device=DEVICE).bfloat16()
    logits, bias = torch.randn(tokens, EXPERTS, device=DEVICE), torch.randn(EXPERTS, device=DEVICE) * 0.1
    rows = torch.arange(tokens, dtype=torch.int32, device=DEVICE)
    queries = Queries(rows, rows)
    routes = route_tokens(logits, bias, TOPK, SCALING, queries)
    pairs = tokens * TOPK
    tiles = expert_tiles(gpu_architecture(DEVICE), pairs, EXPERTS)
    order = order_by_expert(routes.selected, EXPERTS, tiles.token_tile)
    staged = stage_inputs(x, parts, round_trip=True)
    touched = routes.selected.unique().numel()
    expert_bytes = sum(t[0].nbytes for t in bank[:4] if isinstance(t, Tensor))
    moved, flop = float(touched * expert_bytes), 6.0 * HIDDEN * WIDTH * pairs

    def products(tiles: ExpertTiles = tiles) -> Tensor:
        return launch_products(staged, routes, order, bank, LIMIT, tiles, round_trip=True)

    def whole() -> Tensor:
        return grouped_experts(x, routes, bank, LIMIT, round_trip=True)

    arms: dict[str, Callable[[], object]] = {
        "route": lambda: route_tokens(logits, bias, TOPK, SCALING, queries),
        "order": lambda: order_by_expert(routes.selected, EXPERTS, tiles.token_tile),
        "stage": lambda: stage_inputs(x, parts, round_trip=True),
        "products": products,
        "whole": whole,
    }
    if tokens <= 64 and form == "fp4":
        arms["torch"] = torch_arm(x, routes)
    seconds = timer.medians(arms)
    name = f"{tokens} tokens, {touched} experts, {form}"
    report(f"router, {tokens} tokens", seconds["route"], machine, logits.nbytes)
    report(f"order, {tokens} tokens", seconds["order"], machine, 8.0 * pairs)
    report(f"staged inputs, {tokens} tokens", seconds["stage"], machine, 2.0 * x.nbytes)
    report(f"grouped products, {name}", seconds["products"], machine, moved, flop)
    report(f"all of it, {name}", seconds["whole"], machine, moved, flop)
    if tokens <= 64:
        report("  in a graph", timer.graphed(whole), machine, moved, flop)
        report("  grouped products in a graph", timer.graphed(products), machine, moved, flop)
    if "torch" in seconds:
        moved_by_torch = 6.0 * HIDDEN * WIDTH * touched
        report("  torch, bfloat16 weights", seconds["torch"], machine, moved_by_torch, flop)
    if not tune:
        return
    expected = products()
    for other in sweep(tokens, tiles):
        blocks = order_by_expert(routes.selected, EXPERTS, other.token_tile)

        def launch(other: ExpertTiles = other, blocks: object = blocks) -> Tensor:
            return launch_products(staged, routes, blocks, bank, LIMIT, other, round_trip=True)  # type: ignore[arg-type]

        label = f"  {other.token_tile} tokens, {other.num_warps} warps, {other.num_stages} stages"
        try:
            same = torch.equal(launch(), expected)
        except triton.runtime.errors.OutOfResources:
            continue
        report(label + ("" if same else " OTHER BITS"), timer.medians({"it": launch})["it"], machine, moved, flop)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", nargs="+", type=int, default=[1, 8, 16, 32, 64, 4096])
    parser.add_argument("--forms", nargs="+", choices=("fp4", "fp8"), default=["fp4", "fp8"])
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--repeats", type=int, default=20)
    a = parser.parse_args()
    torch.manual_seed(0)
    timer = Timer(a.repeats)
    machine = measure_machine(timer)
    name = torch.cuda.get_device_name()
    print(f"{name} ({gpu_architecture(DEVICE).name}), torch {torch.__version__}, triton {triton.__version__}")
    print(f"copy {machine.bytes_per_s / 1e12:.2f} TB/s, bfloat16 product {machine.flop_per_s / 1e12:.0f} TFLOP/s")
    for form in a.forms:
        bank = random_bank(form)
        for tokens in a.tokens:
            measure(tokens, bank, timer, machine, tune=a.sweep)


if __name__ == "__main__":
    main()
