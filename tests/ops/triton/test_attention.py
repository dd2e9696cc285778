"""Sparse attention over paged caches and gathered rows: values, and the bits of a row through every path."""

from __future__ import annotations

import mmap
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from tests.ops.triton.attention_cases import PAGE_TOKENS, Problem, Shape, build

from outrider.ops.kv_rows import KvRows, read_rows
from outrider.ops.reference.paged_attention import EntryKeys, PagedRows
from outrider.ops.reference.paged_attention import gathered_sparse_attention as gathered_reference
from outrider.ops.reference.paged_attention import paged_sparse_attention as paged_reference
from outrider.ops.reference.topk_swa import combine_topk_swa_indices
from outrider.ops.triton.gathered_attention import gathered_sparse_attention
from outrider.ops.triton.launching import tiles_for
from outrider.ops.triton.paged_attention import paged_sparse_attention
from outrider.platforms.architectures import Fp8Dialect
from outrider.platforms.tiles import AttentionTiles

BFLOAT16_STEP = 2.0**-8
OCP, FNUZ = Fp8Dialect

CSA = Shape(heads=4, head_dim=32, rope=16, ratio=4, topk=24)
HCA = Shape(heads=5, head_dim=64, rope=16, ratio=128)
WINDOW_ONLY = Shape(heads=8, head_dim=32, rope=16, ratio=0)
BATCH = [(5, 5), (300, 2), (129, 1)]

SHAPES: dict[str, tuple[Shape, list[tuple[int, int]]]] = {
    "csa": (CSA, BATCH),
    "csa, all entries": (replace(CSA, topk=None), [(131, 2)]),
    "hca": (HCA, [(127, 1), (128, 1), (400, 2)]),
    "window": (WINDOW_ONLY, [(1, 1), (128, 2), (257, 2)]),
    "float32": (replace(CSA, dtype=torch.float32), BATCH),
    "csa ocp": (replace(CSA, head_dim=64, dialect=OCP), BATCH),
    "csa fnuz": (replace(CSA, head_dim=64, dialect=FNUZ), BATCH),
    "16 heads and one": (replace(CSA, heads=17), [(200, 1)]),
    "flash": (Shape(heads=64, head_dim=512, rope=64, ratio=4, topk=512, block=64), [(2049, 1)]),
    "flash fnuz": (Shape(heads=16, head_dim=512, rope=64, ratio=4, topk=512, block=64, dialect=FNUZ), [(2050, 1)]),
    "pro hca": (Shape(heads=128, head_dim=512, rope=64, ratio=128, block=64), [(260, 1)]),
}


def run(problem: Problem, split_keys: int | None = None, tiles: AttentionTiles | None = None) -> Tensor:
    """split_keys, tiles: None takes the architecture's."""
    tiles = tiles or tiles_of(problem, split_keys)
    return paged_sparse_attention(*problem.arguments(), tiles=tiles)  # type: ignore[arg-type]


def tiles_of(problem: Problem, split_keys: int | None) -> AttentionTiles:
    own = tiles_for(problem.q.device, fp8=problem.window.rows.scales is not None)
    return own if split_keys is None else replace(own, split_keys=split_keys)


def on_cpu(x: Any) -> Any:
    """A copy of a problem, or of any tuple of its tensors, in host memory."""
    if isinstance(x, Tensor):
        return x.cpu()
    if isinstance(x, Problem):
        return Problem(*(on_cpu(value) for value in vars(x).values()))
    if isinstance(x, tuple):
        values = [on_cpu(value) for value in x]
        return type(x)(*values) if hasattr(x, "_fields") else tuple(values)
    return x


def close(found: Tensor, problem: Problem) -> None:
    """Within the rounding of weights and result, of the reference (which computes in float32)."""
    host = on_cpu(problem)
    expected = paged_reference(*host.arguments()).float()
    assert bool(torch.isfinite(expected).all())
    step = BFLOAT16_STEP if problem.q.dtype == torch.bfloat16 else 2.0**-20
    scale = expected.abs().amax(-1, keepdim=True)
    assert bool(((found.cpu().float() - expected).abs() <= 2 * step * scale).all())


