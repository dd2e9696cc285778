"""Joins each query's selected entries and its sliding window into one list of rows of a gathered buffer.

Request b owns rows [b M, (b + 1) M): N compressed entries first, then window rows, of which the first holds position
seq_lens[b] - gather_lens[b]. For the query at position p (spec 5.5):

    n = min((p + 1) // ratio, topk)          columns 0 .. n - 1: topk_indices + b M, or -1 in place where not in [0, N)
    m = min(p + 1, window)                   then m window rows, ascending; then -1 up to the width
    combined_lens = n + m
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

_ROW_MULTIPLE = 128
_HCA_RATIO = 128


def combined_width(topk: int, window_size: int) -> int:
    """Columns of a row: topk + window, rounded up to a multiple of 128."""
    return -(-(topk + window_size) // _ROW_MULTIPLE) * _ROW_MULTIPLE


def check_combine(
    topk_indices: Tensor,
    query_start_loc: Sequence[int],
    seq_lens: Sequence[int],
    gather_lens: Sequence[int],
    window_size: int,
    compress_ratio: int,
    topk: int,
    M: int,
    N: int,
) -> None:
    """Raises ValueError, naming the request, unless the contract of spec 5.5 holds. Lengths are host integers."""
    requests = len(seq_lens)
    if topk_indices.ndim != 2 or topk_indices.dtype != torch.int32:
        raise ValueError(f"topk_indices: expected [T, width] int32, found {_described(topk_indices)}")
    if len(query_start_loc) != requests + 1 or len(gather_lens) != requests:
        raise ValueError(
            f"{requests} seq_lens need {requests + 1} query_start_loc and {requests} gather_lens, found "
            f"{len(query_start_loc)} and {len(gather_lens)}"
        )
    if compress_ratio < 1 or window_size < 1 or topk < 0 or N < 0:
        raise ValueError(
            "expected compress_ratio >= 1 (a layer without entries: 1, with topk 0), window_size >= 1, topk >= 0 and "
            f"N >= 0, found {compress_ratio}, {window_size}, {topk} and {N}"
        )
    if requests * M >= 2**31:
        raise ValueError(f"{requests} requests of M = {M} rows do not fit int32 indices: gather fewer at a time")
    if query_start_loc[-1] - query_start_loc[0] != topk_indices.shape[0]:
        raise ValueError(
            f"query_start_loc spans {query_start_loc[-1] - query_start_loc[0]} queries, topk_indices has "
            f"{topk_indices.shape[0]} rows"
        )
    longest_list = 0
    for b, (start, end) in enumerate(pairwise(query_start_loc)):
        query_len, seq_len, gather_len = end - start, seq_lens[b], gather_lens[b]
        if not 0 <= query_len <= seq_len:
            raise ValueError(f"request {b}: {query_len} queries of a sequence of {seq_len} tokens")
        if N + gather_len > M:
            raise ValueError(f"request {b}: N = {N} entries and {gather_len} window rows exceed M = {M}")
        if query_len == 0:
            continue
        needed = min(seq_len, query_len + window_size - 1)
        if gather_len < needed:
            raise ValueError(f"request {b}: gather_len {gather_len}, its queries read {needed} window rows")
        if compress_ratio == _HCA_RATIO and topk < seq_len // compress_ratio:
            raise ValueError(
                f"request {b}: topk {topk} would drop entries of a layer that attends all {seq_len // compress_ratio}"
            )
        longest_list = max(longest_list, min(seq_len // compress_ratio, topk))
    if topk_indices.shape[1] < longest_list:
        raise ValueError(f"topk_indices has {topk_indices.shape[1]} columns, its queries have {longest_list} entries")


def combine_topk_swa_indices(
    topk_indices: Tensor,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    gather_lens: Tensor,
    window_size: int,
    compress_ratio: int,
    topk: int,
    M: int,
    N: int,
) -> tuple[Tensor, Tensor]:
    """(combined_indices [T, round_up(topk + window_size, 128)], combined_lens [T]), int32, as described above.

    topk_indices: [T, width] int32, request-local; query_start_loc: [B + 1], its first value need not be 0; seq_lens and
    gather_lens: [B]. A layer without entries passes compress_ratio 1 and topk 0, one that attends all of them a topk of
    at least max(seq_lens) // 128. Raises ValueError where the contract is violated.
    """
    starts, seqs, gathers = query_start_loc.tolist(), seq_lens.tolist(), gather_lens.tolist()
    check_combine(topk_indices, starts, seqs, gathers, window_size, compress_ratio, topk, M, N)
    device = topk_indices.device
    combined = torch.full((topk_indices.shape[0], combined_width(topk, window_size)), -1, dtype=torch.int32)
    lens = torch.zeros(topk_indices.shape[0], dtype=torch.int32)
    chosen = topk_indices.cpu()
    for b, seq_len in enumerate(seqs):
        query_len = starts[b + 1] - starts[b]
        for i in range(query_len):
            row, p = starts[b] - starts[0] + i, seq_len - query_len + i
            n, m = min((p + 1) // compress_ratio, topk), min(p + 1, window_size)
            entries = chosen[row, :n]
            combined[row, :n] = torch.where((entries >= 0) & (entries < N), entries + b * M, -1)
            first = b * M + N + (p - m + 1) - (seq_len - gathers[b])
            combined[row, n : n + m] = torch.arange(first, first + m, dtype=torch.int32)
            lens[row] = n + m
    return combined.to(device), lens.to(device)


def _described(x: Tensor) -> str:
    return f"{list(x.shape)} {str(x.dtype).removeprefix('torch.')}"
