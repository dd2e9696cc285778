"""The compressor: values against the reference and against float64, and the bits of an entry through every path."""

from __future__ import annotations

import mmap
from dataclasses import replace

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

pytest.importorskip("triton")

from tests.ops.triton.compressor_cases import Caches, Piece, Sequences, Shape, all_bits, entry_bits, entry_slots

from outrider.ops.index_rows import read_index_rows
from outrider.ops.kv_rows import KvRows, read_rows
from outrider.ops.reference import compressor as reference
from outrider.ops.reference.indexer import hadamard
from outrider.ops.reference.paged_attention import PagedRows
from outrider.ops.triton.compressor import compress_index_keys, compress_insert
from outrider.platforms.architectures import Fp8Dialect

OCP, FNUZ = Fp8Dialect

CSA = Shape(ratio=4, page_tokens=8)
HCA = Shape(ratio=128)
INDEX = replace(CSA, index="fp4")
FLASH = Shape(ratio=4, head_dim=512, rope=64, block=64)

SHAPES: dict[str, tuple[Shape, list[int]]] = {
    "csa": (CSA, [9, 4, 3, 30]),
    "csa float32": (replace(CSA, dtype=torch.float32), [9, 4, 3, 30]),
    "csa unrounded": (replace(CSA, dtype=torch.float32, round_trip=False), [9, 4, 3, 30]),
    "csa ocp": (replace(CSA, dialect=OCP), [21]),
    "csa fnuz": (replace(CSA, dialect=FNUZ), [21]),
    "hca": (HCA, [127, 257]),
    "hca fnuz": (replace(HCA, dialect=FNUZ), [129]),
    "flash csa": (FLASH, [13]),
    "flash csa ocp": (replace(FLASH, dialect=OCP), [13]),
    "flash hca": (replace(FLASH, ratio=128), [128]),
}


def in_pieces(sequences: Sequences, cuts: list[int]) -> list[list[Piece]]:
    """Steps of all requests at once, each cut at these positions."""
    steps = []
    for start, end in zip([0, *cuts], [*cuts, max(sequences.lengths)], strict=True):
        pieces = [
            Piece(request, start, min(end, length) - start)
            for request, length in enumerate(sequences.lengths)
            if length > start
        ]
        steps.append(pieces)
    return steps


