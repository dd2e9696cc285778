"""Host time of the ops of a decode step, without a GPU: everything that Python does for a launch but the launch.

Tensors are on torch's meta device (shapes, no memory), kernels compile for sm_90 as they do on a GPU, and a driver that
launches nothing takes the place of CUDA's. What the driver itself needs (2 to 5 us a launch) is not in the figures.

    python benchmarks/launch_overhead_cpu.py --batch 8 --repeats 200
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget

from outrider.bench.environment import environment_report
from outrider.ops.expert_bank import ExpertBank
from outrider.ops.kv_rows import KvRows
from outrider.ops.reference.expert_routing import Routes
from outrider.ops.reference.mhc_site import MixWeights, Written
from outrider.ops.reference.paged_attention import EntryKeys, PagedRows, Queries
from outrider.ops.reference.rope import Rotation
from outrider.ops.reference.sampling import Draws
from outrider.ops.reference.scaled_linear import Fp8Rows, LinearWeight
from outrider.ops.triton import (
    compressor,
    expert_routing,
    greedy_head,
    grouped_experts,
    index_queries,
    indexer_logits,
    mhc_site,
    norm_rope_insert,
    paged_attention,
    radix_select,
    row_norms,
    sampling,
    scaled_linear,
)
from outrider.platforms.architectures import Fp8Dialect

BF16, F32, I32, I64, U8 = torch.bfloat16, torch.float32, torch.int32, torch.int64, torch.uint8
HIDDEN, HEADS, DIM, ROPE, INNER, EXPERTS, VOCAB, CONTEXT = 4096, 64, 512, 64, 2048, 256, 129280, 65536


class _NoLauncher:
    launches = 0

    def __init__(self, *unused: object) -> None: ...

    def __call__(self, *unused: object) -> None:
        _NoLauncher.launches += 1


class _NoDriver:
    """What Triton asks of a driver when it launches, for a GPU that is not there."""

    launcher_cls = _NoLauncher
    utils = SimpleNamespace(
        load_binary=lambda *unused: (1, 1, 64, 0, 1024),
        get_device_properties=lambda device: {"max_shared_mem": 227 << 10, "multiprocessor_count": 132},
    )

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


def new(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta")


def fp8_weight(rows: int, columns: int) -> LinearWeight:
    scales = new(-(-rows // 128), columns // 128, dtype=F32)
    return LinearWeight(new(rows, columns, dtype=U8), scales, Fp8Dialect.OCP, new(-(-rows // 64), dtype=I32))


def paged(rows: KvRows, batch: int, per_page: int) -> PagedRows:
    return PagedRows(rows, new(batch, CONTEXT // 128, dtype=I32), per_page)


def step_ops(batch: int) -> dict[str, Callable[[], Any]]:
    """One call of each op of a V4-Flash decode step with FP8 caches and FP4 experts."""
    t, ocp = batch, Fp8Dialect.OCP
    rows = KvRows(new(1 << 16, 448 + 128, dtype=U8), new(1 << 16, 7, dtype=U8), ocp)
    keys = KvRows(new(1 << 16, 64, dtype=U8), new(1 << 16, 4, dtype=U8), None)
    queries = Queries(new(t, dtype=I32), new(t, dtype=I32))
    angles = Rotation(new(t, ROPE // 2, dtype=F32), new(t, ROPE // 2, dtype=F32))
    q, slots, topk = new(t, HEADS, DIM), new(t, dtype=I64), new(t, 512, dtype=I32)
    window, partial = paged(rows, t, 128), paged(KvRows(new(4096, 2048, dtype=F32)), t, 128)
    entries, index_keys = paged(rows, t, 32), paged(keys, t, 32)
    index_partial = paged(KvRows(new(4096, 512, dtype=F32)), t, 128)
    x, streams, norm = new(t, HIDDEN), new(t, 4, HIDDEN), new(HIDDEN)
    fp8_x = Fp8Rows(new(t, HIDDEN, dtype=U8), new(t, HIDDEN // 128, dtype=F32), ocp)
    mixes = MixWeights(new(24, 4 * HIDDEN, dtype=F32), new(24, dtype=F32), new(3, dtype=F32))
    head_mixes = MixWeights(new(4, 4 * HIDDEN, dtype=F32), new(4, dtype=F32), new(1, dtype=F32))
    written = Written(x, new(t, 4, dtype=F32), new(t, 4, 4, dtype=F32))
    bank = ExpertBank(
        new(EXPERTS, 2 * INNER, HIDDEN // 2, dtype=U8),
        new(EXPERTS, 2 * INNER, HIDDEN // 32, dtype=U8),
        new(EXPERTS, HIDDEN, INNER // 2, dtype=U8),
        new(EXPERTS, HIDDEN, INNER // 32, dtype=U8),
        None,
    )
    routes = Routes(new(t, 6, dtype=I32), new(t, 6, dtype=F32))
    wide, head = (
        fp8_weight(2 * INNER, HIDDEN),
        LinearWeight(new(VOCAB, HIDDEN), None, None, new(VOCAB // 64, dtype=I32)),
    )
    index_q, index_weights = new(t, 64, 128), new(t, 64, dtype=F32)
    draws = Draws(
        seeds=new(t, dtype=I64),
        positions=new(t, dtype=I64),
        temperatures=new(t, dtype=F32),
        top_k=new(t, dtype=I32),
        top_p=new(t, dtype=F32),
        min_p=new(t, dtype=F32),
        filtered=True,
    )
    pairs = (new(t, 2048, dtype=F32), new(4, 1024, dtype=F32), new(DIM), queries, angles, partial, entries, 4, 1e-6)
    index_pairs = (
        new(t, 512, dtype=F32), new(4, 256, dtype=F32), new(128), queries, angles, index_partial, index_keys, 4, 1e-6,
    )  # fmt: skip
    attend = (q, queries, window, new(t, dtype=I32), 128)
    sink = new(HEADS, dtype=F32)
    norms: dict[str, Any] = {"hc_eps": 1e-6, "norm_eps": 1e-6, "dialect": ocp}
    return {
        "mhc_site": lambda: mhc_site.mhc_site(streams, written, mixes, norm, iterations=20, **norms),
        "mhc_head": lambda: mhc_site.mhc_head(streams, written, head_mixes, norm, **norms),
        "norm_rows": lambda: row_norms.norm_rows(x, norm, 1e-6, ocp),
        "swiglu_rows": lambda: row_norms.swiglu_rows(new(t, 2 * INNER), 10.0, ocp),
        "scaled_linear": lambda: scaled_linear.scaled_linear(fp8_x, wide),
        "norm_rope_insert": lambda: norm_rope_insert.norm_rope_insert(
            q, new(t, DIM), new(DIM), angles, slots, rows, 1e-6, 64, round_trip=True
        ),
        "compress_insert": lambda: compressor.compress_insert(*pairs, 64, round_trip=True),
        "compress_index_keys": lambda: compressor.compress_index_keys(*index_pairs),
        "index_queries": lambda: index_queries.index_queries(index_q, angles, "fp4", 32),
        "indexer_logits": lambda: indexer_logits.indexer_logits(
            index_q, index_weights, queries, index_keys, 4, CONTEXT // 4, 512
        ),
        "top_visible_entries": lambda: radix_select.top_visible_entries(
            new(t, CONTEXT // 4, dtype=F32), queries, 4, 512
        ),
        "attention, window": lambda: paged_attention.paged_sparse_attention(*attend, None, sink, 0.04, CONTEXT, angles),
        "attention, 1:4": lambda: paged_attention.paged_sparse_attention(
            *attend, EntryKeys(entries, 4, topk), sink, 0.04, CONTEXT, angles
        ),
        "route_tokens": lambda: expert_routing.route_tokens(
            new(t, EXPERTS, dtype=F32), new(EXPERTS, dtype=F32), 6, 1.5, queries
        ),
        "grouped_experts": lambda: grouped_experts.grouped_experts(x, routes, bank, 10.0, x, round_trip=True),
        "greedy_tokens": lambda: greedy_head.greedy_tokens(x, head),
        "sample_tokens": lambda: sampling.sample_tokens(new(t, VOCAB, dtype=F32), draws),
    }


def measure(call: Callable[[], Any], repeats: int) -> tuple[float, float, int]:
    """(best and median microseconds, launches) of a call, after one that compiles; busy machines spoil the median."""
    call()
    before = _NoLauncher.launches
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e6 * min(times), 1e6 * statistics.median(times), (_NoLauncher.launches - before) // repeats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=200)
    a = parser.parse_args()
    triton.runtime.driver.set_active(_NoDriver())
    properties = SimpleNamespace(major=9, minor=0)
    vars(torch.cuda)["get_device_properties"] = lambda device=None: properties
    # on the meta device torch works out strides in Python, which no GPU tensor pays
    vars(torch)["empty_like"] = lambda x, **unused: torch.empty(x.shape, dtype=x.dtype, device=x.device)
    versions = {"triton": triton.__version__, "torch": torch.__version__}
    print(json.dumps({"batch": a.batch, "machine": environment_report()["machine"], **versions}))
    print(f"{'op':22} {'best us':>8} {'median us':>10} {'launches':>9}")
    totals = [0.0, 0.0, 0]
    for name, call in step_ops(a.batch).items():
        best, median, launches = measure(call, a.repeats)
        totals = [total + own for total, own in zip(totals, (best, median, launches), strict=True)]
        print(f"{name:22} {best:8.1f} {median:10.1f} {launches:9}", flush=True)
    print(f"{'together':22} {totals[0]:8.1f} {totals[1]:10.1f} {totals[2]:9}")


if __name__ == "__main__":
    main()
