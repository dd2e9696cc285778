"""Indexer scores of each query over the paged keys, read in place: plain, FP8 or FP4.

    I[t, j] = sum_h w[t, h] * relu(q[t, h] . k[j])

Formula and contract: ops/reference/paged_indexer.py. One program scores a tile of keys for a few consecutive queries.
Keys are loaded and decoded once for each run of queries of one request, but every query has a product of its own,
[keys, D] x [D, heads], and a sum over heads of its own: neither the other queries nor their number show in its bits, so
prefill, decode and verify rows are one kernel. Keys are the rows of the product. FP8 and FP4 values are exact in
bfloat16 and multiplied as such; an FP8 row's scale, a power of two, multiplies the finished score.

Invalid input: a padded row (position or request < 0) is not scored and reads no table. An entry whose page lies outside
the cache scores -inf; nothing is read out of bounds, and nothing is written beyond what a query sees.

Floor: 2 H D FLOP a query and entry; bytes of the distinct keys once (2 D bfloat16, D + 1 FP8, D / 2 + D / 32 FP4), and
4 bytes a score out.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.ops.index_rows import check_index_rows, is_fp4
from outrider.ops.reference import paged_indexer as reference
from outrider.ops.reference.paged_attention import PagedRows, Queries
from outrider.ops.triton.arithmetic import add_product, as_bfloat16, product
from outrider.ops.triton.fp4_bytes import decode_e2m1
from outrider.ops.triton.fp8_bytes import decode_e4m3, decode_e8m0
from outrider.ops.triton.key_rows import FORMATS
from outrider.ops.triton.launching import cdiv, has_kernels, indexer_tiles_for, launch, next_power_of_2
from outrider.ops.triton.paged_attention import page_slots
from outrider.platforms.tiles import IndexerTiles

MOST_QUERIES = 16
"""Queries a program scores at most. How many it does changes speed alone."""


@triton.jit
def _load_fp4(codes, scales, exists, D: tl.constexpr):  # type: ignore[no-untyped-def]
    """Pointers [N] to a row's bytes and scales -> its even and its odd dims, each [N, D / 2] bfloat16."""
    N: tl.constexpr = codes.shape[0]
    BLOCKS: tl.constexpr = D // 32
    blocks = tl.arange(0, BLOCKS)
    places = blocks[:, None] * 16 + tl.arange(0, 16)[None, :]
    packed = tl.load(codes[:, None, None] + places[None, :, :], mask=exists[:, None, None], other=0).to(tl.int32)
    scale = decode_e8m0(tl.load(scales[:, None] + blocks[None, :], mask=exists[:, None], other=127))[:, :, None]
    even = as_bfloat16(decode_e2m1(packed & 0xF) * scale)
    odd = as_bfloat16(decode_e2m1(packed >> 4) * scale)
    return tl.reshape(even, (N, D // 2)), tl.reshape(odd, (N, D // 2))


@triton.jit
def _head_sum(scores, weights):  # type: ignore[no-untyped-def]
    """scores [N, H], weights [H] -> sum of w_h relu(s_h), [N]. A comparison, not a maximum: NaN stays."""
    return tl.sum(tl.where(scores < 0.0, 0.0, scores) * weights[None, :], 1)


@triton.jit(
    do_not_specialize=["num_queries", "query_tile", "more_than", "num_slots", "table_width", "width", "key_tiles"]
)
def indexer_logits_kernel(  # type: ignore[no-untyped-def]
    q,
    head_weights,
    positions,
    requests,
    index_rows,
    index_codes,
    index_scales,
    entry_table,
    logits,
    num_heads,
    num_queries,
    query_tile,
    more_than,
    num_slots,
    row_stride,
    scale_stride,
    table_width,
    width,
    key_tiles,
    RATIO: tl.constexpr,
    PER_PAGE: tl.constexpr,
    FORMAT: tl.constexpr,
    D: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MOST_QUERIES: tl.constexpr,
):
    """Grid: (query tiles * key_tiles,). FORMAT "plain", "ocp", "fnuz" or "fp4"; BLOCK_H >= num_heads."""
    first = tl.program_id(0) % key_tiles * BLOCK_N
    first_query = tl.program_id(0) // key_tiles * query_tile
    count = tl.minimum(num_queries - first_query, query_tile)

    lanes = tl.arange(0, MOST_QUERIES)
    here = lanes < count
    owners = tl.load(requests + first_query + lanes, mask=here, other=-1).to(tl.int32)
    seen = tl.load(positions + first_query + lanes, mask=here, other=-1).to(tl.int32)
    seen = tl.where((owners >= 0) & (seen >= 0), (seen + 1) // RATIO, 0)
    seen = tl.where(seen > more_than, tl.minimum(seen, width), 0)
    if tl.max(seen, 0) <= first:
        return

    heads = tl.arange(0, BLOCK_H)
    live_heads = heads < num_heads
    index = first + tl.arange(0, BLOCK_N)
    start = 0
    while start < count:
        # the run of queries from `start` on that are of one request
        request = tl.sum(tl.where(lanes == start, owners, 0), 0)
        end = tl.min(tl.where((lanes > start) & (owners != request), lanes, count), 0)
        longest = tl.max(tl.where((lanes >= start) & (lanes < end), seen, 0), 0)
        if longest > first:
            slot, exists = page_slots(
                entry_table + request.to(tl.int64) * table_width, index, index < longest, table_width, num_slots,
                PER_PAGE,
            )  # fmt: skip
            if FORMAT == "plain":
                dims = tl.arange(0, D)
                rows = index_rows + slot * row_stride
                keys = tl.load(rows[:, None] + dims[None, :], mask=exists[:, None], other=0.0)
            elif FORMAT == "fp4":
                keys, odd_keys = _load_fp4(
                    index_codes + slot * row_stride, index_scales + slot * scale_stride, exists, D
                )
            else:
                dims = tl.arange(0, D)
                codes = index_codes + slot * row_stride
                code = tl.load(codes[:, None] + dims[None, :], mask=exists[:, None], other=0)
                keys = as_bfloat16(decode_e4m3(code, FORMAT == "fnuz"))
                row_scale = decode_e8m0(tl.load(index_scales + slot * scale_stride, mask=exists, other=127))
            for i in range(start, end):
                visible = tl.sum(tl.where(lanes == i, seen, 0), 0)
                if visible > first:
                    query = (first_query + i).to(tl.int64)
                    weights = tl.load(head_weights + query * num_heads + heads, mask=live_heads, other=0.0)
                    q_rows = q + (query * num_heads + heads)[None, :] * D
                    if FORMAT == "fp4":
                        evens = 2 * tl.arange(0, D // 2)[:, None]
                        q_even = tl.load(q_rows + evens, mask=live_heads[None, :], other=0.0)
                        q_odd = tl.load(q_rows + evens + 1, mask=live_heads[None, :], other=0.0)
                        score = _head_sum(add_product(odd_keys, q_odd, product(keys, q_even)), weights)
                    else:
                        q_tile = tl.load(q_rows + tl.arange(0, D)[:, None], mask=live_heads[None, :], other=0.0)
                        score = _head_sum(product(keys, q_tile), weights)
                        if FORMAT != "plain":
                            score = score * row_scale
                    score = tl.where(exists, score, float("-inf"))
                    tl.store(logits + query * width + index, score, mask=index < visible)
        start = end


def launch_logits(
    logits: Tensor,
    q: Tensor,
    head_weights: Tensor,
    queries: Queries,
    keys: PagedRows,
    ratio: int,
    more_than: int,
    tiles: IndexerTiles,
    query_tile: int,
) -> None:
    """The launch alone, for arguments known to fit: q and head_weights contiguous. Writes logits [T, width]."""
    count, heads, head_dim = q.shape
    width = logits.shape[1]
    rows = keys.rows
    scales = rows.data if rows.scales is None else rows.scales  # never loaded if there are none
    key_tiles = cdiv(width, tiles.key_tile)
    launch(
        indexer_logits_kernel,
        (cdiv(count, query_tile) * key_tiles,),
        q,
        head_weights,
        queries.positions,
        queries.requests,
        rows.data,
        rows.data,
        scales,
        keys.table,
        logits,
        heads,
        count,
        query_tile,
        more_than,
        rows.data.shape[0],
        rows.data.stride(0),
        scales.stride(0),
        keys.table.shape[1],
        width,
        key_tiles,
        RATIO=ratio,
        PER_PAGE=keys.per_page,
        FORMAT="fp4" if is_fp4(rows) else FORMATS[rows.dialect],
        D=head_dim,
        BLOCK_H=max(16, next_power_of_2(heads)),
        BLOCK_N=tiles.key_tile,
        MOST_QUERIES=MOST_QUERIES,
        num_warps=tiles.num_warps,
        num_stages=1,
    )


def check_logits(q: Tensor, head_weights: Tensor, keys: PagedRows) -> None:
    """ValueError, naming the tensor, for a combination that the kernel does not serve."""
    head_dim = q.shape[-1]
    if head_dim < 32 or head_dim & (head_dim - 1):
        raise ValueError(f"indexer queries: head dim {head_dim}; the kernels take a power of two from 32 on")
    check_index_rows(keys.rows, head_dim)
    expected = torch.bfloat16 if keys.rows.scales is not None else keys.rows.data.dtype
    if q.dtype != expected or expected not in (torch.bfloat16, torch.float32):
        raise ValueError(
            f"indexer queries: {q.dtype} with keys of {keys.rows.data.dtype}; FP8 and FP4 keys are served with "
            "bfloat16 queries, plain ones with queries of their own dtype, bfloat16 or float32"
        )
    if head_weights.dtype != torch.float32 or head_weights.shape != q.shape[:2]:
        raise ValueError(
            f"head_weights: {list(head_weights.shape)} {head_weights.dtype}, expected {list(q.shape[:2])} float32"
        )


def queries_a_program(count: int, requests: int) -> int:
    """Consecutive queries that share a program: as many as a request has on average, since those share keys."""
    return max(1, min(MOST_QUERIES, count // max(requests, 1)))


def indexer_logits(
    q: Tensor,
    head_weights: Tensor,
    queries: Queries,
    keys: PagedRows,
    ratio: int,
    width: int,
    more_than: int = 0,
    *,
    tiles: IndexerTiles | None = None,
    query_tile: int | None = None,
) -> Tensor:
    """As the reference. `tiles` and `query_tile` are the architecture's and the batch's unless a test or benchmark asks
    for others."""
    if not has_kernels(q):
        return reference.indexer_logits(q, head_weights, queries, keys, ratio, width, more_than)
    check_logits(q, head_weights, keys)
    logits = torch.empty(q.shape[0], width, device=q.device)
    if logits.numel():
        launch_logits(
            logits,
            q.contiguous(),
            head_weights.contiguous(),
            queries,
            keys,
            ratio,
            more_than,
            indexer_tiles_for(q.device) if tiles is None else tiles,
            queries_a_program(q.shape[0], keys.table.shape[0]) if query_tile is None else query_tile,
        )
    return logits
