"""Grouped products of the experts, weights decoded in registers.

    gate_up:  h[n] = share[n] * silu(min(w1 x, L)) * clamp(w3 x, -L, L)  rounded to bfloat16; then as FP8, ROUND_TRIP
    down:     y[n] = w2 h[n]                                              float32, stored at the pair's number

n is a place in the expert-sorted order of pairs. One program takes 128 rows of an expert's weights (of gate and of up)
and one block of its pairs (`expert_routing.ExpertOrder`). Weight rows are the rows of the product, tokens its columns:
a token's sum runs over K in steps of K_TILE, in each over the codes of a word, whoever else is in its block and however
large the block is. 128 rows of the hidden values are a block of FP8, so that rounding needs nobody else.

Invalid input: a block that is not needed has expert -1 and does nothing; lanes beyond an expert's pairs read nothing.
Floor: bytes of every expert that a token chose, once a block; 6 d I FLOP a pair.
"""

from __future__ import annotations

import triton
import triton.language as tl

from outrider.ops.triton.arithmetic import add_product, as_bfloat16, as_float32
from outrider.ops.triton.expert_codes import UNSCALE, code_multiplier, fp4_operands, fp8_operands, spread
from outrider.ops.triton.stage_inputs import round_trip_blocks, staged_column

ROWS = 128
_ROWS = tl.constexpr(ROWS)


