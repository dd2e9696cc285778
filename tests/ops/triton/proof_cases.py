"""Cases for the proofs that every kernel owes: exact values, repeats, and batches of any size.

A case is an op on a fixed set of rows (queries, tokens or windows). `run` computes some of them, in any order and
number; `exact` computes the same in float64 from the formula of the specification, not by way of the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from tests.ops.triton import attention_cases, compressor_cases, indexer_cases
from torch import Tensor

from outrider.ops.index_rows import read_index_rows
from outrider.ops.kv_rows import KvRows, empty_fp8_rows
from outrider.ops.reference import compressor as reference
from outrider.ops.reference.paged_attention import Queries
from outrider.ops.reference.rope import Rotation, inverse_frequencies, rotation
from outrider.ops.triton.compressor import compress_index_keys, compress_insert
from outrider.ops.triton.gather_rows import gather_rows
from outrider.ops.triton.gathered_attention import gathered_sparse_attention
from outrider.ops.triton.index_queries import index_queries
from outrider.ops.triton.indexer_logits import indexer_logits
from outrider.ops.triton.norm_rope_insert import norm_rope_insert
from outrider.ops.triton.paged_attention import paged_sparse_attention
from outrider.ops.triton.radix_select import top_visible_entries
from outrider.ops.triton.select_entries import select_entries
from outrider.ops.triton.topk_swa import combine_topk_swa_indices
from outrider.platforms.architectures import Fp8Dialect

OCP, FNUZ = Fp8Dialect
Outputs = tuple[Tensor, ...]
Comparison = tuple[Tensor, Tensor, Tensor | float]

# Of the largest value of a row. A rounding to bfloat16 errs by 2^-8 of a value; a rotation joins two such errors
# (sqrt 2), and its result is rounded again: at most 2.42 of them.
ROUNDED_TWICE = 2.5 * 2.0**-8
# The same of the output, and the rounding of the weights.
ATTENTION = 3 * 2.0**-8
# Of the largest value of a block: half a step of the format, and the rounding to bfloat16 before it.
CODED = {"fp4": 2.0**-2, "fp8": 2.0**-4 + 2.0**-8, "plain": ROUNDED_TWICE}
# Of the sum over heads of |weight| and the head's largest score: float32 sums of 128 products and 64 heads.
SCORES = 2e-6


@dataclass(frozen=True)
class Case:
    """`run`: rows [M] int64 -> outputs [M, ...]. `exact`: rows and their outputs -> (found, expected, largest
    difference allowed) in float64."""

    rows: int
    run: Callable[[Tensor], Outputs]
    exact: Callable[[Tensor, Outputs], Iterator[Comparison]]

    @cached_property
    def whole(self) -> Outputs:
        """All rows at once, computed once."""
        return self.run(torch.arange(self.rows))


def double(x: Tensor) -> Tensor:
    return x.cpu().double()


def largest(x: Tensor) -> Tensor:
    """Largest magnitude of the last dimension, kept."""
    return x.abs().amax(-1, keepdim=True)


def rotated(x: Tensor, cos: Tensor, sin: Tensor, *, back: bool = False) -> Tensor:
    """Rope, or its inverse, of the last dims of x [..., D] float64; cos, sin: [..., rope / 2]."""
    rope = 2 * cos.shape[-1]
    pairs = torch.view_as_complex(x[..., -rope:].unflatten(-1, (-1, 2)).contiguous())
    turn = torch.complex(double(cos), -double(sin) if back else double(sin))
    return torch.cat([x[..., :-rope], torch.view_as_real(pairs * turn).flatten(-2)], dim=-1)


def latent_values(rows: KvRows, nope: int, block: int) -> Tensor:
    """Every row of a cache, by torch's own FP8 types: [slots, D] float64."""
    if rows.scales is None:
        return double(rows.data)
    native = torch.float8_e4m3fnuz if rows.dialect is FNUZ else torch.float8_e4m3fn
    data, scales = rows.data.cpu(), double(rows.scales)
    coded = double(data[:, :nope].contiguous().view(native).float())
    coded *= torch.exp2(scales[:, : nope // block] - 127).repeat_interleave(block, dim=1)
    return torch.cat([coded, double(data[:, nope:].contiguous().view(torch.bfloat16))], dim=1)


def attend(q: Tensor, keys: Tensor, sink: Tensor, scale: float) -> Tensor:
    """q [H, D], keys [n, D] -> [H, D], all float64."""
    scores = torch.cat([q @ keys.t() * scale, sink[:, None]], dim=1)
    return scores.softmax(1)[:, :-1] @ keys


# -------- attention


def paged_attention(shape: attention_cases.Shape, requests: list[tuple[int, int]], device: str) -> Case:
    problem = attention_cases.build(shape, requests, device, holes=0.2)
    window_values = latent_values(problem.window.rows, shape.nope, shape.block)
    table = problem.window.table.cpu().long()
    entries = problem.entries
    entry_values = None if entries is None else latent_values(entries.paged.rows, shape.nope, shape.block)

    def run(rows: Tensor) -> Outputs:
        return (paged_sparse_attention(*problem.select(rows.to(device)).arguments()),)  # type: ignore[arg-type]

    def keys_of(row: int, position: int, request: int) -> Tensor:
        seen = torch.arange(max(0, position + 1 - shape.window), position + 1)
        per_page = problem.window.per_page
        keys = window_values[table[request, seen // per_page] * per_page + seen % per_page]
        if entries is None or entry_values is None:
            return keys
        visible = (position + 1) // shape.ratio
        chosen = torch.arange(visible)
        if entries.topk_indices is not None:
            chosen = entries.topk_indices[row].cpu().long()[:visible]
            chosen = chosen[(chosen >= 0) & (chosen < visible)]
        per_page = entries.paged.per_page
        pages = entries.paged.table.cpu().long()[request, chosen // per_page]
        return torch.cat([entry_values[pages * per_page + chosen % per_page], keys])

    def exact(rows: Tensor, outputs: Outputs) -> Iterator[Comparison]:
        assert problem.rotation is not None
        for row, found in zip(rows.tolist(), outputs[0], strict=True):
            keys = keys_of(row, int(problem.queries.positions[row]), int(problem.queries.requests[row]))
            expected = attend(double(problem.q[row]), keys, double(problem.sink), problem.scale)
            expected = rotated(expected, problem.rotation.cos[row], problem.rotation.sin[row], back=True)
            yield double(found), expected, largest(expected) * ATTENTION

    return Case(problem.q.shape[0], run, exact)


def gathered_attention(tokens: int, heads: int, width: int, *, fp8: bool, device: str) -> Case:
    d, nope, block, slots = 512, 448, 64, 700
    q = torch.randn(tokens, heads, d).bfloat16().to(device)
    rows_of_cache = some_latents(slots, d, nope, block, fp8=fp8, device=device)
    values, sink = latent_values(rows_of_cache, nope, block), torch.randn(heads)
    lists = torch.randint(-9, slots + 9, (tokens, width), dtype=torch.int32)
    lens = torch.randint(0, width + 1, (tokens,), dtype=torch.int32)
    angles = rotation(torch.arange(tokens) * 37, inverse_frequencies(d - nope, 10000.0))

    def run(rows: Tensor) -> Outputs:
        some = Rotation(*(x[rows].to(device) for x in angles))
        return (
            gathered_sparse_attention(
                q[rows.to(device)], rows_of_cache, lists[rows].to(device), lens[rows].to(device), sink.to(device),
                d**-0.5, some,
            ),
        )  # fmt: skip

    def exact(rows: Tensor, outputs: Outputs) -> Iterator[Comparison]:
        for row, found in zip(rows.tolist(), outputs[0], strict=True):
            chosen = lists[row, : int(lens[row])].long()
            keys = values[chosen[(chosen >= 0) & (chosen < slots)]]
            expected = attend(double(q[row]), keys, double(sink), d**-0.5)
            expected = rotated(expected, angles.cos[row], angles.sin[row], back=True)
            yield double(found), expected, largest(expected) * ATTENTION

    return Case(tokens, run, exact)


# -------- rows of the cache


def some_latents(slots: int, d: int, nope: int, block: int, *, fp8: bool, device: str) -> KvRows:
    """Plain bfloat16 rows, or OCP ones of every finite byte under scales around 1."""
    if not fp8:
        return KvRows(torch.randn(slots, d).bfloat16().to(device))
    rows = empty_fp8_rows(slots, nope, d - nope, block, OCP)
    assert rows.scales is not None
    rows.data[:, :nope] = torch.randint(0, 254, (slots, nope)).to(torch.uint8)
    rows.data[rows.data == 0x7F] = 0
    rows.data[:, nope:] = torch.randn(slots, d - nope).bfloat16().view(torch.uint8)
    rows.scales.copy_(torch.randint(118, 121, rows.scales.shape))
    return KvRows(rows.data.to(device), rows.scales.to(device), OCP)


def gathered(tokens: int, *, fp8: bool, device: str) -> Case:
    d, nope, block, slots = 512, 448, 64, 300
    cache = some_latents(slots, d, nope, block, fp8=fp8, device=device)
    wanted = torch.randint(0, slots, (tokens,))

    def exact(rows: Tensor, outputs: Outputs) -> Iterator[Comparison]:
        yield double(outputs[0]), latent_values(cache, nope, block)[wanted[rows]], 0.0

    return Case(tokens, lambda rows: (gather_rows(cache, wanted[rows].to(device), d),), exact)


def insertion(tokens: int, heads: int, *, dialect: Fp8Dialect | None, device: str) -> Case:
    d, nope, block, eps = 512, 448, 64, 1e-6
    q, kv = torch.randn(tokens, heads, d).bfloat16().to(device), torch.randn(tokens, d).bfloat16()
    weight = torch.rand(d) + 0.5
    angles = rotation(torch.arange(tokens) * 37, inverse_frequencies(d - nope, 10000.0))

    def run(rows: Tensor) -> Outputs:
        """Queries, then the row that each token has left, as bytes."""
        cache = KvRows(torch.zeros(rows.numel(), d, dtype=torch.bfloat16, device=device))
        if dialect is not None:
            cache = empty_fp8_rows(rows.numel(), nope, d - nope, block, dialect, device)
        slots = torch.arange(rows.numel(), device=device).flip(0)
        some = Rotation(*(x[rows].to(device) for x in angles))
        out = norm_rope_insert(
            q[rows.to(device)], kv[rows].to(device), weight.to(device), some, slots, cache, eps, block,
            round_trip=dialect is not None,
        )  # fmt: skip
        return (out, cache.data[slots], *([] if cache.scales is None else [cache.scales[slots]]))

    def exact(rows: Tensor, outputs: Outputs) -> Iterator[Comparison]:
        def normed(x: Tensor) -> Tensor:
            return x / (x.square().mean(-1, keepdim=True) + eps).sqrt()

        cos, sin = angles.cos[rows], angles.sin[rows]
        expected = rotated(normed(double(q[rows.to(device)])), cos[:, None], sin[:, None])
        yield double(outputs[0]), expected, largest(expected) * ROUNDED_TWICE
        scales = outputs[2] if dialect is not None else None
        stored = latent_values(KvRows(outputs[1], scales, dialect), nope, block)
        expected = rotated(normed(double(kv[rows])) * weight.double(), cos, sin)
        yield stored[:, nope:], expected[:, nope:], largest(expected[:, nope:]) * ROUNDED_TWICE
        blocks, found = (x[:, :nope].unflatten(-1, (-1, block)) for x in (expected, stored))
        yield found, blocks, largest(blocks) * CODED["plain" if dialect is None else "fp8"]

    return Case(tokens, run, exact)


# -------- compressor


def compressed(shape: compressor_cases.Shape, windows: int, device: str) -> Case:
    """A row is a token that closes a window; the tokens before it are in the cache already."""
    sequences = compressor_cases.Sequences(shape, [windows * shape.ratio])
    whole = compressor_cases.Piece(0, 0, windows * shape.ratio)
    operation = compress_index_keys if shape.index else compress_insert
    filled = sequences.caches(device)
    sequences.step(reference.compress_index_keys if shape.index else reference.compress_insert, filled, [whole])

    def run(rows: Tensor) -> Outputs:
        caches = compressor_cases.Caches(filled.partial, sequences.caches(device).entries)
        last = (rows + 1) * shape.ratio - 1
        sequences.call(operation, caches, sequences.rows[0][last], [(p, 0) for p in last.tolist()])
        return (compressor_cases.entry_bits(caches, 0, windows)[rows],)

    def exact(rows: Tensor, outputs: Outputs) -> Iterator[Comparison]:
        values = sequences.exact(0)[rows]
        if shape.index and shape.index != "plain":
            values = hadamard(values)
        data = outputs[0]
        if shape.index == "fp4" or (shape.index and shape.dialect is not None):
            width = shape.head_dim // 2 if shape.index == "fp4" else shape.head_dim
            stored = KvRows(data[:, :width], data[:, width:], shape.dialect)
            found = double(read_index_rows(stored, torch.arange(len(data)), shape.head_dim))
            blocks = values.unflatten(-1, (-1, 32 if shape.index == "fp4" else shape.head_dim))
            yield found.view_as(blocks), blocks, largest(blocks) * CODED[shape.index]
            return
        nope, block = shape.head_dim - shape.rope, shape.block
        if shape.dialect is None:
            stored = KvRows(data.view(torch.bfloat16))
        else:
            row_bytes = nope + 2 * shape.rope
            stored = KvRows(data[:, :row_bytes].contiguous(), data[:, row_bytes:], shape.dialect)
        found = latent_values(stored, nope, block)
        yield found[:, nope:], values[:, nope:], largest(values[:, nope:]) * ROUNDED_TWICE
        blocks = values[:, :nope].unflatten(-1, (-1, block))
        yield found[:, :nope].unflatten(-1, (-1, block)), blocks, largest(blocks) * CODED["fp8"]

    return Case(windows, run, exact)


def hadamard(x: Tensor) -> Tensor:
    """Sylvester's matrix over the last dimension, orthonormal, float64."""
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while matrix.shape[0] < x.shape[-1]:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return x @ matrix * x.shape[-1] ** -0.5


# -------- indexer


def indexer_queries(tokens: int, heads: int, form: str, device: str) -> Case:
    q = torch.randn(tokens, heads, 128).bfloat16().to(device)
    angles = rotation(torch.arange(tokens) * 37, inverse_frequencies(64, 160000.0))
    block = 32 if form == "fp4" else 128

    def run(rows: Tensor) -> Outputs:
        some = Rotation(*(x[rows].to(device) for x in angles))
        return (index_queries(q[rows.to(device)], some, form, block),)  # type: ignore[arg-type]

    def exact(rows: Tensor, outputs: Outputs) -> Iterator[Comparison]:
        expected = hadamard(rotated(double(q[rows.to(device)]), angles.cos[rows, None], angles.sin[rows, None]))
        blocks = expected.unflatten(-1, (-1, block))
        yield double(outputs[0]).view_as(blocks), blocks, largest(blocks) * CODED[form]

    return Case(tokens, run, exact)


def exact_scores(problem: indexer_cases.Problem, row: int) -> tuple[Tensor, float]:
    """Scores of all entries that a query sees, float64, and the scale of their error."""
    index = torch.arange(int(problem.visible()[row]))
    pages = problem.keys.table.cpu().long()[int(problem.queries.requests[row]), index // problem.keys.per_page]
    rows = problem.keys.rows
    host = KvRows(rows.data.cpu(), None if rows.scales is None else rows.scales.cpu(), rows.dialect)
    slots = pages * problem.keys.per_page + index % problem.keys.per_page
    keys = double(read_index_rows(host, slots, problem.q.shape[-1]))
    dots = (double(problem.q[row]) @ keys.t()).clamp_min(0)
    weights = double(problem.head_weights[row])
    return weights @ dots, float(weights.abs() @ dots.amax(1))


def scores(form: str, heads: int, requests: list[tuple[int, int]], device: str) -> Case:
    problem = indexer_cases.build(indexer_cases.Shape(heads=heads, head_dim=128, form=form), requests, device)
    width = max(seq_len for seq_len, _ in requests) // problem.ratio

    def run(rows: Tensor) -> Outputs:
        some = problem.select(rows.to(device))
        found = indexer_logits(some.q, some.head_weights, some.queries, some.keys, some.ratio, width)
        return (found.masked_fill(torch.arange(width, device=device) >= some.visible()[:, None].to(device), 0.0),)

    def exact(rows: Tensor, outputs: Outputs) -> Iterator[Comparison]:
        for row, found in zip(rows.tolist(), outputs[0], strict=True):
            expected, scale = exact_scores(problem, row)
            yield double(found[: expected.numel()]), expected, SCORES * scale

    return Case(problem.q.shape[0], run, exact)


def selection(heads: int, topk: int, requests: list[tuple[int, int]], device: str) -> Case:
    """Exact: no chosen score is below the topk-th, and none left out above it, by more than scores differ."""
    problem = indexer_cases.build(indexer_cases.Shape(heads=heads, head_dim=128, form="fp4"), requests, device)
    longest = max(seq_len for seq_len, _ in requests)

    def run(rows: Tensor) -> Outputs:
        some = problem.select(rows.to(device))
        return (select_entries(some.q, some.head_weights, some.queries, some.keys, some.ratio, topk, longest),)

    def exact(rows: Tensor, outputs: Outputs) -> Iterator[Comparison]:
        for row, found in zip(rows.tolist(), outputs[0].cpu().long(), strict=True):
            expected, scale = exact_scores(problem, row)
            chosen = torch.zeros(expected.numel(), dtype=torch.bool)
            chosen[found[found >= 0]] = True
            wanted = min(topk, expected.numel())
            yield double(chosen.sum()), torch.tensor(wanted, dtype=torch.float64), 0.0
            if wanted < expected.numel():
                threshold = expected.topk(wanted).values[-1]
                yield expected[chosen].clamp_max(threshold), threshold, SCORES * scale
                yield expected[~chosen].clamp_min(threshold), threshold, SCORES * scale

    return Case(problem.q.shape[0], run, exact)


def top_entries(tokens: int, width: int, topk: int, device: str) -> Case:
    """Few distinct scores: most of a row is ties."""
    logits = torch.randint(0, 40, (tokens, width)).float()
    positions = torch.randint(0, 4 * width, (tokens,), dtype=torch.int32)

    def run(rows: Tensor) -> Outputs:
        where = positions[rows].to(device)
        return (top_visible_entries(logits[rows].to(device), Queries(where, torch.zeros_like(where)), 4, topk),)

    def exact(rows: Tensor, outputs: Outputs) -> Iterator[Comparison]:
        for row, found in zip(rows.tolist(), outputs[0], strict=True):
            visible = (int(positions[row]) + 1) // 4
            order = torch.sort(logits[row, :visible].double(), descending=True, stable=True).indices[:topk]
            expected = torch.cat([order.sort().values, torch.full((topk - order.numel(),), -1)])
            yield double(found), expected.double(), 0.0

    return Case(tokens, run, exact)


def combination(tokens: int, topk: int, device: str) -> Case:
    """A row is the last query of a request of its own. Its list, rebased: entries as they are, then positions."""
    window, ratio, longest = 128, 4, 4000
    seq_lens = torch.randint(1, longest, (tokens,), dtype=torch.int32)
    N, M = longest // ratio, longest // ratio + window
    chosen = torch.randint(-9, N + 9, (tokens, topk), dtype=torch.int32)

    def run(rows: Tensor) -> Outputs:
        lens = seq_lens[rows]
        held = lens.clamp_max(window)
        starts = torch.arange(rows.numel() + 1, dtype=torch.int32)
        combined, counts = combine_topk_swa_indices(
            chosen[rows].to(device), starts, lens, held, window, ratio, topk, M, N
        )
        rebased = combined.cpu() - starts[:-1, None] * M
        positions = rebased - N + (lens - held)[:, None]
        columns = torch.arange(combined.shape[1])
        is_entry = columns < (lens // ratio).clamp_max(topk)[:, None]
        rebased = torch.where(is_entry, rebased, positions).masked_fill(combined.cpu() < 0, -1)
        return rebased, counts.cpu()

    def exact(rows: Tensor, outputs: Outputs) -> Iterator[Comparison]:
        for row, found, count in zip(rows.tolist(), *outputs, strict=True):
            length = int(seq_lens[row])
            entries = chosen[row, : min(topk, length // ratio)].long()
            entries = entries.where((entries >= 0) & (entries < N), -1)
            expected = torch.cat([entries, torch.arange(max(0, length - window), length)])
            tail = torch.full((found.numel() - expected.numel(),), -1)
            yield double(found), torch.cat([expected, tail]).double(), 0.0
            yield double(count), torch.tensor(expected.numel(), dtype=torch.float64), 0.0

    return Case(tokens, run, exact)
