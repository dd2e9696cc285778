"""GPU kernels of V4's sparse attention at V4-Flash shapes, against torch in the same run and against physical floors.

    python benchmarks/kernels.py [--only combine prefill decode insert indexer compress] [--repeats 20]

Arms alternate; medians. Before each launch L2 is flushed by reading 256 MB, so often that the host has queued the whole
launch before the GPU comes to it. `decode` is also timed inside a graph of repeated launches. Floors: bytes over the
bandwidth of a plain copy measured in this run, FLOP over a bfloat16 product measured in this run; the larger of the two
counts. Inputs are random.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from outrider.ops.index_rows import empty_fp4_rows
from outrider.ops.kv_rows import KvRows, empty_fp8_rows, write_rows
from outrider.ops.reference import compressor as compressor_reference
from outrider.ops.reference.paged_attention import EntryKeys, PagedRows, Queries
from outrider.ops.reference.rope import inverse_frequencies, rotation
from outrider.ops.reference.topk_swa import combined_width
from outrider.ops.triton import compressor
from outrider.ops.triton.index_queries import index_queries
from outrider.ops.triton.indexer_logits import indexer_logits
from outrider.ops.triton.norm_rope_insert import norm_rope_insert
from outrider.ops.triton.paged_attention import paged_sparse_attention
from outrider.ops.triton.radix_select import top_visible_entries
from outrider.ops.triton.topk_swa import launch_combine
from outrider.platforms.architectures import gpu_architecture
from outrider.platforms.tiles import AttentionTiles

HEADS, HEAD_DIM, ROPE, WINDOW, PAGE_TOKENS, RATIO, BLOCK = 64, 512, 64, 128, 128, 4, 64
INDEX_HEADS, INDEX_DIM = 64, 128
DEVICE = torch.device("cuda")
GRAPH_LAUNCHES = 20
FLUSHES = 12  # about 0.8 ms of an H200

Launch = Callable[[], object]


@dataclass(frozen=True)
class Machine:
    """What this GPU does in this run. bytes_per_s: read and written by a copy; flop_per_s: of a bfloat16 product."""

    bytes_per_s: float
    flop_per_s: float


class Timer:
    def __init__(self, repeats: int) -> None:
        self._repeats = repeats
        self._flush = torch.ones(64 << 20, device=DEVICE)  # 256 MB

    def medians(self, arms: dict[str, Launch]) -> dict[str, float]:
        """Seconds of one launch of each arm, taken in turns."""
        times: dict[str, list[float]] = {name: [] for name in arms}
        for launch in arms.values():
            for _ in range(3):
                launch()
        for _ in range(self._repeats):
            for name, launch in arms.items():
                for _ in range(FLUSHES):
                    self._flush.sum()
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                launch()
                end.record()
                torch.cuda.synchronize()
                times[name].append(begin.elapsed_time(end) * 1e-3)
        return {name: statistics.median(values) for name, values in times.items()}

    def graphed(self, launch: Launch) -> float:
        """Seconds of one launch inside a graph of many; its inputs may stay in L2."""
        launch()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(GRAPH_LAUNCHES):
                launch()
        return self.medians({"graph": graph.replay})["graph"] / GRAPH_LAUNCHES


def measure_machine(timer: Timer) -> Machine:
    source = torch.randn(1 << 28, device=DEVICE).bfloat16()
    target = torch.empty_like(source)
    a, b = (torch.randn(8192, 8192, device=DEVICE).bfloat16() for _ in range(2))
    seconds = timer.medians({"copy": lambda: target.copy_(source), "product": lambda: a @ b})
    return Machine(2 * source.nbytes / seconds["copy"], 2 * 8192**3 / seconds["product"])


def report(label: str, seconds: float, machine: Machine, moved: float, flop: float = 0.0) -> None:
    floor = max(moved / machine.bytes_per_s, flop / machine.flop_per_s)
    rates = f"{moved / seconds / 1e9:8.0f} GB/s {flop / seconds / 1e12:7.1f} TFLOP/s"
    print(
        f"{label:44} {seconds * 1e6:9.1f} us {rates}  floor {floor * 1e6:8.1f} us, {floor / seconds:5.1%} of it reached"
    )


# -------- inputs


def cache(rows: int, *, fp8: bool) -> KvRows:
    values = torch.randn(rows, HEAD_DIM, device=DEVICE)
    if not fp8:
        return KvRows(values.bfloat16())
    stored = empty_fp8_rows(rows, HEAD_DIM - ROPE, ROPE, BLOCK, gpu_architecture(DEVICE).fp8, DEVICE)
    write_rows(stored, torch.arange(rows, device=DEVICE), values, nope=HEAD_DIM - ROPE, block=BLOCK, round_trip=True)
    return stored


def paged(requests: int, count: int, per_page: int, *, fp8: bool) -> PagedRows:
    pages = -(-count // per_page)
    table = torch.randperm(requests * pages, device=DEVICE, dtype=torch.int32).view(requests, pages)
    return PagedRows(cache(requests * pages * per_page, fp8=fp8), table, per_page)


def attention(
    requests: int, context: int, query_len: int, topk: int, *, fp8: bool, tiles: AttentionTiles | None = None
) -> tuple[Launch, float, float]:
    """(launch, bytes, FLOP) of a CSA layer: the last query_len tokens of each of so many sequences."""
    positions = torch.arange(context - query_len, context, device=DEVICE, dtype=torch.int32).repeat(requests)
    owners = torch.arange(requests, device=DEVICE, dtype=torch.int32).repeat_interleave(query_len)
    scores = torch.rand(positions.numel(), context // RATIO, device=DEVICE)
    scores.masked_fill_(torch.arange(context // RATIO, device=DEVICE) >= ((positions + 1) // RATIO)[:, None], -1.0)
    visible = scores.topk(topk, dim=-1).indices.sort(dim=-1).values.to(torch.int32)
    q = torch.randn(positions.numel(), HEADS, HEAD_DIM, device=DEVICE).bfloat16()
    window = paged(requests, context, PAGE_TOKENS, fp8=fp8)
    entries = EntryKeys(paged(requests, context // RATIO, PAGE_TOKENS // RATIO, fp8=fp8), RATIO, visible)
    first, sink = torch.zeros(requests, dtype=torch.int32, device=DEVICE), torch.randn(HEADS, device=DEVICE)
    angles = rotation(positions, inverse_frequencies(ROPE, 10000.0).to(DEVICE))
    queries = Queries(positions, owners)

    def launch() -> Tensor:
        return paged_sparse_attention(
            q, queries, window, first, WINDOW, entries, sink, HEAD_DIM**-0.5, context, angles, tiles=tiles
        )  # fmt: skip

    row_bytes = window.rows.data[0].nbytes + (7 if fp8 else 0)
    distinct = requests * (min(context, query_len + WINDOW) + min(context // RATIO, query_len * topk))
    keys = positions.numel() * (topk + WINDOW)
    return launch, 2 * q.nbytes + distinct * row_bytes + visible.nbytes, 4.0 * HEADS * HEAD_DIM * keys


def index_keys(slots: int, form: str) -> KvRows:
    """Random codes, whose scales are 1."""
    if form == "bf16":
        return KvRows(torch.randn(slots, INDEX_DIM, device=DEVICE).bfloat16())
    if form == "fp4":
        rows = empty_fp4_rows(slots, INDEX_DIM, DEVICE)
    else:
        rows = empty_fp8_rows(slots, INDEX_DIM, 0, INDEX_DIM, gpu_architecture(DEVICE).fp8, DEVICE)
    assert rows.scales is not None
    rows.data.random_(0, 0x70)
    rows.scales.fill_(127)
    return rows


# -------- claims


def combine(timer: Timer, machine: Machine) -> None:
    """8192 queries of four requests, top-k 512 and 1024: against a plain copy of the same bytes."""
    queries, requests, context = 8192, 4, 16384
    query_len = queries // requests
    for topk in (512, 1024):
        chosen = torch.randint(0, context // RATIO, (queries, topk), dtype=torch.int32, device=DEVICE)
        starts = torch.arange(0, queries + 1, query_len, dtype=torch.int32, device=DEVICE)
        seq_lens = torch.full((requests,), context, dtype=torch.int32, device=DEVICE)
        gather = torch.full((requests,), query_len + WINDOW - 1, dtype=torch.int32, device=DEVICE)
        combined = torch.empty(queries, combined_width(topk, WINDOW), dtype=torch.int32, device=DEVICE)
        lens = torch.empty(queries, dtype=torch.int32, device=DEVICE)
        n = context // RATIO
        m = n + query_len + WINDOW
        moved = chosen.nbytes + combined.nbytes + lens.nbytes
        source = torch.randint(0, 9, (moved // 8,), dtype=torch.int32, device=DEVICE)
        target = torch.empty_like(source)
        arguments = (combined, lens, chosen, starts, seq_lens, gather, WINDOW, RATIO, topk, m, n)
        seconds = timer.medians(
            {"combine": lambda a=arguments: launch_combine(*a), "copy": lambda t=target, s=source: t.copy_(s)}  # type: ignore[misc]
        )
        report(f"combine, {queries} queries, top-k {topk}", seconds["combine"], machine, moved)
        report("  plain copy of the same bytes", seconds["copy"], machine, moved)
        print(f"  combine / copy = {seconds['combine'] / seconds['copy']:.2f} (must be <= 1.10)")


def prefill(timer: Timer, machine: Machine) -> None:
    """8192 queries x 64 heads x 640 keys; torch: the keys gathered and scaled_dot_product_attention, 512 queries."""
    for fp8 in (False, True):
        launch, moved, flop = attention(1, 16384, 8192, 512, fp8=fp8)
        q, keys = (torch.randn(512, n, HEAD_DIM, device=DEVICE).bfloat16() for n in (HEADS, 16384))
        index = torch.randint(0, 16384, (512, 512 + WINDOW), device=DEVICE)

        def torch_arm(q: Tensor = q, keys: Tensor = keys, index: Tensor = index) -> Tensor:
            gathered = keys[0][index]
            return F.scaled_dot_product_attention(q, gathered, gathered)

        seconds = timer.medians({"kernel": launch, "torch": torch_arm})
        report(f"prefill, 8192 queries, {'fp8' if fp8 else 'bf16'}", seconds["kernel"], machine, moved, flop)
        report("  torch: gather + SDPA, 512 queries", seconds["torch"], machine, moved / 16, flop / 16)


def decode(timer: Timer, machine: Machine) -> None:
    """One and four rows (verify, depth 3) of 1, 8 and 64 requests of 8192 tokens, top-k 512."""
    for requests, query_len in ((1, 1), (8, 1), (64, 1), (1, 4), (64, 4)):
        for fp8 in (False, True):
            launch, moved, flop = attention(requests, 8192, query_len, 512, fp8=fp8)
            name = f"batch {requests} x {query_len} {'fp8' if fp8 else 'bf16'}"
            report(f"decode, {name}", timer.medians({"kernel": launch})["kernel"], machine, moved, flop)
            report("  in a graph", timer.graphed(launch), machine, moved, flop)


def insert(timer: Timer, machine: Machine) -> None:
    """q-norm, rope and insertion of 4096 tokens; a copy of q beside it."""
    tokens = 4096
    q = torch.randn(tokens, HEADS, HEAD_DIM, device=DEVICE).bfloat16()
    kv = torch.randn(tokens, HEAD_DIM, device=DEVICE).bfloat16()
    weight = torch.rand(HEAD_DIM, device=DEVICE)
    angles = rotation(torch.arange(tokens, device=DEVICE), inverse_frequencies(ROPE, 10000.0).to(DEVICE))
    slots = torch.randperm(tokens, device=DEVICE)
    for fp8 in (False, True):
        rows = cache(tokens, fp8=fp8)

        def launch(rows: KvRows = rows) -> Tensor:
            return norm_rope_insert(q, kv, weight, angles, slots, rows, 1e-6, BLOCK, round_trip=True)

        seconds = timer.medians({"insert": launch, "copy": q.clone})
        moved = 2 * q.nbytes + kv.nbytes + rows.data.nbytes
        report(f"norm + rope + insert, 4096 tokens, {'fp8' if fp8 else 'bf16'}", seconds["insert"], machine, moved)
        report("  copy of q", seconds["copy"], machine, 2 * q.nbytes)


def indexer(timer: Timer, machine: Machine) -> None:
    """Queries, scores and top-k 512 of a CSA layer: decode and verify of (requests, rows each, context), then prefill.

    torch: one matrix product over gathered keys, relu and a weighted sum (at most 512 rows), and torch.topk, which
    promises no order among equals.
    """
    topk = 512
    for requests, query_len, context in (
        (1, 1, 131072), (1, 1, 1 << 20), (64, 1, 8192), (64, 1, 131072), (64, 4, 8192), (1, 4096, 16384),
    ):  # fmt: skip
        entries, rows = context // RATIO, requests * query_len
        pages = -(-entries // (PAGE_TOKENS // RATIO))
        table = torch.randperm(requests * pages, device=DEVICE).to(torch.int32).view(requests, pages)
        positions = torch.arange(context - query_len, context, device=DEVICE, dtype=torch.int32).repeat(requests)
        owners = torch.arange(requests, device=DEVICE, dtype=torch.int32).repeat_interleave(query_len)
        queries = Queries(positions, owners)
        angles = rotation(positions, inverse_frequencies(ROPE, 160000.0).to(DEVICE))
        q = torch.randn(rows, INDEX_HEADS, INDEX_DIM, device=DEVICE).bfloat16()
        weights = torch.randn(rows, INDEX_HEADS, device=DEVICE)
        name = f"{requests} x {query_len} of {context}"
        seconds = timer.medians({"fp4": lambda q=q, a=angles: index_queries(q, a, "fp4", 32)})  # type: ignore[misc]
        report(f"indexer queries, {name}", seconds["fp4"], machine, 2 * q.nbytes)
        flop = 2.0 * INDEX_HEADS * INDEX_DIM * rows * entries
        for form in ("bf16", "fp8", "fp4"):
            keys = PagedRows(index_keys(requests * pages * (PAGE_TOKENS // RATIO), form), table, PAGE_TOKENS // RATIO)

            def score(keys: PagedRows = keys) -> Tensor:
                return indexer_logits(q, weights, queries, keys, RATIO, entries, topk)  # noqa: B023

            row_bytes = keys.rows.data[0].nbytes + (0 if keys.rows.scales is None else keys.rows.scales[0].nbytes)
            moved = q.nbytes + requests * entries * row_bytes + 4 * rows * entries
            seconds = timer.medians({"scores": score})
            report(f"indexer scores, {name} {form}", seconds["scores"], machine, moved, flop)
        part = min(query_len, 512)
        plain = torch.randn(requests, INDEX_DIM, entries, device=DEVICE).bfloat16()
        some = q.view(requests, query_len, INDEX_HEADS, INDEX_DIM)[:, :part].flatten(1, 2)
        some_weights = weights.view(requests, query_len, INDEX_HEADS, 1)[:, :part]
        logits = score()

        def torch_scores() -> Tensor:
            dots = (some @ plain).relu_().view(requests, part, INDEX_HEADS, entries)  # noqa: B023
            return (dots * some_weights).sum(2)  # noqa: B023

        arms: dict[str, Launch] = {
            "kernel": lambda x=logits, q=queries: top_visible_entries(x, q, RATIO, topk),  # type: ignore[misc]
            "torch": lambda x=logits: x.topk(topk),  # type: ignore[misc]
        }
        if requests * part * INDEX_HEADS * entries <= 1 << 31:
            arms["torch scores"] = torch_scores
        seconds = timer.medians(arms)
        if "torch scores" in seconds:
            done = part / query_len
            report(f"  torch, {part} rows each", seconds["torch scores"], machine, moved * done, flop * done)
        report(f"indexer top-{topk}, {name}", seconds["kernel"], machine, logits.nbytes + 4 * rows * topk)
        report("  torch.topk", seconds["torch"], machine, logits.nbytes)


def compress(timer: Timer, machine: Machine) -> None:
    """One chunk of 4096 tokens, and a token of each of 64 requests that closes a window: entries of CSA and HCA layers
    as FP8, indexer keys as FP4."""
    context = 8192
    for ratio, index in ((4, False), (128, False), (4, True)):
        dim = INDEX_DIM if index else HEAD_DIM
        width = (2 if ratio == 4 else 1) * dim
        for requests, query_len in ((1, 4096), (64, 1)):
            positions = torch.arange(context - query_len, context, device=DEVICE, dtype=torch.int32).repeat(requests)
            owners = torch.arange(requests, device=DEVICE, dtype=torch.int32).repeat_interleave(query_len)
            x = torch.randn(positions.numel(), 2 * width, device=DEVICE)
            ape, weight = torch.randn(ratio, width, device=DEVICE), torch.rand(dim, device=DEVICE)
            table = torch.randperm(requests * context // PAGE_TOKENS, device=DEVICE).to(torch.int32).view(requests, -1)
            partial = PagedRows(KvRows(torch.randn(requests * context, 2 * width, device=DEVICE)), table, PAGE_TOKENS)
            slots = requests * context // ratio
            rows = index_keys(slots, "fp4") if index else cache(slots, fp8=True)
            entries = PagedRows(rows, table, PAGE_TOKENS // ratio)
            angles = rotation(positions + 1 - ratio, inverse_frequencies(ROPE, 160000.0).to(DEVICE))
            arguments = (x, ape, weight, Queries(positions, owners), angles, partial, entries, ratio, 1e-6)

            def arm(module: ModuleType, a: tuple[object, ...] = arguments, index: bool = index) -> Launch:
                if index:
                    return lambda: module.compress_index_keys(*a)
                return lambda: module.compress_insert(*a, BLOCK, round_trip=True)

            seconds = timer.medians({"kernel": arm(compressor), "torch": arm(compressor_reference)})
            closed = requests * max(query_len // ratio, 1)
            earlier = requests * max((2 if ratio == 4 else 1) * ratio - query_len, 0)
            assert rows.scales is not None
            entry_bytes = rows.data[0].nbytes + rows.scales[0].nbytes + 4 * ROPE
            moved = 2.0 * x.nbytes + 8 * dim * earlier + entry_bytes * closed
            name = f"{requests} x {query_len} tokens, {'indexer' if index else f'ratio {ratio}'}"
            report(f"compress + insert, {name}", seconds["kernel"], machine, moved)
            report("  torch", seconds["torch"], machine, moved)


CLAIMS: dict[str, Callable[[Timer, Machine], None]] = {
    "combine": combine,
    "prefill": prefill,
    "decode": decode,
    "insert": insert,
    "indexer": indexer,
    "compress": compress,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CLAIMS, default=list(CLAIMS))
    parser.add_argument("--repeats", type=int, default=20)
    a = parser.parse_args()
    torch.manual_seed(0)
    timer = Timer(a.repeats)
    machine = measure_machine(timer)
    name = torch.cuda.get_device_name()
    print(f"{name} ({gpu_architecture(DEVICE).name}), torch {torch.__version__}, triton {triton.__version__}")
    print(f"copy {machine.bytes_per_s / 1e12:.2f} TB/s, bfloat16 product {machine.flop_per_s / 1e12:.0f} TFLOP/s")
    for claim in a.only:
        CLAIMS[claim](timer, machine)


if __name__ == "__main__":
    main()