def values(sequences: Sequences, caches: Caches, request: int) -> torch.Tensor:
    """A request's entries, decoded: [entries, D] float32."""
    rows = caches.entries.rows
    host = KvRows(rows.data.cpu(), None if rows.scales is None else rows.scales.cpu(), rows.dialect)
    slots = entry_slots(caches, request, sequences.lengths[request] // sequences.shape.ratio)
    read = read_index_rows if sequences.shape.index else read_rows
    return read(host, slots, sequences.shape.head_dim)


def assert_rounded(found: torch.Tensor, exact: torch.Tensor, rope: int) -> None:
    """Entries [N, D] against float64 ones. Quantised dims: half a step of FP8 and three roundings to bfloat16.

    Rotated dims mix two: what one of a pair was rounded by shows in the other, however small that is. So their bound
    is relative to the pair, two roundings before the rotation and one after.
    """
    head, tail = exact[:, :-rope], exact[:, -rope:]
    torch.testing.assert_close(found[:, :-rope].double(), head, rtol=2.0**-4 + 2.0**-6, atol=2.0**-12)
    pairs = tail.unflatten(-1, (-1, 2)).norm(dim=-1).repeat_interleave(2, dim=-1)
    error = (found[:, -rope:].double() - tail).abs() / (pairs + 2.0**-12)
    assert float(error.max()) < 2.0**-6, f"rotated dims, entry and dim {divmod(int(error.argmax()), rope)}"


@pytest.mark.parametrize("name", SHAPES)
def test_values(name: str, device: str) -> None:
    """In three steps, a row of padding in each: as the reference leaves both caches, every byte that it does not write
    included; and entries as float64 has them, within the rounding of their format."""
    shape, lengths = SHAPES[name]
    sequences = Sequences(shape, lengths)
    found, expected = sequences.caches(device), sequences.caches("cpu")
    for pieces in in_pieces(sequences, [2, max(lengths) - 1]):
        sequences.step(compress_insert, found, pieces, padding=[(-1, -1)])
        sequences.step(reference.compress_insert, expected, pieces, padding=[(-1, -1)])
    assert torch.equal(found.partial.rows.data.cpu().nan_to_num(99.0), expected.partial.rows.data.nan_to_num(99.0))
    assert torch.equal(found.entries.rows.data.isnan().cpu(), expected.entries.rows.data.isnan())
    if shape.dtype == torch.bfloat16:  # a sum in another last place rarely rounds otherwise
        differ = (found.entries.rows.data.cpu() != expected.entries.rows.data) & ~expected.entries.rows.data.isnan()
        assert float(differ.float().mean()) < 0.002
    step = 2.0**-4 if shape.round_trip else 2.0**-19
    for request in range(len(lengths)):
        exact = sequences.exact(request)
        assert torch.allclose(values(sequences, found, request).double(), exact, rtol=step, atol=step / 8)
        tail = slice(shape.head_dim - shape.rope, None)
        fine = 2.0**-7 if shape.dtype == torch.bfloat16 else 2.0**-19
        assert torch.allclose(values(sequences, found, request)[:, tail].double(), exact[:, tail], rtol=fine, atol=fine)


INDEX_SHAPES = {
    "fp4": INDEX,
    "ocp": replace(INDEX, index="fp8", dialect=OCP),
    "fnuz": replace(INDEX, index="fp8", dialect=FNUZ),
    "plain": replace(INDEX, index="plain"),
    "flash fp4": replace(INDEX, head_dim=128, rope=64),
    "flash fnuz": replace(INDEX, head_dim=128, rope=64, index="fp8", dialect=FNUZ),
}


@pytest.mark.parametrize("name", INDEX_SHAPES)
def test_index_keys(name: str, device: str) -> None:
    """The bytes of the reference, partial rows and what is not written included; and keys as float64 has them, after
    Hadamard, within half a step of the largest of their block."""
    shape = INDEX_SHAPES[name]
    sequences = Sequences(shape, [9, 4])
    found, expected = sequences.caches(device), sequences.caches("cpu")
    for pieces in in_pieces(sequences, [6]):
        sequences.step(compress_index_keys, found, pieces, padding=[(-1, -1)])
        sequences.step(reference.compress_index_keys, expected, pieces, padding=[(-1, -1)])
    differ = all_bits(found) != all_bits(expected)
    # without the rounding before the codes, some in a hundred of them are others
    assert int(differ.sum()) <= 1 + shape.head_dim // 128
    for request in range(2):
        exact = sequences.exact(request)
        if shape.index != "plain":
            exact = hadamard(exact)
        step = {"fp4": 2.0**-2, "fp8": 2.0**-4, "plain": 2.0**-7}[shape.index or ""]
        error = (values(sequences, found, request).double() - exact).abs()
        blocks = exact.unflatten(-1, (-1, 32)).abs().amax(-1, keepdim=True).expand(-1, -1, 32).flatten(1)
        assert bool((error <= step * blocks).all())


# -------- one window, one entry


@pytest.mark.parametrize("shape", [CSA, HCA, INDEX], ids=["csa", "hca", "index fp4"])
def test_prefill_chunks_decode_and_verify_are_one(shape: Shape, device: str) -> None:
    """One prefill; chunks; a token at a time; and verify rows of which the drafts are wrong and rejected: the same
    bytes of every entry."""
    sequences = Sequences(shape, [130])
    end, start = (18, 0) if shape.ratio == 4 else (130, 124)
    prefix = [[Piece(0, 0, start)]] if start else []
    rows = {p: min(4, end - p) for p in range(start, end)}
    steps = {
        "prefill": [[Piece(0, 0, end)]],
        "chunks": [[Piece(0, 0, 7)], [Piece(0, 7, 6)], [Piece(0, 13, end - 13)]],
        "decode": prefix + [[Piece(0, p, 1)] for p in range(start, end)],
        "verify, all wrong": prefix + [[Piece(0, p, rows[p], rows[p] - 1)] for p in range(start, end)],
        "verify, one right": prefix + [[Piece(0, p, rows[p], max(rows[p] - 2, 0))] for p in range(start, end, 2)],
    }
    operation = compress_index_keys if shape.index else compress_insert
    entries = {}
    for name, history in steps.items():
        caches = sequences.caches(device)
        for pieces in history:
            sequences.step(operation, caches, pieces)
        entries[name] = entry_bits(caches, 0, end // shape.ratio)
    assert all(torch.equal(bits, entries["prefill"]) for bits in entries.values())


@given(data=st.data())
@settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.generate], derandomize=True)
def test_any_mix_of_steps(data: st.DataObject) -> None:
    """Requests side by side, each step any number of tokens of any of them in any order, some tokens wrong drafts:
    caches as one prefill leaves them."""
    if torch.cuda.is_available():
        pytest.skip("kernels of this process are compiled")
    lengths = data.draw(st.lists(st.integers(1, 14), min_size=1, max_size=3), label="lengths")
    sequences = Sequences(replace(CSA, head_dim=16, rope=8, block=8), lengths, seed=sum(lengths))
    caches, whole = sequences.caches("cpu"), sequences.caches("cpu")
    done = [0] * len(lengths)
    while done != lengths:
        pieces = []
        unfinished = [request for request, length in enumerate(lengths) if done[request] < length]
        for request in data.draw(st.lists(st.sampled_from(unfinished), min_size=1, unique=True), label="requests"):
            count = data.draw(st.integers(1, min(9, lengths[request] - done[request])), label="count")
            drafts = data.draw(st.integers(0, count - 1), label="drafts")
            pieces.append(Piece(request, done[request], count, drafts))
            done[request] += count - drafts
        sequences.step(compress_insert, caches, pieces, padding=[(-1, 0)])
    sequences.step(compress_insert, whole, [Piece(r, 0, length) for r, length in enumerate(lengths)])
    assert torch.equal(all_bits(caches), all_bits(whole))


