"""Joins each query's selected entries and its sliding window, in one pass that writes every column, the tail included.

Formula and contract: ops/reference/topk_swa.py (spec 5.5). Values of topk_indices outside [0, N) become -1 in place;
nothing outside the tensors is read, whatever they hold.

Floor: bytes of a row's live top-k columns in, 4 * width + 4 bytes out.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.ops.reference import topk_swa as reference
from outrider.ops.reference.topk_swa import check_combine, combined_width
from outrider.ops.triton.launching import cdiv, has_kernels, launch

ROWS = 4  # queries a program
_COLUMNS = 128


@triton.jit(
    do_not_specialize=["num_queries", "num_requests", "topk_width", "window_size", "compress_ratio", "topk", "M", "N"]
)
def combine_kernel(  # type: ignore[no-untyped-def]
    combined,
    lens,
    topk_indices,
    query_start_loc,
    seq_lens,
    gather_lens,
    num_queries,
    num_requests,
    topk_width,
    topk_stride,
    window_size,
    compress_ratio,
    topk,
    M,
    N,
    WIDTH: tl.constexpr,
    SEARCH_STEPS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Grid: (ceil(queries / ROWS),). SEARCH_STEPS >= log2(requests) + 1; WIDTH a multiple of COLUMNS."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = row < num_queries
    token = row + tl.load(query_start_loc)
    # the last request that starts at or before the token; those without a query are stepped over
    low = tl.zeros((ROWS,), tl.int32)
    high = low + num_requests
    for _ in tl.static_range(SEARCH_STEPS):
        middle = (low + high) // 2
        ended = tl.load(query_start_loc + middle + 1, mask=live & (low < high), other=0x7FFFFFFF) <= token
        low = tl.where(ended, middle + 1, low)
        high = tl.where(ended, high, middle)
    request = low
    end = tl.load(query_start_loc + request + 1, mask=live, other=0)
    seq_len = tl.load(seq_lens + request, mask=live, other=0)
    position = seq_len - end + token
    entries = tl.minimum((position + 1) // compress_ratio, topk)
    window = tl.minimum(position + 1, window_size)
    base = request * M
    gathered = tl.load(gather_lens + request, mask=live, other=0)
    first = base + N + position - window + 1 - (seq_len - gathered)
    tl.store(lens + row, entries + window, mask=live)
    row64 = row.to(tl.int64)
    for start in tl.static_range(0, WIDTH, COLUMNS):
        column = (start + tl.arange(0, COLUMNS))[None, :]
        is_entry = column < entries[:, None]
        entry = tl.load(
            topk_indices + row64[:, None] * topk_stride + column,
            mask=live[:, None] & is_entry & (column < topk_width),
            other=-1,
        )
        entry = tl.where((entry >= 0) & (entry < N), entry + base[:, None], -1)
        in_window = column - entries[:, None]
        slot = tl.where(in_window < window[:, None], first[:, None] + in_window, -1)
        tl.store(combined + row64[:, None] * WIDTH + column, tl.where(is_entry, entry, slot), mask=live[:, None])


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
    """As the reference. Lengths on the host are checked there and copied; lengths on the device cost one
    synchronisation each, which a graph capture refuses."""
    if not has_kernels(topk_indices):
        return reference.combine_topk_swa_indices(
            topk_indices, query_start_loc, seq_lens, gather_lens, window_size, compress_ratio, topk, M, N
        )
    starts, seqs, gathers = query_start_loc.tolist(), seq_lens.tolist(), gather_lens.tolist()
    check_combine(topk_indices, starts, seqs, gathers, window_size, compress_ratio, topk, M, N)
    device = topk_indices.device
    combined = torch.empty(topk_indices.shape[0], combined_width(topk, window_size), dtype=torch.int32, device=device)
    lens = torch.empty(topk_indices.shape[0], dtype=torch.int32, device=device)
    query_start_loc, seq_lens, gather_lens = (
        x.to(device, torch.int32, non_blocking=True) for x in (query_start_loc, seq_lens, gather_lens)
    )
    chosen = topk_indices.contiguous()
    launch_combine(
        combined, lens, chosen, query_start_loc, seq_lens, gather_lens, window_size, compress_ratio, topk, M, N
    )
    return combined, lens


def launch_combine(
    combined: Tensor,
    lens: Tensor,
    topk_indices: Tensor,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    gather_lens: Tensor,
    window_size: int,
    compress_ratio: int,
    topk: int,
    M: int,
    N: int,
) -> None:
    """The launch alone, for arguments known to satisfy the contract: every tensor int32 on the device."""
    queries = topk_indices.shape[0]
    if queries == 0:
        return
    launch(
        combine_kernel,
        (cdiv(queries, ROWS),),
        combined,
        lens,
        topk_indices,
        query_start_loc,
        seq_lens,
        gather_lens,
        queries,
        seq_lens.shape[0],
        topk_indices.shape[1],
        topk_indices.stride(0),
        window_size,
        compress_ratio,
        topk,
        M,
        N,
        WIDTH=combined.shape[1],
        SEARCH_STEPS=seq_lens.shape[0].bit_length(),
        ROWS=ROWS,
        COLUMNS=_COLUMNS,
        num_warps=4,
    )