@pytest.mark.parametrize("name", SHAPES)
def test_values(name: str, device: str) -> None:
    shape, batch = SHAPES[name]
    problem = build(shape, batch, device, padded_rows=1, holes=0.2)
    found = run(problem)
    assert found.dtype == shape.dtype
    close(found, problem)
    assert not bool(found[-1].any())


def test_without_rotation_and_with_a_later_first_position(device: str) -> None:
    problem = build(CSA, BATCH, device)
    first = torch.tensor([2, 250, 128], dtype=torch.int32, device=device)
    problem = replace(problem, rotation=None, first_positions=first)
    close(run(problem), problem)


@pytest.mark.parametrize("split_keys", [64, 128])
def test_splits_merge_to_the_same_values(split_keys: int, device: str) -> None:
    problem = build(CSA, BATCH, device, padded_rows=1)
    close(run(problem, split_keys=split_keys), problem)


def test_a_query_without_keys_gives_0(device: str) -> None:
    """Every column -1 and a window that has not begun."""
    problem = build(CSA, [(300, 2), (40, 1)], device)
    assert problem.entries is not None and problem.entries.topk_indices is not None
    problem.entries.topk_indices.fill_(-1)
    problem.first_positions.fill_(1000)
    for split_keys in (640, 64):
        assert not bool(run(problem, split_keys=split_keys).any())


# -------- one row, one result

ROWS = [0, 4, 5, 6, 7]


@pytest.mark.parametrize("split_keys", [640, 64])
@pytest.mark.parametrize("shape", [CSA, HCA, replace(CSA, head_dim=64, dialect=FNUZ)], ids=["csa", "hca", "fnuz"])
def test_prefill_verify_and_decode_rows_are_one(shape: Shape, split_keys: int, device: str) -> None:
    """A row in the whole ragged batch, among some of it in another order, and alone: the same bits. The bound on the
    length, which decides how many splits have programs, differs too."""
    problem = build(shape, [(5, 3), (300, 2), (129, 3)], device)
    together = run(problem, split_keys=split_keys)
    order = torch.tensor([7, 2, 4, 3])
    some = run(replace(problem.select(order), max_seq_len=5000), split_keys=split_keys)
    assert torch.equal(some, together[order])
    for row in (0, 4, 7):
        alone = problem.select(torch.tensor([row]))
        length = int(alone.queries.positions[0]) + 1
        assert torch.equal(run(replace(alone, max_seq_len=length), split_keys=split_keys)[0], together[row])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 8, 64, 256, 4096])
@pytest.mark.parametrize("fp8", [False, True])
def test_batch_sizes_at_full_shape(rows: int, fp8: bool) -> None:
    """Row i of a V4-Flash layer has the same bits in every batch, and 50 times over."""
    shape = Shape(heads=64, head_dim=512, rope=64, ratio=4, topk=512, block=64, dialect=OCP if fp8 else None)
    problem = build(shape, [(8192, 4096)], "cuda")
    whole = run(problem)
    part = problem.select(torch.arange(4096 - rows, 4096))
    for _ in range(50 if rows <= 64 else 2):
        assert torch.equal(run(part), whole[4096 - rows :])