@triton.jit
def _load_inputs(x, first, exists, K: tl.constexpr, K_TILE: tl.constexpr, FORMAT: tl.constexpr):  # type: ignore[no-untyped-def]
    """x: pointers [N] to staged rows -> an operand [K_TILE / PARTS, N] for each code of a word, the last twice."""
    PARTS: tl.constexpr = 4 if FORMAT == "fp4" else 2
    tile = x[None, :] + (first // PARTS + tl.arange(0, K_TILE // PARTS))[:, None]
    x0 = tl.load(tile, mask=exists[None, :], other=0.0)
    x1 = tl.load(tile + K // PARTS, mask=exists[None, :], other=0.0)
    if FORMAT == "fp4":
        x2 = tl.load(tile + 2 * (K // PARTS), mask=exists[None, :], other=0.0)
        x3 = tl.load(tile + 3 * (K // PARTS), mask=exists[None, :], other=0.0)
        return x0, x1, x2, x3
    else:
        return x0, x1, x1, x1


@triton.jit
def _load_scales(scales, first, row, K: tl.constexpr, K_TILE: tl.constexpr, FORMAT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Scales of rows `row` .. + 127, for K_TILE columns: [128, K_TILE / 128] words of four FP4, [K_TILE / 128] FP8."""
    blocks = first // 128 + tl.arange(0, K_TILE // 128)
    if FORMAT == "fp4":
        return tl.load(scales + (row + tl.arange(0, _ROWS))[:, None] * (K // 128) + blocks[None, :])
    else:
        return tl.load(scales + row // 128 * (K // 128) + blocks)


@triton.jit
def _add_tile(  # type: ignore[no-untyped-def]
    total, codes, scale, row, first, x0, x1, x2, x3, K: tl.constexpr, K_TILE: tl.constexpr, FORMAT: tl.constexpr,
    PTX: tl.constexpr,
):  # fmt: skip
    """total [128, N] + weights [rows, first .. first + K_TILE] @ inputs, 2^40 times too small."""
    PARTS: tl.constexpr = 4 if FORMAT == "fp4" else 2
    rows = row + tl.arange(0, _ROWS)
    columns = first // PARTS + tl.arange(0, K_TILE // PARTS)
    words = tl.load(codes + rows[:, None] * (K // PARTS) + columns[None, :])
    if FORMAT == "fp4":
        # four scales a word: single bytes would be too narrow for an asynchronous copy
        scale = (spread(scale, 4) >> (8 * (tl.arange(0, K_TILE // 32) % 4))[None, :]) & 0xFF
        w0, w1, w2, w3 = fp4_operands(words, spread(code_multiplier(scale, FORMAT, PTX), 8), PTX)
        total = add_product(w0, x0, total)
        total = add_product(w1, x1, total)
        total = add_product(w2, x2, total)
        return add_product(w3, x3, total)
    else:
        every_row = tl.broadcast_to(code_multiplier(scale, FORMAT, PTX)[None, :], (_ROWS, K_TILE // 128))
        w0, w1 = fp8_operands(words, spread(every_row, 64), PTX)
        return add_product(w1, x1, add_product(w0, x0, total))


@triton.jit
def expert_gate_up_kernel(  # type: ignore[no-untyped-def]
    staged, codes, scales, shares, pairs, offsets, block_experts, block_starts, hidden, limit,
    K: tl.constexpr, WIDTH: tl.constexpr, TOPK: tl.constexpr, FORMAT: tl.constexpr, ROUND_TRIP: tl.constexpr,
    K_TILE: tl.constexpr, TOKEN_TILE: tl.constexpr, PTX: tl.constexpr,
):  # fmt: skip
    """Grid: (blocks * WIDTH / 128,). codes: int16 [E, 2 WIDTH, K / PARTS]; hidden: [pairs, WIDTH], staged.

    scales: int32 [E, 2 WIDTH, K / 128] for FP4, else uint8 [E, 2 WIDTH / 128, K / 128].
    """
    PARTS: tl.constexpr = 4 if FORMAT == "fp4" else 2
    SCALES: tl.constexpr = 2 * WIDTH * (K // 128) if FORMAT == "fp4" else 2 * WIDTH // 128 * (K // 128)
    block = tl.program_id(0) // (WIDTH // _ROWS)
    row = tl.program_id(0) % (WIDTH // _ROWS) * _ROWS
    expert = tl.load(block_experts + block).to(tl.int64)
    if expert < 0:
        return
    place = tl.load(block_starts + block) + tl.arange(0, TOKEN_TILE)
    exists = place < tl.load(offsets + expert + 1)
    pair = tl.load(pairs + place, mask=exists, other=0)
    x = staged + (pair // TOPK).to(tl.int64) * K
    codes += expert * (2 * WIDTH * (K // PARTS))
    scales += expert * SCALES
    gate = tl.zeros((_ROWS, TOKEN_TILE), tl.float32)
    up = tl.zeros((_ROWS, TOKEN_TILE), tl.float32)
    if FORMAT == "fp4":
        for first in range(0, K, K_TILE):
            x0, x1, x2, x3 = _load_inputs(x, first, exists, K, K_TILE, FORMAT)
            gate_scale = _load_scales(scales, first, row, K, K_TILE, FORMAT)
            gate = _add_tile(gate, codes, gate_scale, row, first, x0, x1, x2, x3, K, K_TILE, FORMAT, PTX)
            up_scale = _load_scales(scales, first, WIDTH + row, K, K_TILE, FORMAT)
            up = _add_tile(up, codes, up_scale, WIDTH + row, first, x0, x1, x2, x3, K, K_TILE, FORMAT, PTX)
    else:
        # too few bytes for an asynchronous copy: each step loads the next one's
        gate_scale = _load_scales(scales, 0, row, K, K_TILE, FORMAT)
        up_scale = _load_scales(scales, 0, WIDTH + row, K, K_TILE, FORMAT)
        for first in range(0, K, K_TILE):
            following = tl.minimum(first + K_TILE, K - K_TILE)
            next_gate_scale = _load_scales(scales, following, row, K, K_TILE, FORMAT)
            next_up_scale = _load_scales(scales, following, WIDTH + row, K, K_TILE, FORMAT)
            x0, x1, x2, x3 = _load_inputs(x, first, exists, K, K_TILE, FORMAT)
            gate = _add_tile(gate, codes, gate_scale, row, first, x0, x1, x2, x3, K, K_TILE, FORMAT, PTX)
            up = _add_tile(up, codes, up_scale, WIDTH + row, first, x0, x1, x2, x3, K, K_TILE, FORMAT, PTX)
            gate_scale, up_scale = next_gate_scale, next_up_scale

    gate, up = gate * UNSCALE, up * UNSCALE
    # comparisons, not minimum and maximum: NaN stays
    gate = tl.where(gate > limit, limit, gate)
    up = tl.where(up > limit, limit, tl.where(up < -limit, -limit, up))
    share = tl.load(shares + pair, mask=exists, other=0.0)
    value = as_bfloat16(gate / (1.0 + tl.exp(-gate)) * up * share[None, :])
    if ROUND_TRIP:
        value = as_bfloat16(round_trip_blocks(as_float32(value), 0))
    column = staged_column(row + tl.arange(0, _ROWS), WIDTH, PARTS)
    tl.store(hidden + place.to(tl.int64)[None, :] * WIDTH + column[:, None], value, mask=exists[None, :])


@triton.jit
def expert_down_kernel(  # type: ignore[no-untyped-def]
    hidden, codes, scales, pairs, offsets, block_experts, block_starts, partial,
    D: tl.constexpr, K: tl.constexpr, FORMAT: tl.constexpr, K_TILE: tl.constexpr, TOKEN_TILE: tl.constexpr,
    PTX: tl.constexpr,
):  # fmt: skip
    """Grid: (blocks * D / 128,). codes and scales as above, of D rows; partial: [pairs, D]."""
    PARTS: tl.constexpr = 4 if FORMAT == "fp4" else 2
    SCALES: tl.constexpr = D * (K // 128) if FORMAT == "fp4" else D // 128 * (K // 128)
    block = tl.program_id(0) // (D // _ROWS)
    row = tl.program_id(0) % (D // _ROWS) * _ROWS
    expert = tl.load(block_experts + block).to(tl.int64)
    if expert < 0:
        return
    place = tl.load(block_starts + block) + tl.arange(0, TOKEN_TILE)
    exists = place < tl.load(offsets + expert + 1)
    x = hidden + place.to(tl.int64) * K
    codes += expert * (D * (K // PARTS))
    scales += expert * SCALES
    total = tl.zeros((_ROWS, TOKEN_TILE), tl.float32)
    if FORMAT == "fp4":
        for first in range(0, K, K_TILE):
            x0, x1, x2, x3 = _load_inputs(x, first, exists, K, K_TILE, FORMAT)
            scale = _load_scales(scales, first, row, K, K_TILE, FORMAT)
            total = _add_tile(total, codes, scale, row, first, x0, x1, x2, x3, K, K_TILE, FORMAT, PTX)
    else:
        scale = _load_scales(scales, 0, row, K, K_TILE, FORMAT)
        for first in range(0, K, K_TILE):
            following = tl.minimum(first + K_TILE, K - K_TILE)
            next_scale = _load_scales(scales, following, row, K, K_TILE, FORMAT)
            x0, x1, x2, x3 = _load_inputs(x, first, exists, K, K_TILE, FORMAT)
            total = _add_tile(total, codes, scale, row, first, x0, x1, x2, x3, K, K_TILE, FORMAT, PTX)
            scale = next_scale
    pair = tl.load(pairs + place, mask=exists, other=0).to(tl.int64)
    rows = row + tl.arange(0, _ROWS)
    tl.store(partial + pair[None, :] * D + rows[:, None], total * UNSCALE, mask=exists[None, :])


@triton.jit
def combine_experts_kernel(  # type: ignore[no-untyped-def]
    partial, selected, shared, out, D: tl.constexpr, TOPK: tl.constexpr, SHARED: tl.constexpr, COLUMNS: tl.constexpr
):
    """out[t] = sum over a token's pairs, in their order, then the shared expert. Grid: (tokens, column tiles)."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < D
    total = tl.zeros((COLUMNS,), tl.float32)
    for i in tl.static_range(TOPK):
        pair = token * TOPK + i
        lives = tl.load(selected + pair) >= 0
        total += tl.load(partial + pair * D + column, mask=inside & lives, other=0.0)
    if SHARED:
        total += as_float32(tl.load(shared + token * D + column, mask=inside, other=0.0))
    if out.dtype.element_ty == tl.bfloat16:
        total = as_bfloat16(total)
    tl.store(out + token * D + column, total, mask=inside)
