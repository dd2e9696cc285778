"""Cases of tests/ops/test_row_invariance.py: for every op, inputs of 64 rows and how to call it on some of them.

A builder takes the ops of one backend (reference or native, by name) and returns (call, rows): `rows` are tensors whose
first dim is the row, `call` takes any subset of them, in any order, and returns tensors whose first dim is the row
again. What the rows share (weights, caches) lives in the closure.
Widths are the model's (256, 512, 1024, 4 * 7168) and odd ones (5, 123, 1023), at which a vectorised loop leaves a tail.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, randn

from outrider.ops import EntryKeys, KvRows, PagedRows, Queries, Rotation, formats, reference

ROWS = 64
Call = Callable[..., Tensor | tuple[Tensor, ...]]
Built = tuple[Call, tuple[Tensor, ...]]

CASES: dict[tuple[str, str], Callable[[Any], Built]] = {}
"""(op, label) -> builder."""


def case(op: str, label: str, builder: Callable[..., Built], *args: object, **options: object) -> None:
    assert (op, label) not in CASES
    CASES[op, label] = lambda ops: builder(ops, *args, **options)


def reference_modules() -> list[ModuleType]:
    return [importlib.import_module(m.name) for m in pkgutil.iter_modules(reference.__path__, reference.__name__ + ".")]


def reference_ops() -> SimpleNamespace:
    """Everything public that ops/reference defines, and the round trips of ops/formats, whatever `ops` is bound to."""
    found: dict[str, Any] = {"round_trip_fp8": formats.round_trip_fp8, "round_trip_fp4": formats.round_trip_fp4}
    for module in reference_modules():
        defined = {n: v for n, v in vars(module).items() if getattr(v, "__module__", None) == module.__name__}
        found |= {name: value for name, value in defined.items() if not name.startswith("_")}
    return SimpleNamespace(**found)


def _one_input(ops: Any, op: str, scale: float, *shape: int) -> Built:
    return getattr(ops, op), (scale * randn(ROWS, *shape),)


# -------- products, norms, activations


def _linear(ops: Any, k: int, n: int, *, extra: int = 0, strided: bool = False) -> Built:
    """`extra`: a dim between rows and features; `strided`: the input is a slice of wider rows."""
    layer = ops.Linear(randn(n, k))
    if strided:
        return (lambda x: layer(x[:, k + 3 : 2 * k + 3])), (randn(ROWS, 2 * k + 7),)
    return layer, (randn(ROWS, extra, k) if extra else randn(ROWS, k),)


def _matrix_product(ops: Any, h: int, d: int, n: int) -> Built:
    def call(a: Tensor, b: Tensor) -> Tensor:
        out = a.new_empty(a.shape[0], h, n)
        for row in range(a.shape[0]):
            ops.matrix_product(a[row], b[row].t(), out=out[row])
        return out

    return call, (randn(ROWS, h, d), randn(ROWS, n, d))


def _inverse_rms(ops: Any, d: int) -> Built:
    return (lambda x: ops.inverse_rms(x, 1e-6)), (randn(ROWS, d),)


def _rms_norm(ops: Any, d: int, *, heads: int = 0, strided: bool = False) -> Built:
    if heads:  # the norm of query heads has no weight
        return (lambda x: ops.rms_norm(x, None, 1e-6)), (randn(ROWS, heads, d),)
    weight = randn(d)
    if strided:
        return (lambda x: ops.rms_norm(x[:, 3 : 3 + d], weight, 1e-6)), (randn(ROWS, d + 11),)
    return (lambda x: ops.rms_norm(x, weight, 1e-6)), (randn(ROWS, d),)


def _swiglu(ops: Any, width: int) -> Built:
    """Halves of one product, as an expert makes them: strided."""
    return (
        lambda x: ops.clamped_swiglu(x[:, :width], x[:, width:], 10.0),
        (15 * randn(ROWS, 2 * width),),
    )


for k, n in ((5, 3), (9, 5), (40, 512), (123, 77), (256, 256), (512, 257), (1023, 129), (1024, 512), (4 * 7168, 24)):
    case("Linear", f"{k} to {n}", _linear, k, n)
for k, n in ((32, 40), (123, 7), (512, 512)):
    case("Linear", f"{k} to {n} strided", _linear, k, n, strided=True)
case("Linear", "3-dim", _linear, 61, 64, extra=3)
for h, d, n in ((3, 5, 7), (5, 123, 33), (1, 7, 64), (8, 64, 48)):
    case("matrix_product", f"{h}x{d}x{n}", _matrix_product, h, d, n)
for d in (5, 123, 512, 1023, 4 * 7168, 40_000):  # the last one is longer than what torch splits over its threads
    case("inverse_rms", str(d), _inverse_rms, d)
for d in (5, 123, 256, 1023, 1024, 4 * 7168):
    case("rms_norm", str(d), _rms_norm, d)
case("rms_norm", "heads 3x61", _rms_norm, 61, heads=3)
case("rms_norm", "heads 8x512", _rms_norm, 512, heads=8)
case("rms_norm", "strided 123", _rms_norm, 123, strided=True)
for d in (5, 123, 512, 1023):
    case("sigmoid", str(d), _one_input, "sigmoid", 30, d)
    case("silu", str(d), _one_input, "silu", 30, d)
    case("softplus", str(d), _one_input, "softplus", 30, d)
    case("clamped_swiglu", str(d), _swiglu, d)

# -------- rope


def _rotation(ops: Any, rope_dim: int) -> Built:
    freqs = ops.inverse_frequencies(rope_dim, 10000.0)
    return (lambda p: tuple(ops.rotation(p, freqs))), (torch.randint(0, 1 << 20, (ROWS,)),)


def _apply_rope(ops: Any, rope_dim: int, *shape: int) -> Built:
    freqs = ops.inverse_frequencies(rope_dim, 10000.0)

    def call(x: Tensor, positions: Tensor) -> tuple[Tensor, ...]:
        angles = ops.rotation(positions, freqs)
        return ops.apply_rope(x.clone(), angles), ops.apply_rope(x.clone(), angles.inverse())

    return call, (randn(ROWS, *shape), torch.randint(0, 1 << 20, (ROWS,)))


for d in (2, 6, 64, 122):
    case("rotation", str(d), _rotation, d)
case("apply_rope", "64 of 512", _apply_rope, 64, 512)
case("apply_rope", "64 of 8x512", _apply_rope, 64, 8, 512)
case("apply_rope", "2 of 5", _apply_rope, 2, 5)
case("apply_rope", "10 of 3x123", _apply_rope, 10, 3, 123)

# -------- noise


def _philox_words(ops: Any, tokens: int) -> Built:
    seeds, positions = torch.randint(-(1 << 63), (1 << 63) - 1, (ROWS,)), torch.randint(0, 1 << 40, (ROWS,))
    return (lambda s, p: ops.philox_words(s, p, torch.arange(tokens))), (seeds, positions)


case("philox_words", "123", _philox_words, 123)

# -------- hyper-connections


def _mhc_pre(ops: Any, n: int, d: int) -> Built:
    rows = (2 + n) * n
    weights = ops.HyperConnectionWeights(ops.Linear(randn(rows, n * d)), randn(rows), randn(3))
    return (
        lambda x: ops.mhc_pre(x, weights, iterations=20, hc_eps=1e-6, norm_eps=1e-6),
        (randn(ROWS, n, d),),
    )


def _mhc_post(ops: Any, n: int, d: int) -> Built:
    return ops.mhc_post, (randn(ROWS, d), randn(ROWS, n, d), randn(ROWS, n), randn(ROWS, n, n))


def _hc_head(ops: Any, n: int, d: int) -> Built:
    weights = ops.HcHeadWeights(ops.Linear(randn(n, n * d)), randn(n), randn(1))
    return (lambda x: ops.hc_head(x, weights, hc_eps=1e-6, norm_eps=1e-6)), (randn(ROWS, n, d),)


def _sinkhorn(ops: Any, n: int) -> Built:
    return (lambda x: ops.sinkhorn(x, 20, 1e-6)), (3 * randn(ROWS, n, n),)


for n, d in ((4, 5), (4, 123), (3, 41), (4, 512), (4, 7168)):
    case("mhc_pre", f"{n}x{d}", _mhc_pre, n, d)
    case("mhc_post", f"{n}x{d}", _mhc_post, n, d)
    case("hc_head", f"{n}x{d}", _hc_head, n, d)
for n in (2, 3, 4, 5):
    case("sinkhorn", str(n), _sinkhorn, n)

# -------- attention, compressor, indexer


def _slots(count: int, size: int) -> Tensor:
    """Slots of a cache of `size` rows, about one in five missing."""
    return torch.randint(1, size, (ROWS, count)).masked_fill(torch.rand(ROWS, count) < 0.2, -1)


def _cache(size: int, width: int) -> Tensor:
    cache = randn(size, width)
    cache[0] = 0
    return cache


def _attention(ops: Any, heads: int, d: int, window: int, entries: int) -> Built:
    window_cache, entry_cache, sink = _cache(300, d), _cache(200, d), randn(heads)

    def call(q: Tensor, window_slots: Tensor, entry_slots: Tensor) -> Tensor:
        keys = ops.key_slots(entry_slots) if entries else None
        return ops.sparse_attention(q, window_cache, ops.key_slots(window_slots), entry_cache, keys, sink, d**-0.5)

    return call, (randn(ROWS, heads, d), _slots(window, 300), _slots(entries, 200))


def _attend(ops: Any, heads: int, d: int, count: int) -> Built:
    sink = randn(heads)

    def call(q: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
        out = torch.empty_like(q)
        ops.attend(q, keys, bias, sink, d**-0.5, out)
        return out

    return call, (randn(ROWS, heads, d), randn(ROWS, count, d), torch.zeros(ROWS, 1, count))


def _paged_rows(d: int, per_page: int) -> PagedRows:
    """Three requests of four pages, in an order of their own."""
    return PagedRows(KvRows(randn(12 * per_page, d)), torch.randperm(12, dtype=torch.int32).view(3, 4), per_page)


def _paged(ops: Any, heads: int, d: int, ratio: int, topk: int) -> Built:
    window, entries, sink = _paged_rows(d, 128), _paged_rows(d, 128 // ratio), randn(heads)
    first = torch.tensor([0, 1, 70], dtype=torch.int32)

    def call(q: Tensor, positions: Tensor, requests: Tensor, chosen: Tensor) -> Tensor:
        keys = EntryKeys(entries, ratio, chosen if topk else None)
        queries = Queries(positions, requests)
        return ops.paged_sparse_attention(q, queries, window, first, 128, keys, sink, d**-0.5, 512)

    chosen = torch.randint(-1, 512 // ratio, (ROWS, topk), dtype=torch.int32)
    positions = torch.randint(0, 512, (ROWS,), dtype=torch.int32)
    return call, (randn(ROWS, heads, d), positions, torch.randint(0, 3, (ROWS,), dtype=torch.int32), chosen)


def _gathered(ops: Any, heads: int, d: int, width: int) -> Built:
    rows, sink = KvRows(_cache(300, d)), randn(heads)

    def call(q: Tensor, indices: Tensor, lens: Tensor) -> Tensor:
        return ops.gathered_sparse_attention(q, rows, indices, lens, sink, d**-0.5)

    lens = torch.randint(0, width + 1, (ROWS,), dtype=torch.int32)
    return call, (randn(ROWS, heads, d), _slots(width, 300).int(), lens)


def _norm_rope_insert(ops: Any, heads: int, d: int, rope: int) -> Built:
    weight = randn(d)

    def call(q: Tensor, kv: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        cache = KvRows(torch.zeros(kv.shape))
        slots = torch.arange(kv.shape[0])
        out = ops.norm_rope_insert(q, kv, weight, Rotation(cos, sin), slots, cache, 1e-6, 16, round_trip=True)
        return out, cache.data

    angles = randn(ROWS, rope // 2)
    return call, (randn(ROWS, heads, d), randn(ROWS, d), angles.cos(), angles.sin())


def _gather_rows(ops: Any, d: int) -> Built:
    cache = KvRows(randn(100, d))
    return (lambda slots: ops.gather_rows(cache, slots, d)), (torch.randint(-1, 101, (ROWS,)),)


def _key_slots(ops: Any, count: int) -> Built:
    return (lambda slots: tuple(ops.key_slots(slots))), (_slots(count, 100),)


def _pool(ops: Any, n: int, d: int) -> Built:
    gates = randn(ROWS, n, d)
    gates[::5, : n // 2] = float("-inf")  # the window before the first
    return ops.pool_windows, (randn(ROWS, n, d), gates)


def _compress(ops: Any, name: str, d: int, ratio: int) -> Built:
    """Each row a token of a request of its own, with a page of earlier tokens: its partial row, and its entry if there
    is one."""
    width = (2 if ratio == 4 else 1) * d
    page, per_page = 2 * ratio, 2
    table = torch.randperm(ROWS, dtype=torch.int32)[:, None]
    cached, ape, weight = randn(ROWS * page, 2 * width), randn(ratio, width), randn(d)

    def call(x: Tensor, positions: Tensor, requests: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        partial = PagedRows(KvRows(cached.clone()), table, page)
        entries = PagedRows(KvRows(torch.zeros(ROWS * per_page, d)), table, per_page)
        arguments = (x, ape, weight, Queries(positions, requests), Rotation(cos, sin), partial, entries, ratio, 1e-6)
        if name == "compress_insert":
            ops.compress_insert(*arguments, 16, round_trip=True)
        else:
            ops.compress_index_keys(*arguments)
        pages = table[requests.long(), 0].long()
        return (
            partial.rows.data[pages * page + positions],
            entries.rows.data[pages * per_page + positions // ratio],
        )

    positions = torch.randint(1, 2 * per_page + 1, (ROWS,), dtype=torch.int32) * ratio // 2 - 1
    angles = randn(ROWS, 8)
    requests = torch.arange(ROWS, dtype=torch.int32)
    return call, (randn(ROWS, 2 * width), positions, requests, angles.cos(), angles.sin())


def _indexer_scores(ops: Any, heads: int, d: int, n: int) -> Built:
    def call(q: Tensor, head_weights: Tensor, keys: Tensor) -> Tensor:
        return torch.stack([ops.indexer_scores(*row) for row in zip(q, head_weights, keys, strict=True)])

    return call, (randn(ROWS, heads, d), randn(ROWS, heads), randn(ROWS, n, d))


def _top_entries(ops: Any, n: int, topk: int) -> Built:
    """A batch is padded with -inf up to its longest row, and scores have many ties."""

    def call(scores: Tensor, counts: Tensor) -> Tensor:
        visible = torch.arange(n) < counts[:, None]
        return ops.top_entries(scores.masked_fill(~visible, float("-inf"))[:, : int(counts.max())], topk)

    return call, (torch.randint(0, 9, (ROWS, n)).float(), torch.randint(topk, n + 1, (ROWS,)))


def _index_queries(ops: Any, heads: int, d: int, indexer_format: str | None, block: int) -> Built:
    def call(q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return ops.index_queries(q, Rotation(cos, sin), indexer_format, block)

    angles = randn(ROWS, d // 4)
    return call, (randn(ROWS, heads, d), angles.cos(), angles.sin())


def _paged_indexer(ops: Any, name: str, heads: int, d: int, topk: int) -> Built:
    """Scores, with what a query does not see set to 0, or the selection from them."""
    keys = _paged_rows(d, 32)

    def call(q: Tensor, head_weights: Tensor, positions: Tensor, requests: Tensor) -> Tensor:
        queries = Queries(positions, requests)
        if name == "select_entries":
            return ops.select_entries(q, head_weights, queries, keys, 4, topk, 512)
        seen = torch.arange(128) < ((positions + 1) // 4)[:, None]
        return ops.indexer_logits(q, head_weights, queries, keys, 4, 128).where(seen, 0.0)

    positions, requests = (torch.randint(0, n, (ROWS,), dtype=torch.int32) for n in (512, 3))
    return call, (randn(ROWS, heads, d), randn(ROWS, heads), positions, requests)


def _top_visible_entries(ops: Any, n: int, topk: int) -> Built:
    def call(logits: Tensor, positions: Tensor) -> Tensor:
        return ops.top_visible_entries(logits, Queries(positions, torch.zeros_like(positions)), 4, topk)

    return call, (torch.randint(0, 9, (ROWS, n)).float(), torch.randint(0, 4 * n, (ROWS,), dtype=torch.int32))


for h, d, w, e in ((3, 5, 7, 0), (5, 123, 24, 9), (8, 64, 24, 9), (8, 512, 128, 64), (4, 64, 128, 192)):
    case("sparse_attention", f"{h}x{d} over {w}+{e}", _attention, h, d, w, e)
for h, d, n in ((4, 32, 97), (5, 61, 1)):
    case("attend", f"{h}x{d} over {n}", _attend, h, d, n)
for h, d, ratio, topk in ((4, 32, 4, 9), (3, 61, 128, 0)):
    case("paged_sparse_attention", f"{h}x{d} ratio {ratio}", _paged, h, d, ratio, topk)
case("gathered_sparse_attention", "4x32 over 97", _gathered, 4, 32, 97)
case("norm_rope_insert", "8x64", _norm_rope_insert, 8, 64, 16)
case("gather_rows", "61", _gather_rows, 61)
case("key_slots", "17", _key_slots, 17)
for n, d in ((8, 5), (8, 512), (128, 123), (128, 256)):
    case("pool_windows", f"{n}x{d}", _pool, n, d)
for ratio in (4, 128):
    case("compress_insert", f"1:{ratio}", _compress, "compress_insert", 64, ratio)
case("compress_index_keys", "32", _compress, "compress_index_keys", 32, 4)
for shape in ((2,), (128,), (3, 32), (16, 128)):
    case("hadamard", "x".join(map(str, shape)), _one_input, "hadamard", 1, *shape)
for h, d, n in ((3, 5, 7), (5, 123, 33), (16, 32, 64), (64, 128, 192)):
    case("indexer_scores", f"{h}x{d}x{n}", _indexer_scores, h, d, n)
for n, topk in ((17, 3), (200, 64), (700, 512)):
    case("top_entries", f"{topk} of {n}", _top_entries, n, topk)
for label, fmt, block in (("fp4", "fp4", 32), ("fp8", "fp8", 64), ("plain", None, 64)):
    case("index_queries", label, _index_queries, 3, 64, fmt, block)
for op in ("indexer_logits", "select_entries"):
    case(op, "5x32", _paged_indexer, op, 5, 32, 9)
case("top_visible_entries", "24 of 97", _top_visible_entries, 97, 24)

# -------- experts


def _expert(ops: Any, d: int, inner: int) -> Any:
    return ops.ExpertWeights(ops.Linear(randn(2 * inner, d)), ops.Linear(randn(d, inner)))


def _selected(experts: int, topk: int) -> Tensor:
    return torch.rand(ROWS, experts).argsort(-1)[:, :topk].contiguous()


def _select_experts(ops: Any, experts: int, topk: int) -> Built:
    bias = torch.rand(experts).round(decimals=1)
    return (lambda s: ops.select_experts(s, bias, topk)), (torch.rand(ROWS, experts).round(decimals=1),)


def _expert_weights(ops: Any, experts: int, topk: int) -> Built:
    return (lambda s, sel: ops.expert_weights(s, sel, 1.5)), (torch.rand(ROWS, experts), _selected(experts, topk))


def _expert_mlp(ops: Any, d: int, inner: int, *, shared: bool) -> Built:
    weights = _expert(ops, d, inner)
    if shared:
        return (lambda x: ops.expert_mlp(x, weights, 0.6, None, lambda h: h)), (randn(ROWS, d),)
    return (lambda x, share: ops.expert_mlp(x, weights, 0.6, share, lambda h: h)), (randn(ROWS, d), randn(ROWS, 1))


def _routed(ops: Any, d: int, inner: int, experts: int, topk: int) -> Built:
    weights = [_expert(ops, d, inner) for _ in range(experts)]

    def call(x: Tensor, selected: Tensor, shares: Tensor) -> Tensor:
        return ops.routed_experts(x, selected, shares, weights, 0.6, lambda h: h)

    return call, (randn(ROWS, d), _selected(experts, topk), torch.rand(ROWS, topk))


for e, k in ((5, 2), (123, 6), (256, 6), (384, 6)):
    case("routing_scores", str(e), _one_input, "routing_scores", 10, e)
    case("select_experts", f"{k} of {e}", _select_experts, e, k)
    case("expert_weights", f"{k} of {e}", _expert_weights, e, k)
for d, inner in ((5, 3), (123, 61), (256, 512)):
    case("expert_mlp", f"{d} by {inner}", _expert_mlp, d, inner, shared=False)
    case("expert_mlp", f"{d} by {inner} shared", _expert_mlp, d, inner, shared=True)
for d, inner, e, k in ((5, 3, 5, 2), (123, 61, 8, 3), (256, 128, 16, 6)):
    case("routed_experts", f"{d} by {inner}, {k} of {e}", _routed, d, inner, e, k)

# -------- round trips


def _round_trip(ops: Any, op: str, width: int, block: int) -> Built:
    return (lambda x: getattr(ops, op)(x, block)), (30 * randn(ROWS, width),)


for width, block in ((5, 5), (123, 41), (448, 64), (1024, 128)):
    case("round_trip_fp8", f"{width} by {block}", _round_trip, "round_trip_fp8", width, block)
for width, block in ((5, 5), (123, 41), (128, 32)):
    case("round_trip_fp4", f"{width} by {block}", _round_trip, "round_trip_fp4", width, block)
