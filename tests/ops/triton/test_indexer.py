"""Indexer queries and scores: values against the reference, bits of a row through every path, what is not read."""

from __future__ import annotations

import mmap
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from tests.ops.triton.indexer_cases import Problem, Shape, build

from outrider.ops.formats import round_trip_fp4
from outrider.ops.index_rows import decode_fp4, encode_fp4, read_index_rows
from outrider.ops.kv_rows import KvRows
from outrider.ops.reference import paged_indexer as reference
from outrider.ops.reference.paged_attention import PagedRows
from outrider.ops.reference.rope import Rotation, inverse_frequencies, rotation
from outrider.ops.triton.index_queries import index_queries
from outrider.ops.triton.indexer_logits import indexer_logits, queries_a_program
from outrider.ops.triton.launching import indexer_tiles_for
from outrider.ops.triton.select_entries import select_entries
from outrider.platforms.architectures import Fp8Dialect

FORMS = ["float32", "bfloat16", "ocp", "fnuz", "fp4"]
SMALL = Shape(heads=3, head_dim=32)
BATCH = [(5, 5), (300, 3), (129, 1), (3, 1)]


def angles(tokens: int, rope: int, device: str) -> Rotation:
    cos, sin = rotation(torch.arange(tokens) * 37 + 5, inverse_frequencies(rope, 10000.0))
    return Rotation(cos.to(device), sin.to(device))


def bits(x: Tensor) -> Tensor:
    """Bit patterns, with one for every NaN and one for both zeros."""
    x = x.cpu().float()
    return torch.where(x.isnan(), -1, torch.where(x == 0, 0, x.view(torch.int32)))


# -------- queries


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("indexer_format", "block"), [("fp4", 32), ("fp4", 16), ("fp8", 128), (None, 128)])
def test_queries_have_the_bits_of_the_reference(
    indexer_format: Any, block: int, dtype: torch.dtype, device: str
) -> None:
    """Magnitudes from far below the scales' floors to large, a head of zeros, one with NaN and one with infinity."""
    tokens, heads = 5, 11
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(tokens, heads, 128, generator=generator)
    q *= torch.exp2(torch.arange(tokens * heads).view(tokens, heads, 1) * 2.0 - 70)
    q[0, 3], q[1, 4, 100], q[2, 5, 7] = 0.0, float("nan"), float("inf")
    q = q.to(dtype).to(device)
    found = index_queries(q, angles(tokens, 64, device), indexer_format, block)
    expected = reference.index_queries(q.cpu(), angles(tokens, 64, "cpu"), indexer_format, block)
    assert found.dtype == dtype
    assert torch.equal(bits(found), bits(expected))


def test_queries_of_other_widths(device: str) -> None:
    q = torch.randn(3, 4, 32, generator=torch.Generator().manual_seed(1)).to(device)
    found = index_queries(q, angles(3, 16, device), "fp4", 32)
    assert torch.equal(bits(found), bits(reference.index_queries(q.cpu(), angles(3, 16, "cpu"), "fp4", 32)))
    assert index_queries(q[:0], angles(0, 16, device), "fp4", 32).shape == (0, 4, 32)
    with pytest.raises(ValueError, match="48 dims in blocks of 16; the kernel takes powers of two"):
        index_queries(q.new_zeros(1, 4, 48), angles(1, 16, device), "fp4", 16)
    with pytest.raises(ValueError, match="float16; the kernel takes bfloat16 or float32"):
        index_queries(q.half(), angles(3, 16, device), "fp4", 32)


def test_fp4_rows_hold_the_round_trip() -> None:
    x = torch.randn(40, 64, generator=torch.Generator().manual_seed(2))
    x *= torch.exp2(torch.arange(40)[:, None] * 6.0 - 120)
    x[0], x[1, 5], x[2, 40] = 0.0, float("inf"), float("nan")
    packed, scales = encode_fp4(x)
    assert packed.shape == (40, 32) and scales.shape == (40, 2)
    assert torch.equal(bits(decode_fp4(packed, scales)), bits(round_trip_fp4(x, 32)))


# -------- scores


def scores(problem: Problem, width: int = 80, **options: Any) -> Tensor:
    """With what a query does not see set to -7: those columns hold anything."""
    found = indexer_logits(
        problem.q, problem.head_weights, problem.queries, problem.keys, problem.ratio, width, **options
    )
    return seen(found, problem)


