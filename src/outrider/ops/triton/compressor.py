"""Compressor: the partial row of every token stored, and the windows that close pooled, normed, roped and inserted.

Formula: ops/reference/compressor.py. One launch, one program a token. A program stores its token's row [a | z]; if the
token closes a window, it pools the window's rows: those of tokens in this batch from the projections (other programs
may not have stored them yet), earlier ones from the cache. Both are the same float32 numbers, and the pooling reads
them in one order and one tile, so an entry has the same bits whether its window closes in prefill, decode or verify.
The indexer's compressor is the same kernel with Hadamard and FP4 or FP8 at its end.

Invalid input: a padded row (position or request below 0) reads no table and stores nothing; a row whose page lies
outside the cache is not stored. A window with a token whose page lies outside the cache, or with a gate that is NaN,
gives an entry of NaN; in FP8 and FP4 rows a block that is not finite is NaN.

Floor: rows in and out, 16 c D bytes a token (c = 2 with overlap, else 1); rows of earlier steps that a window needs,
8 D bytes each; the entries out.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.ops.reference import compressor as reference
from outrider.ops.reference.paged_attention import PagedRows, Queries
from outrider.ops.reference.rope import Rotation
from outrider.ops.triton.arithmetic import as_float32, cast_like
from outrider.ops.triton.entry_rows import entry_format, index_key_format, store_entry
from outrider.ops.triton.hadamard import hadamard
from outrider.ops.triton.key_rows import key_arguments
from outrider.ops.triton.launching import has_kernels, launch
from outrider.ops.triton.paged_attention import page_slots

WINDOW_TILE = 8  # rows pooled at a time, at most; decides the bits of an entry
_LANE_DIMS = 128  # a warp loads as many dims of a row


def warps_for(head_dim: int) -> int:
    """Warps of a program: a lane then holds whole columns of a tile, and sums over rows need no other lane."""
    return max(1, min(head_dim // _LANE_DIMS, 8))


@triton.jit
def pool_window(  # type: ignore[no-untyped-def]
    values_gates,
    ape,
    positions,
    requests,
    partial,
    table,
    token,
    position,
    request,
    input_stride,
    partial_slots,
    partial_stride,
    table_width,
    D: tl.constexpr,
    RATIO: tl.constexpr,
    OVERLAP: tl.constexpr,
    PAGE_TOKENS: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """The window that this token closes -> [D] float32. `table`: of the token's request."""
    HALVES: tl.constexpr = 2 if OVERLAP else 1
    SPAN: tl.constexpr = HALVES * RATIO
    dims = tl.arange(0, D)[None, :]
    top = tl.full((D,), float("-inf"), tl.float32)
    total = tl.zeros((D,), tl.float32)
    acc = tl.zeros((D,), tl.float32)
    for start in range(0, SPAN, BLOCK_N):
        index = start + tl.arange(0, BLOCK_N)
        source = position - (SPAN - 1) + index
        row = token - (SPAN - 1) + index
        slot, exists = page_slots(table, source, source >= 0, table_width, partial_slots, PAGE_TOKENS)
        # the row that far before this one is that token, unless it belongs to another request or to padding
        here = exists & (row >= 0)
        here = here & (tl.load(positions + row, mask=here, other=-1) == source)
        here = here & (tl.load(requests + row, mask=here, other=-1) == request)
        half = tl.where(index < RATIO, 0, D) if OVERLAP else index * 0
        rows = tl.where(here, values_gates + row * input_stride, partial + slot * partial_stride) + half
        a = tl.load(rows[:, None] + dims, mask=exists[:, None], other=0.0)
        z = tl.load(rows[:, None] + HALVES * D + dims, mask=exists[:, None], other=0.0)
        bias = ape + (index % RATIO) * (HALVES * D) + half
        z = tl.where(here[:, None], z + tl.load(bias[:, None] + dims, mask=here[:, None], other=0.0), z)
        absent = tl.where(source < 0, float("-inf"), float("nan"))
        z = tl.where(exists[:, None], z, absent[:, None])
        new_top = tl.maximum(top, tl.max(z, 0))
        decay = tl.exp(top - new_top)
        weights = tl.exp(z - new_top[None, :])
        total = total * decay + tl.sum(weights, 0)
        acc = acc * decay + tl.sum(weights * a, 0)
        top = new_top
    return acc / total


