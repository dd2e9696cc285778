"""Exact top-k by radix: sets, ties, order, and what counts as large, against torch's stable sort."""

from __future__ import annotations

import mmap
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("triton")

from outrider.ops.reference import paged_indexer as reference
from outrider.ops.reference.paged_attention import Queries
from outrider.ops.triton.radix_select import PART, top_visible_entries

INF, NAN = float("inf"), float("nan")
FORMS = {"a program a row": {"part": 0, "tile": 64}, "parts": {"part": 64, "tile": 64}}


def queries(visible: list[int], device: str, ratio: int = 4) -> Queries:
    """Queries that see so many entries; -1: a padded row."""
    positions = [n * ratio + ratio - 2 if n >= 0 else -1 for n in visible]
    return Queries(
        torch.tensor(positions, dtype=torch.int32, device=device),
        torch.tensor([min(n, 0) for n in visible], dtype=torch.int32, device=device),
    )


def agree(logits: Tensor, visible: list[int], topk: int, device: str, **options: Any) -> Tensor:
    """Columns that are not visible are set to NaN, the largest there is."""
    unseen = torch.arange(logits.shape[1]) >= torch.tensor(visible)[:, None]
    logits = logits.masked_fill(unseen, NAN)
    rows = queries(visible, device)
    found = top_visible_entries(logits.to(device), rows, 4, topk, **options).cpu()
    expected = reference.top_visible_entries(logits, Queries(rows.positions.cpu(), rows.requests.cpu()), 4, topk)
    assert found.dtype == torch.int32
    assert torch.equal(found, expected)
    return found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("topk", [1, 8, 100])
def test_random_rows(form: str, topk: int, device: str) -> None:
    """Every relation of length, topk, tile and part; padded rows between them."""
    visible = [130, 0, -1, topk - 1, topk, topk + 1, 128, -1]
    logits = torch.randn(len(visible), 130, generator=torch.Generator().manual_seed(topk))
    found = agree(logits, visible, topk, device, **FORMS[form])
    assert found[1].tolist() == found[2].tolist() == [-1] * topk
    assert found[4].tolist() == list(range(topk))


def test_a_row_written_by_hand(device: str) -> None:
    """relu and negative weights make zeros of both signs: one score. Of the four the first two are chosen."""
    row = torch.tensor([[-1.0, 0.0, -0.0, 5.0, 0.0, -2.0, -0.0, 7.0]])
    for options in FORMS.values():
        assert agree(row, [8], 4, device, **options).tolist() == [[1, 2, 3, 7]]


@pytest.mark.parametrize("form", FORMS)
def test_equal_scores_go_to_the_lowest_index(form: str, device: str) -> None:
    """32 equal scores, choose 8; then a few values, so that the cut falls among equals in any tile or part."""
    options = FORMS[form]
    assert agree(torch.zeros(1, 32), [32], 8, device, **options).tolist() == [list(range(8))]
    generator = torch.Generator().manual_seed(3)
    values = torch.tensor([-INF, -2.5, -0.0, 0.0, 1e-45, 3.0, 3.0000002, INF])
    logits = values[torch.randint(8, (4, 140), generator=generator)]
    agree(logits, [140, 65, 64, 33], 32, device, **options)


@pytest.mark.parametrize("form", FORMS)
def test_nan_is_the_largest_and_minus_infinity_the_smallest(form: str, device: str) -> None:
    row = torch.full((1, 100), -INF)
    row[0, [9, 70]] = torch.tensor([NAN, -3.0])
    row[0, 40] = torch.tensor([0xFFC00001 - (1 << 32)], dtype=torch.int32).view(torch.float32)[0]  # NaN, sign set
    assert agree(row, [100], 4, device, **FORMS[form]).tolist() == [[0, 9, 40, 70]]
    row[0, 3] = INF
    assert agree(row, [100], 3, device, **FORMS[form]).tolist() == [[3, 9, 40]]


