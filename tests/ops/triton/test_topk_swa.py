"""combine_topk_swa_indices: the contract of spec 5.5, kernel against reference against a list written by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("triton")

from outrider.ops.reference import topk_swa as reference
from outrider.ops.triton import topk_swa

Batch = list[tuple[int, int]]  # (seq_len, query_len)


def arguments(
    batch: Batch, *, window: int, ratio: int, topk: int, device: str, first: int = 0, extra: int = 0, spare: int = 0
) -> dict[str, Any]:
    """A call on random top-k lists, a fifth of them out of range. `first`: query_start_loc[0]; `extra`: tokens gathered
    beyond need; `spare`: unused rows of a request's part of the buffer."""
    starts = [first]
    for _, query_len in batch:
        starts.append(starts[-1] + query_len)
    gather = [min(seq_len, query_len + window - 1 + extra) for seq_len, query_len in batch]
    n = max([0, *(seq_len // ratio for seq_len, _ in batch)]) if topk else 0
    generator = torch.Generator().manual_seed(1)
    low, high = -max(1, n // 8), max(1, n + n // 8)
    chosen = torch.randint(low, high, (starts[-1] - first, topk), dtype=torch.int32, generator=generator)
    return {
        "topk_indices": chosen.to(device),
        "query_start_loc": torch.tensor(starts, dtype=torch.int32),
        "seq_lens": torch.tensor([seq_len for seq_len, _ in batch], dtype=torch.int32),
        "gather_lens": torch.tensor(gather, dtype=torch.int32),
        "window_size": window,
        "compress_ratio": ratio,
        "topk": topk,
        "M": n + max([0, *gather]) + spare,
        "N": n,
    }


def agree(call: dict[str, Any]) -> tuple[Tensor, Tensor]:
    combined, lens = topk_swa.combine_topk_swa_indices(**call)
    expected, expected_lens = reference.combine_topk_swa_indices(**call)
    assert combined.dtype == lens.dtype == torch.int32
    assert torch.equal(combined.cpu(), expected.cpu())
    assert torch.equal(lens.cpu(), expected_lens.cpu())
    return expected.cpu(), expected_lens.cpu()


def test_a_row_written_by_hand(device: str) -> None:
    """Two requests of M = 20 rows, N = 3 entries each; request 1 holds positions 4 .. 13 in its window rows."""
    call = {
        "topk_indices": torch.tensor([[0, 9, 9], [2, -1, 9], [2, 3, 1]], dtype=torch.int32, device=device),
        "query_start_loc": torch.tensor([5, 6, 8]),
        "seq_lens": torch.tensor([3, 14]),
        "gather_lens": torch.tensor([3, 10]),
        "window_size": 4,
        "compress_ratio": 4,
        "topk": 3,
        "M": 20,
        "N": 3,
    }
    combined, lens = agree(call)
    assert combined.shape == (3, 128)
    assert lens.tolist() == [3, 7, 7]
    assert combined[0, :4].tolist() == [3, 4, 5, -1]  # no entry yet, positions 0 .. 2
    assert combined[1, :8].tolist() == [22, -1, -1, 28, 29, 30, 31, -1]  # -1 and 9 become -1 in place; 9 .. 12
    assert combined[2, :8].tolist() == [22, -1, 21, 29, 30, 31, 32, -1]
    assert bool((combined[:, 8:] == -1).all())


CASES: dict[str, tuple[Batch, dict[str, int]]] = {
    "chunked prefill": ([(300, 5), (129, 2), (128, 1)], {"window": 128, "ratio": 4, "topk": 64}),
    "empty requests": ([(0, 0), (40, 3), (17, 0), (9, 9), (0, 0)], {"window": 16, "ratio": 4, "topk": 8}),
    "first start not 0": ([(33, 4), (2, 2)], {"window": 16, "ratio": 4, "topk": 8, "first": 1000}),
    "window alone": ([(200, 3), (1, 1)], {"window": 128, "ratio": 1, "topk": 0}),
    "attends all": ([(700, 2), (127, 2), (128, 1)], {"window": 128, "ratio": 128, "topk": 5}),
    "top-k 512 to select": ([(2049, 3)], {"window": 128, "ratio": 4, "topk": 512}),
    "top-k 1024": ([(4100, 2)], {"window": 128, "ratio": 4, "topk": 1024}),
    "more gathered than needed": ([(90, 2), (50, 1)], {"window": 16, "ratio": 4, "topk": 12, "extra": 7, "spare": 3}),
    "many requests": ([(i + 1, 1) for i in range(70)], {"window": 8, "ratio": 4, "topk": 4}),
    "no query": ([(5, 0)], {"window": 8, "ratio": 4, "topk": 4}),
    "no request": ([], {"window": 8, "ratio": 4, "topk": 4}),
}


@pytest.mark.parametrize("name", CASES)
def test_kernel_equals_reference(name: str, device: str) -> None:
    batch, options = CASES[name]
    agree(arguments(batch, device=device, **options))


@settings(max_examples=25, phases=[Phase.explicit, Phase.generate])
@given(
    batch=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 6)).map(lambda x: (max(x), x[1])), max_size=6),
    window=st.sampled_from([1, 3, 16]),
    ratio=st.sampled_from([1, 4, 7]),
    topk=st.sampled_from([0, 1, 8, 60]),
    first=st.integers(0, 9),
)
def test_any_batch(batch: Batch, window: int, ratio: int, topk: int, first: int) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    agree(arguments(batch, window=window, ratio=ratio, topk=topk, first=first, device=device))


def test_columns_beyond_the_list_are_not_read(device: str) -> None:
    """A list narrower than topk, in the middle of a wider tensor whose other columns hold valid indices."""
    call = arguments([(40, 3)], window=16, ratio=4, topk=32, device=device)
    wide = torch.zeros(3, 64, dtype=torch.int32, device=device)
    wide[:, :10] = call["topk_indices"][:, :10]
    agree(call | {"topk_indices": wide[:, :10]})


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"M": 40}, "request 0: N = 10 entries and 31 window rows exceed M = 40"),
        ({"gather_lens": torch.tensor([17, 1])}, "request 0: gather_len 17, its queries read 18 window rows"),
        ({"M": 2**30}, "2 requests of M = 1073741824 rows do not fit int32"),
        ({"query_start_loc": torch.tensor([0, 3])}, "2 seq_lens need 3 query_start_loc"),
        ({"query_start_loc": torch.tensor([0, 3, 5])}, "query_start_loc spans 5 queries, topk_indices has 4 rows"),
        ({"query_start_loc": torch.tensor([0, 3, 2])}, "query_start_loc spans 2 queries"),
        ({"query_start_loc": torch.tensor([0, 5, 4])}, "request 1: -1 queries of a sequence of 1"),
        ({"seq_lens": torch.tensor([2, 1])}, "request 0: 3 queries of a sequence of 2"),
        ({"compress_ratio": 0}, "compress_ratio >= 1"),
        ({"compress_ratio": 128, "seq_lens": torch.tensor([1200, 1])}, "request 0: topk 8 would drop entries"),
        ({"topk": 9}, "topk_indices has 8 columns, its queries have 9 entries"),
        ({"topk_indices": torch.zeros(4, 8)}, "topk_indices: expected .* int32, found .* float32"),
    ],
)
@pytest.mark.parametrize("op", [reference.combine_topk_swa_indices, topk_swa.combine_topk_swa_indices])
def test_a_violated_contract_is_refused(op: Any, change: dict[str, Any], complaint: str) -> None:
    call = arguments([(40, 3), (1, 1)], window=16, ratio=4, topk=8, device="cpu", extra=13)
    assert op(**call)[0].shape == (4, 128)
    with pytest.raises(ValueError, match=complaint):
        op(**call | change)