@triton.jit
def rotate_tail(x, cos, sin, D: tl.constexpr, ROPE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rope of the last ROPE dims of x [D] float32; cos, sin: pointers to the row's ROPE / 2 angles."""
    pair = tl.arange(0, D // 2) - (D - ROPE) // 2
    turns = pair >= 0
    c = tl.load(cos + pair, mask=turns, other=1.0)
    s = tl.load(sin + pair, mask=turns, other=0.0)
    a, b = tl.split(tl.reshape(x, (D // 2, 2)))
    turned = tl.join(tl.where(turns, a * c - b * s, a), tl.where(turns, b * c + a * s, b))
    return tl.reshape(turned, (D,))


@triton.jit(
    do_not_specialize=["partial_slots", "partial_table_width", "entry_slots", "entry_table_width"],
)
def compress_insert_kernel(  # type: ignore[no-untyped-def]
    values_gates,
    ape,
    norm_weight,
    positions,
    requests,
    cos,
    sin,
    partial,
    partial_table,
    values,
    codes,
    scales,
    entry_table,
    input_stride,
    partial_slots,
    partial_stride,
    partial_table_width,
    entry_slots,
    row_stride,
    scale_stride,
    entry_table_width,
    eps,
    RATIO: tl.constexpr,
    OVERLAP: tl.constexpr,
    PAGE_TOKENS: tl.constexpr,
    FORMAT: tl.constexpr,
    D: tl.constexpr,
    ROPE: tl.constexpr,
    CODED: tl.constexpr,
    QUANT_BLOCK: tl.constexpr,
    HADAMARD: tl.constexpr,
    LOG2_D: tl.constexpr,
    SCALE: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Grid: (tokens,). Strides in elements of the rows' (or bytes of the scales') tensor; SCALE: D^-0.5."""
    WIDTH: tl.constexpr = 2 * D if OVERLAP else D
    # from the last to the first: a program that pools is not the last to start
    token = (tl.num_programs(0) - 1 - tl.program_id(0)).to(tl.int64)
    position = tl.load(positions + token).to(tl.int32)
    request = tl.load(requests + token).to(tl.int64)
    if (position < 0) | (request < 0):
        return
    table = partial_table + request * partial_table_width
    slot, stored = page_slots(table, position, position >= 0, partial_table_width, partial_slots, PAGE_TOKENS)
    if stored:
        columns = tl.arange(0, WIDTH)
        row = values_gates + token * input_stride + columns
        own = partial + slot * partial_stride + columns
        tl.store(own, tl.load(row))
        tl.store(own + WIDTH, tl.load(row + WIDTH) + tl.load(ape + position % RATIO * WIDTH + columns))
    if (position + 1) % RATIO != 0:
        return
    entry_slot, kept = page_slots(
        entry_table + request * entry_table_width, position // RATIO, position >= 0,
        entry_table_width, entry_slots, PAGE_TOKENS // RATIO,
    )  # fmt: skip
    if not kept:
        return
    pooled = pool_window(
        values_gates, ape, positions, requests, partial, table, token, position, request,
        input_stride, partial_slots, partial_stride, partial_table_width, D, RATIO, OVERLAP, PAGE_TOKENS, BLOCK_N,
    )  # fmt: skip
    dtype: tl.constexpr = values.dtype.element_ty
    dims = tl.arange(0, D)
    x = as_float32(cast_like(pooled, dtype))
    x = x * (1.0 / tl.sqrt(tl.sum(x * x, 0) / D + eps)) * as_float32(tl.load(norm_weight + dims))
    x = as_float32(cast_like(x, dtype))
    x = rotate_tail(x, cos + token * (ROPE // 2), sin + token * (ROPE // 2), D, ROPE)
    x = as_float32(cast_like(x, dtype))

    if HADAMARD:
        x = tl.reshape(hadamard(tl.reshape(x, (1, D)), 1, D, LOG2_D, SCALE), (D,))
        x = as_float32(cast_like(x, dtype))
    store_entry(
        x, values + entry_slot * row_stride, codes + entry_slot * row_stride * 2, scales + entry_slot * scale_stride,
        FORMAT, D, CODED, QUANT_BLOCK,
    )  # fmt: skip


def compress_insert(
    values_gates: Tensor,
    ape: Tensor,
    norm_weight: Tensor,
    queries: Queries,
    rotation: Rotation,
    partial: PagedRows,
    entries: PagedRows,
    ratio: int,
    eps: float,
    block: int,
    *,
    round_trip: bool,
) -> None:
    """As the reference."""
    if not has_kernels(values_gates):
        reference.compress_insert(
            values_gates, ape, norm_weight, queries, rotation, partial, entries, ratio, eps, block,
            round_trip=round_trip,
        )  # fmt: skip
        return
    constants = entry_format(
        entries.rows, norm_weight.shape[0], 2 * rotation.cos.shape[1], block, round_trip=round_trip
    )
    _launch(values_gates, ape, norm_weight, queries, rotation, partial, entries, ratio, eps, constants)


def compress_index_keys(
    values_gates: Tensor,
    ape: Tensor,
    norm_weight: Tensor,
    queries: Queries,
    rotation: Rotation,
    partial: PagedRows,
    keys: PagedRows,
    ratio: int,
    eps: float,
) -> None:
    """As the reference."""
    arguments = (values_gates, ape, norm_weight, queries, rotation, partial, keys, ratio, eps)
    if not has_kernels(values_gates):
        reference.compress_index_keys(*arguments)
        return
    _launch(*arguments, index_key_format(keys.rows, norm_weight.shape[0], 2 * rotation.cos.shape[1]))


def _launch(
    values_gates: Tensor,
    ape: Tensor,
    norm_weight: Tensor,
    queries: Queries,
    rotation: Rotation,
    partial: PagedRows,
    entries: PagedRows,
    ratio: int,
    eps: float,
    constants: dict[str, object],
) -> None:
    head_dim = norm_weight.shape[0]
    overlap = ape.shape[1] != head_dim
    _check(values_gates, ape, head_dim, partial, entries, ratio, overlap=overlap)
    rows = key_arguments(entries.rows)
    tokens = values_gates.shape[0]
    if tokens == 0:
        return
    launch(
        compress_insert_kernel,
        (tokens,),
        values_gates,
        ape.contiguous(),
        norm_weight,
        queries.positions,
        queries.requests,
        rotation.cos.contiguous(),
        rotation.sin.contiguous(),
        partial.rows.data,
        partial.table,
        rows.values,
        rows.codes,
        rows.scales,
        entries.table,
        values_gates.stride(0),
        partial.rows.data.shape[0],
        partial.rows.data.stride(0),
        partial.table.shape[1],
        rows.slots,
        rows.row_stride,
        rows.scale_stride,
        entries.table.shape[1],
        eps,
        num_warps=warps_for(head_dim),
        **kernel_constants(head_dim, ratio, partial.per_page, overlap=overlap),
        **constants,
    )


def kernel_constants(head_dim: int, ratio: int, page_tokens: int, *, overlap: bool) -> dict[str, object]:
    """Constants of the windows; `entry_rows` has those of what is written."""
    log2_dim = head_dim.bit_length() - 1
    windows = {"RATIO": ratio, "OVERLAP": overlap, "PAGE_TOKENS": page_tokens, "BLOCK_N": WINDOW_TILE}
    return windows | {"LOG2_D": log2_dim, "SCALE": head_dim**-0.5}


def _check(
    values_gates: Tensor,
    ape: Tensor,
    head_dim: int,
    partial: PagedRows,
    entries: PagedRows,
    ratio: int,
    *,
    overlap: bool,
) -> None:
    width = (4 if overlap else 2) * head_dim
    for name, x in (("values_gates", values_gates), ("partial rows", partial.rows.data)):
        if x.dtype != torch.float32 or x.shape[1] != width or x.stride(1) != 1:
            raise ValueError(f"{name}: {x.dtype} of {x.shape[1]}, expected contiguous rows of float32 of {width}")
    if ape.dtype != torch.float32 or ape.shape != (ratio, width // 2):
        raise ValueError(f"ape: {ape.dtype} {list(ape.shape)}, expected float32 [{ratio}, {width // 2}]")
    span = 2 * ratio if overlap else ratio
    if span % WINDOW_TILE:
        raise ValueError(f"windows of {span} tokens; the kernel pools multiples of {WINDOW_TILE}")
    if entries.per_page * ratio != partial.per_page:
        raise ValueError(
            f"a page holds {partial.per_page} tokens and {entries.per_page} entries, expected "
            f"{partial.per_page // ratio} at ratio {ratio}"
        )