def test_a_verify_row_does_not_see_later_drafts(device: str) -> None:
    """1 + 3 rows of a request; the last token's window row and entry are replaced: the rows before it do not change."""
    problem = build(replace(CSA, topk=None), [(304, 4)], device)
    before = run(problem)
    assert problem.entries is not None
    page, offset = divmod(303, PAGE_TOKENS)
    slot = int(problem.window.table[0, page]) * PAGE_TOKENS + offset
    problem.window.rows.data[slot] = 100.0
    entry_page, entry = divmod(303 // 4, PAGE_TOKENS // 4)
    entry_slot = int(problem.entries.paged.table[0, entry_page]) * (PAGE_TOKENS // 4) + entry
    problem.entries.paged.rows.data[entry_slot] = 100.0
    after = run(problem)
    assert torch.equal(before[:3], after[:3])
    assert not torch.equal(before[3], after[3])


@pytest.mark.parametrize("last", [CSA.topk * CSA.ratio + d for d in (-1, 0, 1)])  # type: ignore[operator]
def test_where_selection_begins(last: int, device: str) -> None:
    """A verify block across topk * ratio: a list of all visible entries and no list are one."""
    problem = build(CSA, [(last + 2, 4)], device)
    visible = (problem.queries.positions + 1) // CSA.ratio
    assert CSA.topk is not None
    everything = torch.arange(CSA.topk, dtype=torch.int32, device=device).expand(4, -1)
    assert problem.entries is not None
    listed = replace(problem, entries=problem.entries._replace(topk_indices=everything.contiguous()))
    free = replace(problem, entries=problem.entries._replace(topk_indices=None))
    few = visible <= CSA.topk
    assert bool(few.any())
    assert torch.equal(run(listed)[few], run(free)[few])
    close(run(problem), problem)


# -------- forms and formats


def gather(problem: Problem, M: int, N: int) -> tuple[KvRows, Tensor, Tensor]:
    """The buffer and lists of `combine_topk_swa_indices` for a problem whose every position is a query."""
    host = on_cpu(problem)
    requests = host.window.table.shape[0]
    buffer = torch.full((requests * M, host.q.shape[-1]), float("nan"))
    for b in range(requests):
        length = int((host.queries.requests == b).sum())
        for paged, start, count in ((host.entries.paged, 0, length // host.entries.ratio), (host.window, N, length)):
            index = torch.arange(count)
            slots = paged.table[b, index // paged.per_page].long() * paged.per_page + index % paged.per_page
            buffer[b * M + start : b * M + start + count] = read_rows(paged.rows, slots, host.q.shape[-1])
    lens = torch.bincount(host.queries.requests).to(torch.int32)
    starts = torch.cat([lens.new_zeros(1), lens.cumsum(0).to(torch.int32)])
    lists = combine_topk_swa_indices(
        host.entries.topk_indices, starts, lens, lens, host.window_size, host.entries.ratio,
        host.entries.topk_indices.shape[1], M, N,
    )  # fmt: skip
    device = problem.q.device
    return KvRows(buffer.to(problem.q.dtype).to(device)), lists[0].to(device), lists[1].to(device)


@pytest.mark.parametrize("split_keys", [640, 64])
@pytest.mark.parametrize("dialect", [None, OCP], ids=["plain", "ocp"])
def test_combined_lists_and_page_tables_are_one(dialect: Fp8Dialect | None, split_keys: int, device: str) -> None:
    """Through `combine_topk_swa_indices` and a gathered buffer: the bits of the paged form, which reads in place."""
    shape = replace(CSA, topk=8, head_dim=64, dialect=dialect, window=16)
    problem = build(shape, [(7, 7), (53, 53)], device, holes=0.2)
    rows, combined, lens = gather(problem, M=70, N=13)
    wanted = torch.tensor([0, 6, 7, 20, 38, 52, 59])
    some = problem.select(wanted)
    direct = run(some, split_keys=split_keys)
    call = (some.q, rows, combined[wanted], lens[wanted], some.sink, some.scale, some.rotation)
    listed = gathered_sparse_attention(*call, tiles=tiles_of(some, split_keys))
    assert torch.equal(listed, direct)
    close(direct, some)
    expected = gathered_reference(*on_cpu(call)).float()
    assert torch.allclose(listed.cpu().float(), expected, atol=2 * BFLOAT16_STEP * float(expected.abs().max()))


@pytest.mark.parametrize("dialect", [OCP, FNUZ])
def test_fp8_rows_and_their_rounded_values_are_one(dialect: Fp8Dialect, device: str) -> None:
    problem = build(replace(CSA, head_dim=64, dialect=dialect), [(140, 2)], device)
    assert problem.entries is not None

    def plain(paged: PagedRows) -> PagedRows:
        every = torch.arange(paged.rows.data.shape[0], device=device)
        return paged._replace(rows=KvRows(read_rows(paged.rows, every, 64).bfloat16()))

    entries = problem.entries._replace(paged=plain(problem.entries.paged))
    rounded = replace(problem, window=plain(problem.window), entries=entries)
    tiles = tiles_for(torch.device(device), fp8=True)
    assert torch.equal(run(problem, tiles=tiles), run(rounded, tiles=tiles))


def test_the_other_dialect_is_wrong(device: str) -> None:
    problem = build(replace(CSA, head_dim=64, dialect=FNUZ), [(140, 2)], device)
    rows = problem.window.rows._replace(dialect=OCP)
    with pytest.raises(ValueError, match="one format"):
        run(replace(problem, window=problem.window._replace(rows=rows)))
    assert problem.entries is not None
    paged = problem.entries.paged._replace(rows=problem.entries.paged.rows._replace(dialect=OCP))
    entries = problem.entries._replace(paged=paged)
    swapped = replace(problem, window=problem.window._replace(rows=rows), entries=entries)
    with pytest.raises(AssertionError):
        close(run(swapped), problem)


# -------- what is not there is not read


def test_pages_outside_the_cache_hold_no_key(device: str) -> None:
    problem = build(CSA, [(300, 2)], device)
    assert problem.entries is not None
    problem.window.table[0, 1] = 10**6
    problem.entries.paged.table[0, 0] = -7
    close(run(problem), problem)


def test_a_query_beyond_the_promised_length_is_nan(device: str) -> None:
    problem = replace(build(CSA, [(300, 2)], device), max_seq_len=299)
    found = run(problem, split_keys=64)
    assert bool(found[1].isnan().all()) and not bool(found[0].isnan().any())


def test_offsets_beyond_32_bits(device: str) -> None:
    """The same page near the start of the cache and beyond 2^31 elements (4 GiB) of it."""
    shape = replace(WINDOW_ONLY, head_dim=512, rope=64, heads=2)
    problem = build(shape, [(40, 1)], device)
    pages = 2**31 // (PAGE_TOKENS * 512) + 3
    size = pages * PAGE_TOKENS * 512
    if device == "cuda":
        data = torch.zeros(size, dtype=torch.bfloat16, device=device)
    else:  # address space of which a page is touched
        data = torch.frombuffer(mmap.mmap(-1, 2 * size), dtype=torch.bfloat16)
    data = data.view(-1, 512)
    near = int(problem.window.table[0, 0])
    far = pages - 1
    count = 40
    source = problem.window.rows.data[near * PAGE_TOKENS : near * PAGE_TOKENS + count]
    data[far * PAGE_TOKENS : far * PAGE_TOKENS + count] = source
    table = torch.tensor([[far]], dtype=torch.int32, device=device)
    moved = replace(problem, window=PagedRows(KvRows(data), table, PAGE_TOKENS))
    assert torch.equal(run(moved), run(problem))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"q": torch.zeros(1, 4, 48)}, "head dim 48; the kernels take a power of two"),
        ({"q": torch.zeros(1, 4, 32, dtype=torch.float16)}, "float16; the kernels take bfloat16 or float32"),
        ({"q": torch.zeros(1, 4, 32)}, "expected contiguous rows of torch.float32"),
        ({"q": torch.zeros(1, 4, 64, dtype=torch.bfloat16)}, "head dim 64"),
    ],
)
def test_what_is_not_served_is_refused(change: dict[str, Any], complaint: str, device: str) -> None:
    problem = build(CSA, [(3, 1)], device)
    with pytest.raises(ValueError, match=complaint):
        run(replace(problem, **{name: value.to(device) for name, value in change.items()}))


def test_pages_of_two_sizes_are_refused(device: str) -> None:
    problem = build(CSA, [(3, 1)], device)
    assert problem.entries is not None
    paged = problem.entries.paged._replace(per_page=64)
    with pytest.raises(ValueError, match="128 tokens and 64 entries, expected 32 at ratio 4"):
        run(replace(problem, entries=EntryKeys(paged, 4, problem.entries.topk_indices)))


def test_no_query(device: str) -> None:
    problem = build(CSA, [(3, 1)], device).select(torch.tensor([], dtype=torch.int64))
    assert run(problem).shape == (0, 4, 32)