@pytest.mark.parametrize("form", FORMS)
def test_scores_that_differ_in_one_digit(form: str, device: str) -> None:
    """The cut is decided by the first, second, third or last eight bits, with either sign."""
    for shift in (0, 8, 16, 23):
        order = torch.randperm(200, generator=torch.Generator().manual_seed(shift))
        bits = 0x3F000000 + (order.to(torch.int32) << shift if shift < 23 else (order.to(torch.int32) % 100) << 23 >> 1)
        row = bits.view(torch.float32)[None]
        row = torch.where(torch.arange(200) % 2 == 0, row, -row) if shift % 16 else row
        agree(row, [200], 70, device, **FORMS[form])


@pytest.mark.parametrize("form", FORMS)
def test_a_query_that_sees_more_than_the_row_holds_selects_nothing(form: str, device: str) -> None:
    rows = queries([101, 100], device)
    found = top_visible_entries(torch.randn(2, 100).to(device), rows, 4, 8, **FORMS[form])
    assert found[0].tolist() == [-1] * 8 and int(found[1].min()) >= 0


@pytest.mark.parametrize(("topk", "width"), [(512, 2 * PART + 100), (1024, 1500)])
def test_full_shapes_with_the_tiles_that_ship(topk: int, width: int, device: str) -> None:
    """V4-Flash beyond a part (so three parts) and V4-Pro within one; scores of the indexer have many zeros."""
    logits = torch.randn(2, width, generator=torch.Generator().manual_seed(5)).clamp_min(0.9)
    agree(logits, [width, topk + 1], topk, device)


def test_offsets_beyond_32_bits(device: str) -> None:
    """The third row of a table begins beyond 2^31 scores."""
    shape = (3, 2**30 + 16)
    if device == "cuda":
        logits = torch.zeros(shape, device=device)
    else:  # address space of which few pages are touched
        logits = torch.frombuffer(mmap.mmap(-1, 4 * shape[0] * shape[1]), dtype=torch.float32).view(shape)
    logits[2, :100] = torch.arange(100.0, device=device)
    for options in ({"part": 0}, {"part": 1 << 30}):
        found = top_visible_entries(logits, queries([0, 0, 100], device), 4, 8, tile=128, **options)
        assert found[2].tolist() == list(range(92, 100))


@settings(max_examples=20, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(data=st.data())
def test_any_row(data: st.DataObject) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    scores = st.one_of(st.sampled_from([0.0, -0.0, 1.0, -INF, INF, NAN]), st.floats(width=32, allow_nan=True))
    row = data.draw(st.lists(scores, min_size=1, max_size=70))
    topk = data.draw(st.integers(1, len(row) + 2))
    visible = data.draw(st.integers(0, len(row)))
    for options in ({"part": 0, "tile": 16}, {"part": 16, "tile": 16}):
        agree(torch.tensor([row]), [visible], topk, device, **options)


def test_what_is_not_served_is_refused(device: str) -> None:
    rows = queries([20], device)
    logits = torch.zeros(1, 20, device=device)
    with pytest.raises(ValueError, match=r"logits: \[1, 20\] torch.float64, expected \[T, N\] float32"):
        top_visible_entries(logits.double(), rows, 4, 8)
    with pytest.raises(ValueError, match="topk 0, expected at least 1"):
        top_visible_entries(logits, rows, 4, 0)
    with pytest.raises(ValueError, match="part of 100 scores is not a multiple of the tile 64"):
        top_visible_entries(logits, rows, 4, 8, part=100, tile=64)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("topk", [512, 1024])
def test_a_million_tokens_50_times(topk: int) -> None:
    """262,144 entries, few distinct scores: against torch's stable sort, both forms, bit-equal every time."""
    logits = torch.randint(0, 4000, (4, 1 << 18), device="cuda").float() - 2000
    rows = queries([1 << 18, 100_000, topk + 1, -1], "cuda")
    first = top_visible_entries(logits, rows, 4, topk)
    order = torch.sort(logits[0], descending=True, stable=True).indices[:topk]
    assert torch.equal(first[0].long(), order.sort().values)
    for _ in range(50):
        assert torch.equal(top_visible_entries(logits, rows, 4, topk), first)
        assert torch.equal(top_visible_entries(logits, rows, 4, topk, part=0), first)
