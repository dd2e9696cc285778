"""The topk largest scores of each query, exactly, by radix: four digits of eight bits, no sort.

Scores become 32-bit integers that order as they do: -inf lowest, then numbers (-0 as 0), NaN highest. A pass counts the
values of one digit among the scores that agree with the digits found so far; the largest value that still leaves topk
scores at or above it is the threshold's next digit. After four passes the threshold is the topk-th score itself. All
scores above it are taken, and of those equal to it the first ones, in order of index: which is the order of the output.

Two forms, one result, since all of it is counting. Short rows, or many: one program a row. Long rows of a few queries:
a row is cut into parts, programs of a part add their counts to the row's, and each derives the threshold from them.

Invalid input: padded rows and queries that see more than the row holds get -1 throughout and read no score.
Floor: bytes of the visible scores once, 4 topk out. (Each pass and the output read them again, from L2.)
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.ops.reference import paged_indexer as reference
from outrider.ops.reference.paged_attention import Queries
from outrider.ops.triton.launching import cdiv, has_kernels, launch, next_power_of_2

TILE = 2048  # scores at a time
PART = 8192  # scores of a part of a row, where rows are cut
_MANY_QUERIES = 256  # a program a row fills the GPU from here on
WARPS = 8

_DIGITS = tl.constexpr(4)
_BINS = tl.constexpr(256)
_LOWEST = tl.constexpr(-(1 << 31))


@triton.jit
def sortable(x):  # type: ignore[no-untyped-def]
    """float32 -> int32 that orders as the scores do."""
    bits = x.to(tl.int32, bitcast=True)
    bits = tl.where(x == 0.0, 0, bits)
    bits = tl.where(x != x, 0x7FFFFFFF, bits)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _load_sortable(row, index, visible):  # type: ignore[no-untyped-def]
    return sortable(tl.load(row + index, mask=index < visible, other=float("-inf")))


@triton.jit
def _count_digit(key, inside, prefix, DIGIT: tl.constexpr):  # type: ignore[no-untyped-def]
    """[256] counts of a digit among keys [N] whose higher digits, as one unsigned number, are `prefix`."""
    unsigned = key ^ _LOWEST
    if DIGIT > 0:
        inside = inside & (((unsigned >> (32 - 8 * DIGIT)) & ((1 << (8 * DIGIT)) - 1)) == prefix)
    return tl.histogram((unsigned >> (24 - 8 * DIGIT)) & 0xFF, _BINS, mask=inside)


@triton.jit
def _next_digit(counts, prefix, wanted):  # type: ignore[no-untyped-def]
    """(prefix with the threshold's next digit, how many are still wanted among the keys that agree with it)."""
    bins = tl.arange(0, _BINS)
    at_least = tl.sum(counts, 0) - tl.cumsum(counts, 0) + counts
    digit = tl.max(tl.where(at_least >= wanted, bins, 0), 0)
    above = tl.sum(tl.where(bins > digit, counts, 0), 0)
    return (prefix << 8) | digit, wanted - above


@triton.jit
def _visible(positions, requests, query, RATIO: tl.constexpr):  # type: ignore[no-untyped-def]
    """Entries that a query sees; 0 for a padded row."""
    position = tl.load(positions + query).to(tl.int32)
    request = tl.load(requests + query).to(tl.int32)
    return tl.where((position >= 0) & (request >= 0), (position + 1) // RATIO, 0)


@triton.jit
def _part(positions, requests, width, RATIO: tl.constexpr, TOPK: tl.constexpr, PART: tl.constexpr):  # type: ignore[no-untyped-def]
    """This program's query (int64) and its part [begin, end) of the scores, empty where there is nothing to select.
    Grid: (parts, queries)."""
    query = tl.program_id(1).to(tl.int64)
    visible = _visible(positions, requests, query, RATIO)
    begin = tl.program_id(0) * PART
    selects = (visible > TOPK) & (visible <= width)
    return query, begin, tl.where(selects, tl.minimum(begin + PART, visible), 0)


@triton.jit
def _store_all(out, visible, TOPK: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """0, 1, ..., visible - 1, then -1."""
    for start in tl.static_range(0, TOPK, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        tl.store(out + column, tl.where(column < visible, column, -1), mask=column < TOPK)


@triton.jit
def _store_chosen(  # type: ignore[no-untyped-def]
    out, row, begin, end, threshold, wanted, above, equal, TILE: tl.constexpr
):
    """Indices of the chosen scores in [begin, end), behind `above` larger ones and `equal` equal ones before them, of
    which the first `wanted` are chosen."""
    above_here = 0
    equal_here = 0
    for start in range(begin, end, TILE):
        index = start + tl.arange(0, TILE)
        key = _load_sortable(row, index, end)
        is_above = (index < end) & (key > threshold)
        is_equal = (index < end) & (key == threshold)
        larger, same = is_above.to(tl.int32), is_equal.to(tl.int32)
        place_above = above + above_here + tl.cumsum(larger, 0)
        place_equal = equal + equal_here + tl.cumsum(same, 0)
        chosen = is_above | (is_equal & (place_equal <= wanted))
        tl.store(out + place_above + tl.minimum(place_equal, wanted) - 1, index, mask=chosen)
        above_here += tl.sum(larger, 0)
        equal_here += tl.sum(same, 0)


@triton.jit(do_not_specialize=["width"])
def select_row_kernel(  # type: ignore[no-untyped-def]
    logits,
    positions,
    requests,
    chosen_indices,
    width,
    RATIO: tl.constexpr,
    TOPK: tl.constexpr,
    COLUMNS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Grid: (queries,). A row is one program's."""
    query = tl.program_id(0).to(tl.int64)
    visible = _visible(positions, requests, query, RATIO)
    out = chosen_indices + query * TOPK
    if (visible <= TOPK) | (visible > width):
        _store_all(out, tl.where(visible > TOPK, 0, visible), TOPK, COLUMNS)
        return
    row = logits + query * width
    prefix = 0
    wanted = TOPK
    for digit in tl.static_range(_DIGITS):
        counts = tl.zeros((_BINS,), tl.int32)
        for start in range(0, visible, TILE):
            index = start + tl.arange(0, TILE)
            counts += _count_digit(_load_sortable(row, index, visible), index < visible, prefix, digit)
        prefix, wanted = _next_digit(counts, prefix, wanted)
    _store_chosen(out, row, 0, visible, prefix ^ _LOWEST, wanted, 0, 0, TILE)


@triton.jit
def _threshold(counts, DIGITS: tl.constexpr, TOPK: tl.constexpr):  # type: ignore[no-untyped-def]
    """(prefix, wanted) after so many digits, from the row's counts [4, 256]."""
    prefix = 0
    wanted = TOPK
    for digit in tl.static_range(DIGITS):
        found = tl.load(counts + digit * _BINS + tl.arange(0, _BINS))
        prefix, wanted = _next_digit(found, prefix, wanted)
    return prefix, wanted


@triton.jit(do_not_specialize=["width"])
def count_digit_kernel(  # type: ignore[no-untyped-def]
    logits,
    positions,
    requests,
    digit_counts,
    width,
    RATIO: tl.constexpr,
    TOPK: tl.constexpr,
    DIGIT: tl.constexpr,
    PART: tl.constexpr,
    TILE: tl.constexpr,
):
    """Grid: (parts, queries). Adds a part's counts of one digit to digit_counts [T, 4, 256], which was 0."""
    query, begin, end = _part(positions, requests, width, RATIO, TOPK, PART)
    if begin >= end:
        return
    row = logits + query * width
    prefix, _ = _threshold(digit_counts + query * _DIGITS * _BINS, DIGIT, TOPK)
    counts = tl.zeros((_BINS,), tl.int32)
    for start in range(begin, end, TILE):
        index = start + tl.arange(0, TILE)
        counts += _count_digit(_load_sortable(row, index, end), index < end, prefix, DIGIT)
    places = digit_counts + (query * _DIGITS + DIGIT) * _BINS + tl.arange(0, _BINS)
    tl.atomic_add(places, counts, mask=counts > 0, sem="relaxed")


@triton.jit(do_not_specialize=["width", "parts"])
def count_chosen_kernel(  # type: ignore[no-untyped-def]
    logits,
    positions,
    requests,
    digit_counts,
    part_counts,
    width,
    parts,
    RATIO: tl.constexpr,
    TOPK: tl.constexpr,
    PART: tl.constexpr,
    TILE: tl.constexpr,
):
    """Grid: (parts, queries). Leaves how many scores of a part are above and equal to the threshold: [T, 2, parts]."""
    query, begin, end = _part(positions, requests, width, RATIO, TOPK, PART)
    if begin >= end:
        return
    row = logits + query * width
    prefix, _ = _threshold(digit_counts + query * _DIGITS * _BINS, _DIGITS, TOPK)
    threshold = prefix ^ _LOWEST
    above = 0
    equal = 0
    for start in range(begin, end, TILE):
        index = start + tl.arange(0, TILE)
        key = _load_sortable(row, index, end)
        above += tl.sum(((index < end) & (key > threshold)).to(tl.int32), 0)
        equal += tl.sum(((index < end) & (key == threshold)).to(tl.int32), 0)
    place = part_counts + query * 2 * parts + tl.program_id(0)
    tl.store(place, above)
    tl.store(place + parts, equal)


@triton.jit
def _sum_before(counts, part, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """counts[0] + ... + counts[part - 1]."""
    total = 0
    for start in range(0, part, BLOCK):
        index = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(counts + index, mask=index < part, other=0), 0)
    return total


@triton.jit(do_not_specialize=["width", "parts"])
def store_chosen_kernel(  # type: ignore[no-untyped-def]
    logits,
    positions,
    requests,
    digit_counts,
    part_counts,
    chosen_indices,
    width,
    parts,
    RATIO: tl.constexpr,
    TOPK: tl.constexpr,
    COLUMNS: tl.constexpr,
    PART: tl.constexpr,
    TILE: tl.constexpr,
):
    """Grid: (parts, queries)."""
    query, begin, end = _part(positions, requests, width, RATIO, TOPK, PART)
    part = tl.program_id(0)
    out = chosen_indices + query * TOPK
    if begin >= end:
        if part == 0:  # nothing to select in the whole row
            visible = _visible(positions, requests, query, RATIO)
            _store_all(out, tl.where(visible > TOPK, 0, visible), TOPK, COLUMNS)
        return
    prefix, wanted = _threshold(digit_counts + query * _DIGITS * _BINS, _DIGITS, TOPK)
    before = part_counts + query * 2 * parts
    above = _sum_before(before, part, 64)
    equal = _sum_before(before + parts, part, 64)
    _store_chosen(out, logits + query * width, begin, end, prefix ^ _LOWEST, wanted, above, equal, TILE)


def top_visible_entries(
    logits: Tensor,
    queries: Queries,
    ratio: int,
    topk: int,
    *,
    part: int | None = None,
    tile: int = TILE,
) -> Tensor:
    """As the reference. `part`: scores of a part (a multiple of `tile`), 0 for a program a row; `part` and `tile` are
    chosen here unless a test or benchmark asks for others."""
    if not has_kernels(logits):
        return reference.top_visible_entries(logits, queries, ratio, topk)
    if logits.dtype != torch.float32 or logits.ndim != 2:
        raise ValueError(f"logits: {list(logits.shape)} {logits.dtype}, expected [T, N] float32")
    if topk < 1:
        raise ValueError(f"topk {topk}, expected at least 1")
    logits = logits.contiguous()
    count, width = logits.shape
    chosen = torch.empty(count, topk, dtype=torch.int32, device=logits.device)
    if count == 0:
        return chosen
    if part is None:
        part = PART if width > PART and count < _MANY_QUERIES else 0
    common = (logits, queries.positions, queries.requests)
    columns = {"COLUMNS": min(1024, next_power_of_2(topk))}
    shape = {"RATIO": ratio, "TOPK": topk, "TILE": tile, "num_warps": WARPS}
    if part == 0:
        launch(select_row_kernel, (count,), *common, chosen, width, **columns, **shape)
        return chosen
    if part % tile:
        raise ValueError(f"part of {part} scores is not a multiple of the tile {tile}")
    parts = cdiv(max(width, 1), part)
    grid = (parts, count)
    shape["PART"] = part
    digit_counts = torch.zeros(count, _DIGITS.value, _BINS.value, dtype=torch.int32, device=logits.device)
    part_counts = torch.empty(count, 2, parts, dtype=torch.int32, device=logits.device)
    for digit in range(_DIGITS.value):
        launch(count_digit_kernel, grid, *common, digit_counts, width, DIGIT=digit, **shape)
    launch(count_chosen_kernel, grid, *common, digit_counts, part_counts, width, parts, **shape)
    launch(store_chosen_kernel, grid, *common, digit_counts, part_counts, chosen, width, parts, **columns, **shape)
    return chosen