def test_neighbours_with_positions_that_fit(device: str) -> None:
    """The row before a request's first is another request's, at just the position before; and a padded row of the same
    request."""
    sequences = Sequences(CSA, [8, 8])
    caches, alone = sequences.caches(device), sequences.caches(device)
    for target in (caches, alone):
        sequences.step(compress_insert, target, [Piece(1, 0, 7)])
    sequences.step(compress_insert, caches, [Piece(0, 0, 7), Piece(1, 7, 1)])
    sequences.step(compress_insert, alone, [Piece(1, 7, 1)])
    assert torch.equal(entry_bits(caches, 1, 2), entry_bits(alone, 1, 2))
    padded = sequences.caches(device)
    sequences.step(compress_insert, padded, [Piece(1, 0, 7)])
    wrong = torch.full((1, 2 * CSA.width), torch.nan)
    sequences.call(compress_insert, padded, torch.cat([wrong, sequences.rows[1][7:8]]), [(-1, 1), (7, 1)])
    assert torch.equal(entry_bits(padded, 1, 2), entry_bits(alone, 1, 2))


# -------- what is not there is not touched


def test_padded_rows_touch_nothing(device: str) -> None:
    sequences = Sequences(CSA, [8])
    caches = sequences.caches(device)
    before = all_bits(caches)
    sequences.step(compress_insert, caches, [], padding=[(-1, -1), (3, -1), (-1, 0), (7, -(2**31)), (-(2**31), 0)])
    assert torch.equal(all_bits(caches), before)


@pytest.mark.parametrize("operation", [compress_insert, reference.compress_insert], ids=["kernel", "reference"])
def test_a_token_without_a_page(operation: object, device: str) -> None:
    """Its row is not stored, and the entries of both its windows are NaN rather than pooled from fewer tokens."""
    sequences = Sequences(replace(CSA, page_tokens=4), [16])
    caches, whole = (sequences.caches(device) for _ in range(2))
    sequences.step(compress_insert, whole, [Piece(0, 0, 16)])
    for missing in (-1, 10**6):
        caches = sequences.caches(device)
        caches.partial.table[0, 1] = missing
        sequences.step(operation, caches, [Piece(0, 0, 16)])  # type: ignore[arg-type]
        found = values(sequences, caches, 0)
        assert bool(found[1:3].isnan().all())
        kept = torch.tensor([0, 3])
        assert torch.equal(found[kept], values(sequences, whole, 0)[kept])
        assert int((~caches.partial.rows.data.isnan()).any(1).sum()) == 12