def seen(found: Tensor, problem: Problem) -> Tensor:
    unseen = torch.arange(found.shape[1]) >= problem.visible()[:, None]
    return found.cpu().masked_fill(unseen, -7.0)


def expected_scores(problem: Problem, width: int = 80) -> Tensor:
    host = problem.on_cpu()
    found = reference.indexer_logits(host.q, host.head_weights, host.queries, host.keys, host.ratio, width)
    return seen(found, problem)


def close(found: Tensor, expected: Tensor) -> None:
    assert torch.equal(found.isinf(), expected.isinf())
    finite = ~expected.isinf()
    assert bool(torch.isfinite(expected[finite]).all())
    assert torch.allclose(found[finite], expected[finite], atol=1e-5 * float(expected[finite].abs().max()), rtol=0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("heads", [3, 16])
def test_values(form: str, heads: int, device: str) -> None:
    problem = build(replace(SMALL, heads=heads, form=form), BATCH, device, padded_rows=2)
    close(scores(problem), expected_scores(problem))


@pytest.mark.parametrize("form", ["bfloat16", "fnuz", "fp4"])
def test_values_at_full_shape(form: str, device: str) -> None:
    problem = build(Shape(heads=64, head_dim=128, form=form), [(700, 2), (260, 1)], device, padded_rows=1)
    close(scores(problem, 175), expected_scores(problem, 175))


def test_against_float64(device: str) -> None:
    """Not by way of the reference."""
    problem = build(Shape(heads=64, head_dim=128, form="ocp"), [(400, 1)], device)
    host = problem.on_cpu()
    index = torch.arange(100)
    slots = host.keys.table[0, index // 32].long() * 32 + index % 32
    keys = read_index_rows(host.keys.rows, slots, 128).double()
    dots = (host.q[0].double() @ keys.t()).clamp_min(0)
    expected = host.head_weights[0].double() @ dots
    found = scores(problem, 100)[0].double()
    assert float((found - expected).abs().max()) < 2e-6 * float(host.head_weights[0].double().abs() @ dots.amax(1))


@pytest.mark.parametrize("form", ["bfloat16", "ocp", "fp4"])
def test_prefill_verify_and_decode_rows_are_one(form: str, device: str) -> None:
    """A row in the ragged batch, in another order, alone, beside any number of queries in its program and in a wider
    table of scores: the same bits."""
    problem = build(replace(SMALL, form=form), [(100, 5), (140, 3), (60, 2)], device)
    together = scores(problem, 35)
    for query_tile in (1, 3, 16):
        assert torch.equal(scores(problem, 35, query_tile=query_tile), together)
    order = torch.tensor([8, 1, 6, 0, 7])
    assert torch.equal(scores(problem.select(order), 35, query_tile=3), together[order])
    for row in (0, 4, 6):
        alone = scores(problem.select(torch.tensor([row])), 50)
        assert torch.equal(alone[0, :35], together[row])


@pytest.mark.parametrize(("form", "exact"), [("ocp", True), ("fnuz", True), ("fp4", False)])
def test_coded_keys_and_their_values_are_one(form: str, exact: bool, device: str) -> None:
    """FP8: the very bits, since the scale is a power of two. FP4 sums even and odd dims apart."""
    problem = build(replace(SMALL, form=form), BATCH, device)
    every = torch.arange(problem.keys.rows.data.shape[0], device=device)
    plain = KvRows(read_index_rows(problem.keys.rows, every, 32).bfloat16())
    found, expected = scores(problem), scores(replace(problem, keys=problem.keys._replace(rows=plain)))
    if exact:
        assert torch.equal(found, expected)
    close(found, expected)


def test_the_other_dialect_is_wrong(device: str) -> None:
    problem = build(replace(SMALL, form="fnuz"), [(200, 2)], device)
    rows = problem.keys.rows._replace(dialect=Fp8Dialect.OCP)
    with pytest.raises(AssertionError):
        close(scores(replace(problem, keys=problem.keys._replace(rows=rows))), expected_scores(problem))


def test_rows_that_need_no_scores_get_none(device: str) -> None:
    """Queries that see at most `more_than` entries, and columns beyond what is seen, are left as they were."""
    problem = build(SMALL, [(44, 6), (300, 1)], device, padded_rows=1)
    visible = problem.visible()
    assert visible.tolist() == [9, 10, 10, 10, 10, 11, 75, 0]
    for more_than in (10, 0):
        found = indexer_logits(
            problem.q, problem.head_weights, problem.queries, problem.keys, 4, 80, more_than, query_tile=8
        )
        untouched = found.cpu().isnan()  # fresh memory is NaN here
        for row, count in enumerate(visible.tolist()):
            assert untouched[row].tolist() == [count <= more_than or column >= count for column in range(80)]


def test_nan_is_not_lost(device: str) -> None:
    problem = build(SMALL, [(64, 2)], device)
    slot = int(problem.keys.table[0, 0]) * 32 + 3
    problem.keys.rows.data[slot, 7] = float("nan")
    problem.q[1, 2, 0] = float("nan")
    found = scores(problem, 16)
    assert found[0].isnan().nonzero()[:, 0].tolist() == [3]
    assert bool(found[1].isnan().all())


# -------- what is not there is not read


def test_pages_outside_the_cache_score_minus_infinity(device: str) -> None:
    problem = build(SMALL, [(300, 2)], device)
    problem.keys.table[0, 0] = 10**6
    problem.keys.table[0, 1] = -7
    found = scores(problem)
    assert bool((found[:, :64] == float("-inf")).all()) and bool(torch.isfinite(found[:, 64:75]).all())
    close(found, expected_scores(problem))
    short = replace(problem, keys=problem.keys._replace(table=problem.keys.table[:, :1].contiguous()))
    assert bool((scores(short)[:, :74] == float("-inf")).all())


def test_padded_rows_read_no_table(device: str) -> None:
    """Positions and requests of -1, each alone too; a batch of nothing else."""
    problem = build(SMALL, [(300, 4)], device)
    expected = scores(problem)
    problem.queries.positions[1] = -1
    problem.queries.requests[2] = -1
    for query_tile in (1, 4):
        found = scores(problem, query_tile=query_tile)
        assert torch.equal(found[[0, 3]], expected[[0, 3]])
        assert bool((found[1:3] == -7.0).all())
    assert bool((scores(problem.select(torch.tensor([1, 2]))) == -7.0).all())


@pytest.mark.parametrize("form", ["bfloat16", "ocp"])
def test_offsets_beyond_32_bits(form: str, device: str) -> None:
    """The same page near the start of the cache and beyond 2^31 elements of it."""
    problem = build(Shape(heads=2, head_dim=128, form=form), [(100, 1)], device)
    rows = problem.keys.rows
    slots = 2**31 // 128 + 96

    def far(x: Tensor) -> Tensor:
        if device == "cuda":
            big = torch.zeros(slots, x.shape[1], dtype=x.dtype, device=device)
        else:  # address space of which a page is touched
            memory = mmap.mmap(-1, slots * x.shape[1] * x.element_size())
            big = torch.frombuffer(memory, dtype=x.dtype).view(slots, -1)
        near = int(problem.keys.table[0, 0]) * 32
        big[slots - 32 :] = x[near : near + 32]
        return big

    moved = KvRows(far(rows.data), None if rows.scales is None else far(rows.scales), rows.dialect)
    table = torch.tensor([[slots // 32 - 1]], dtype=torch.int32, device=device)
    assert torch.equal(scores(replace(problem, keys=PagedRows(moved, table, 32)), 25), scores(problem, 25))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"q": torch.zeros(2, 3, 48)}, "head dim 48; the kernels take a power of two"),
        ({"q": torch.zeros(2, 3, 32)}, "torch.float32 with keys of torch.bfloat16"),
        ({"q": torch.zeros(2, 3, 64).bfloat16()}, "plain rows hold 64 floating-point values"),
        ({"head_weights": torch.zeros(2, 4)}, r"head_weights: \[2, 4\] torch.float32, expected \[2, 3\] float32"),
        ({"rows": KvRows(torch.zeros(64, 32, dtype=torch.uint8), torch.zeros(64, 1, dtype=torch.uint8))}, "FP4 rows"),
        (
            {
                "rows": KvRows(
                    torch.zeros(64, 32, dtype=torch.uint8), torch.zeros(64, 2, dtype=torch.uint8), Fp8Dialect.OCP
                )
            },
            "FP8 rows hold 32 bytes and one scale",
        ),
    ],
)
def test_what_is_not_served_is_refused(change: dict[str, Any], complaint: str, device: str) -> None:
    problem = build(SMALL, [(30, 2)], device)
    change = {name: _moved(value, device) for name, value in change.items()}
    if "rows" in change:
        change["keys"] = problem.keys._replace(rows=change.pop("rows"))
    with pytest.raises(ValueError, match=complaint):
        scores(replace(problem, **change))


def _moved(value: Tensor | KvRows, device: str) -> Tensor | KvRows:
    if isinstance(value, KvRows):
        scales = None if value.scales is None else value.scales.to(device)
        return value._replace(data=value.data.to(device), scales=scales)
    return value.to(device)


# -------- scores and selection together


@pytest.mark.parametrize("form", ["float32", "fp4"])
def test_selected_entries_are_the_references(form: str, device: str) -> None:
    """Lengths around topk * ratio in a verify block, prefill from the first token, a long and a padded row."""
    topk = 8
    batch = [(topk * 4 + d + 1, 3) for d in (-1, 0, 1)] + [(38, 38), (150, 2)]
    problem = build(replace(SMALL, heads=16, form=form), batch, device, padded_rows=1)
    host = problem.on_cpu()
    expected = reference.select_entries(host.q, host.head_weights, host.queries, host.keys, 4, topk, 150)
    for scratch_bytes in (1 << 29, 4 * 37 * 30):
        found = select_entries(
            problem.q, problem.head_weights, problem.queries, problem.keys, 4, topk, 150, scratch_bytes=scratch_bytes
        )
        assert torch.equal(found.cpu(), expected)
    assert expected[-1].tolist() == [-1] * topk
    visible = problem.visible()[:, None]
    all_seen = torch.where(torch.arange(topk) < visible, torch.arange(topk), -1).int()
    assert torch.equal(expected[visible[:, 0] <= topk], all_seen[visible[:, 0] <= topk])


def test_a_query_beyond_the_promised_length_selects_nothing(device: str) -> None:
    problem = build(SMALL, [(300, 6)], device)
    found = select_entries(problem.q, problem.head_weights, problem.queries, problem.keys, 4, 8, 299)
    assert bool((found[5] == -1).all()) and bool((found[4] >= 0).all())


def test_requests_together_and_alone(device: str) -> None:
    """Every prompt's rows select from its own pages, whatever else is in the batch."""
    batch = [(n, min(n, 3)) for n in (1, 64, 200, 5, 77, 131)]
    problem = build(replace(SMALL, heads=16), batch, device)
    together = select_entries(problem.q, problem.head_weights, problem.queries, problem.keys, 4, 8, 200)
    owners = problem.queries.requests.cpu()
    for request, (seq_len, _) in enumerate(batch):
        alone = problem.select((owners == request).nonzero()[:, 0].to(device))
        found = select_entries(alone.q, alone.head_weights, alone.queries, alone.keys, 4, 8, seq_len)
        assert torch.equal(found.cpu(), together.cpu()[owners == request])


def test_no_query(device: str) -> None:
    problem = build(SMALL, [(30, 2)], device).select(torch.tensor([], dtype=torch.int64, device=device))
    assert scores(problem).shape == (0, 80)
    found = select_entries(problem.q, problem.head_weights, problem.queries, problem.keys, 4, 8, 30)
    assert found.shape == (0, 8) and found.dtype == torch.int32


def test_queries_that_share_a_program() -> None:
    assert [queries_a_program(*x) for x in ((1, 1), (64, 64), (256, 64), (5, 64), (8192, 1), (0, 0))] == [
        1, 1, 4, 1, 16, 1,
    ]  # fmt: skip


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 8, 64, 256, 2048])
@pytest.mark.parametrize("form", ["bfloat16", "ocp", "fp4"])
def test_batch_sizes_at_full_shape(form: str, rows: int) -> None:
    """Row i of a V4-Flash layer selects the same entries and has the same scores in every batch, 50 times over."""
    problem = build(Shape(heads=64, head_dim=128, form=form), [(16384, 2048)], "cuda")
    whole = scores(problem, 4096)
    part = problem.select(torch.arange(2048 - rows, 2048, device="cuda"))
    for _ in range(50 if rows <= 64 else 2):
        assert torch.equal(scores(part, 4096), whole[2048 - rows :])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_the_key_tile_does_not_show() -> None:
    problem = build(Shape(heads=64, head_dim=128, form="ocp"), [(4000, 64)], "cuda")
    tiles = indexer_tiles_for(torch.device("cuda"))
    outputs = [scores(problem, 1000, tiles=replace(tiles, key_tile=n)) for n in (64, 128)]
    assert torch.equal(*outputs)