@pytest.mark.parametrize("operation", [compress_insert, reference.compress_insert], ids=["kernel", "reference"])
def test_an_entry_without_a_page_is_not_stored(operation: object, device: str) -> None:
    """A page outside the cache; a table that is too narrow."""
    sequences = Sequences(replace(CSA, page_tokens=4), [12])
    caches = sequences.caches(device)
    caches.entries.table[0, 1] = -3
    narrow = replace(caches, entries=caches.entries._replace(table=caches.entries.table[:, :2].contiguous()))
    sequences.step(operation, narrow, [Piece(0, 0, 12)])  # type: ignore[arg-type]
    assert int((~caches.entries.rows.data.isnan()).any(1).sum()) == 1
    assert bool(torch.isfinite(values(sequences, caches, 0)[0]).all())


def test_nan_stays_in_its_windows(device: str) -> None:
    sequences, clean = Sequences(CSA, [20, 4]), Sequences(CSA, [20, 4])
    sequences.rows[0][9, 2] = torch.nan  # left half: the window after its own
    sequences.rows[0][13, -1] = torch.nan  # gate of the right half: its own window
    found, expected = sequences.caches(device), clean.caches(device)
    for source, caches in ((sequences, found), (clean, expected)):
        source.step(compress_insert, caches, [Piece(0, 0, 20), Piece(1, 0, 4)])
    assert values(sequences, found, 0).isnan().any(1).tolist() == [False, False, False, True, False]
    for entry in (0, 1, 2, 4):
        assert torch.equal(entry_bits(found, 0, 5)[entry], entry_bits(expected, 0, 5)[entry])
    assert torch.equal(entry_bits(found, 1, 1), entry_bits(expected, 1, 1))


@pytest.mark.parametrize("shape", [INDEX, replace(INDEX, index="fp8", dialect=FNUZ)], ids=["fp4", "fnuz"])
def test_a_nan_key_says_so(shape: Shape, device: str) -> None:
    sequences = Sequences(shape, [12])
    sequences.rows[0][5, shape.width - 1] = torch.nan  # right half: its own window
    caches = sequences.caches(device)
    sequences.step(compress_index_keys, caches, [Piece(0, 0, 12)])
    assert values(sequences, caches, 0).isnan().all(1).tolist() == [False, True, False]


def far_rows(shape: Shape, device: str) -> tuple[torch.Tensor, int]:
    """Partial rows beyond 2^31 elements (8 GiB), and their last page."""
    pages = 2**31 // (shape.page_tokens * 2 * shape.width) + 3
    size = pages * shape.page_tokens * 2 * shape.width
    if device == "cuda":
        data = torch.zeros(size, device=device)
    else:  # address space of which a page is touched
        data = torch.frombuffer(mmap.mmap(-1, 4 * size), dtype=torch.float32)
    return data.view(-1, 2 * shape.width), pages - 1


def test_offsets_beyond_32_bits(device: str) -> None:
    """Partial rows on a page beyond 2^31 elements: stored there and read back from there."""
    sequences = Sequences(replace(FLASH, page_tokens=8), [8])
    near = sequences.caches(device)
    data, page = far_rows(sequences.shape, device)
    table = torch.full_like(near.partial.table, page)
    far = Caches(PagedRows(KvRows(data), table, 8), sequences.caches(device).entries)
    for caches in (near, far):
        sequences.step(compress_insert, caches, [Piece(0, 0, 6)])
        sequences.step(compress_insert, caches, [Piece(0, 6, 2)])
    assert torch.equal(entry_bits(far, 0, 2), entry_bits(near, 0, 2))
    assert bool(data[page * 8 : page * 8 + 8].any(1).all())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"values_gates": torch.zeros(1, 128)[:, :64]}, "values_gates: torch.float32 of 64, expected .* of 128"),
        ({"values_gates": torch.zeros(1, 128).bfloat16()}, "values_gates: torch.bfloat16 of 128"),
        ({"ape": torch.zeros(8, 64)}, r"ape: torch.float32 \[8, 64\], expected float32 \[4, 64\]"),
        ({"block": 6}, "blocks of 6; .* powers of two that divide the 16 of 32 dims that are not rotated"),
        ({"norm_weight": torch.ones(48)}, "norm_weight: 48 dims; the kernel takes a power of two"),
    ],
)
def test_what_is_not_served_is_refused(change: dict[str, object], complaint: str, device: str) -> None:
    sequences = Sequences(CSA, [4])
    caches = sequences.caches(device)
    moved = {name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in change.items()}
    with pytest.raises(ValueError, match=complaint):
        sequences.call(compress_insert, caches, sequences.rows[0][:1], [(0, 0)], **moved)


def test_caches_that_do_not_fit_are_refused(device: str) -> None:
    sequences = Sequences(replace(CSA, dialect=OCP), [4])
    caches = sequences.caches(device)
    row = (sequences.rows[0][:1], [(0, 0)])
    with pytest.raises(ValueError, match="8 tokens and 3 entries, expected 2 at ratio 4"):
        sequences.call(compress_insert, caches, *row, entries=caches.entries._replace(per_page=3))
    with pytest.raises(ValueError, match=r"partial rows: torch\.float64 of 128"):
        rows = KvRows(caches.partial.rows.data.double())
        sequences.call(compress_insert, caches, *row, partial=caches.partial._replace(rows=rows))
    with pytest.raises(ValueError, match="16 quantised dims in blocks of 16, the rotation leaves 16 and blocks of 8"):
        sequences.call(compress_insert, caches, *row, block=8)


def test_index_keys_that_do_not_fit_are_refused(device: str) -> None:
    sequences = Sequences(INDEX, [4])
    caches = sequences.caches(device)
    row = (sequences.rows[0][:1], [(0, 0)])
    with pytest.raises(ValueError, match=r"FP4 rows of 32 dims hold 16 bytes and one scale a block of 32"):
        rows = caches.entries.rows._replace(data=caches.entries.rows.data[:, :8])
        sequences.call(compress_index_keys, caches, *row, keys=caches.entries._replace(rows=rows))
    with pytest.raises(ValueError, match=r"indexer keys: torch\.float16; plain rows are bfloat16 or float32"):
        rows = KvRows(torch.zeros(8, 32, dtype=torch.float16, device=device))
        sequences.call(compress_index_keys, caches, *row, keys=caches.entries._replace(rows=rows))


def test_no_rows(device: str) -> None:
    sequences = Sequences(CSA, [4])
    caches = sequences.caches(device)
    before = all_bits(caches)
    sequences.step(compress_insert, caches, [])
    assert torch.equal(all_bits(caches), before)


# -------- real shapes


@pytest.mark.parametrize("ratio", [4, 128])
def test_the_reference_at_full_shape(ratio: int) -> None:
    """8192 tokens: the bound that the kernel is held to on a GPU."""
    sequences = Sequences(replace(FLASH, ratio=ratio), [8192])
    caches = sequences.caches("cpu")
    sequences.step(reference.compress_insert, caches, [Piece(0, 0, 8192)])
    assert_rounded(values(sequences, caches, 0), sequences.exact(0), sequences.shape.rope)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("dialect", [None, OCP])
@pytest.mark.parametrize("ratio", [4, 128])
def test_full_shape(ratio: int, dialect: Fp8Dialect | None) -> None:
    """8192 tokens of a V4-Flash layer: against float64, in every batch size, and 50 times over."""
    sequences = Sequences(replace(FLASH, ratio=ratio, dialect=dialect), [8192])
    whole = sequences.caches("cuda")
    sequences.step(compress_insert, whole, [Piece(0, 0, 8192)])
    entries = 8192 // ratio
    exact = sequences.exact(0)
    assert_rounded(values(sequences, whole, 0), exact, sequences.shape.rope)
    bits = entry_bits(whole, 0, entries)
    for _ in range(50):
        sequences.step(compress_insert, whole, [Piece(0, 0, 8192)])
        assert torch.equal(entry_bits(whole, 0, entries), bits)
    for rows in (1, 2, 3, 4, 8, 64, 256, 4096):
        caches = sequences.caches("cuda")
        start = 8192 - max(rows, 256)
        sequences.step(compress_insert, caches, [Piece(0, 0, start)])
        for first in range(start, 8192, rows):
            sequences.step(compress_insert, caches, [Piece(0, first, rows)])
        assert torch.equal(entry_bits(caches, 0, entries), bits)
