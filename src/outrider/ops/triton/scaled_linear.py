"""Products with a weight in bfloat16 or block-scaled FP8: linear layers, grouped output projection, vocabulary head.

Formula and contract: ops/reference/scaled_linear.py. One program multiplies a tile of the weight's rows (the M side of
the matrix instruction, whose bits then do not depend on the tile of tokens) with a tile of tokens. K is read in blocks
of 128, ascending; each block's product starts from 0, is scaled, and is added in float32. K is cut into splits whose
number follows from the weight's shape alone, and the sums of the splits are added in order, whoever computed them:

- few tokens: a program a split; the last one of a tile to finish (it takes a ticket) adds what all have left
- many tokens: one program does all splits of its tile

so a row has the same bits for every number of tokens. FP8 weights meet bfloat16 rows as bfloat16, which is exact, and
FP8 rows as they are.

Floor: bytes of the weight once, for few tokens; 2 N K FLOP a token for many.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.ops.reference import scaled_linear as reference
from outrider.ops.reference.scaled_linear import TICKET_ROWS, Fp8Rows, LinearWeight, check_linear
from outrider.ops.triton.arithmetic import INTERPRETED, as_float32, cast_like
from outrider.ops.triton.fp8_bytes import decode_e4m3
from outrider.ops.triton.key_rows import FORMATS
from outrider.ops.triton.launching import cdiv, has_kernels, launch
from outrider.platforms.architectures import Fp8Dialect, gpu_architecture
from outrider.platforms.tiles import INTERPRETER_LINEAR_TILES, LinearTiles, linear_tiles

K_BLOCK = tl.constexpr(128)
_FEW_TOKENS = 64  # up to here a launch is bound by bytes of the weight, and has a program a split
_PROGRAMS = 256  # that a launch with few tokens should have, to keep every memory channel busy
_SPLIT_BLOCKS = 4  # blocks of K that a split has at least
_FP8 = {Fp8Dialect.OCP: torch.float8_e4m3fn, Fp8Dialect.FNUZ: torch.float8_e4m3fnuz}


def split_count(rows: int, width: int) -> int:
    """Splits of K for a weight [rows, width]: a power of two, from its shape alone."""
    splits = 1
    while splits * cdiv(rows, TICKET_ROWS) < _PROGRAMS and width >= 2 * splits * _SPLIT_BLOCKS * K_BLOCK.value:
        splits *= 2
    return splits


@triton.jit
def _product(w, x, W_FORMAT: tl.constexpr, X_FORMAT: tl.constexpr):  # type: ignore[no-untyped-def]
    """w [N, K] @ x [K, T] in float32."""
    if INTERPRETED:  # there, FP8 values are bytes
        w = as_float32(w) if W_FORMAT == "plain" else decode_e4m3(w, W_FORMAT == "fnuz")
        x = as_float32(x) if X_FORMAT == "plain" else decode_e4m3(x, X_FORMAT == "fnuz")
        return tl.dot(w, x, input_precision="ieee")
    elif X_FORMAT == "plain":
        return tl.dot(w.to(tl.bfloat16), x)
    else:
        return tl.dot(w, x)


@triton.jit
def split_sum(  # type: ignore[no-untyped-def]
    weight,
    weight_scales,
    x,
    x_scales,
    rows,
    live_rows,
    scale_row,
    tokens,
    live_tokens,
    width,
    x_stride,
    x_start,
    first_block,
    end_block,
    W_FORMAT: tl.constexpr,
    X_FORMAT: tl.constexpr,
):
    """[rows, tokens] float32: blocks first_block .. end_block of K. All rows have one row of scales."""
    columns = tl.arange(0, K_BLOCK)
    w_tile = weight + rows[:, None].to(tl.int64) * width + columns[None, :]
    x_tile = x + tokens[None, :].to(tl.int64) * x_stride + x_start + columns[:, None]
    if W_FORMAT != "plain":
        weight_scales += scale_row * (width // K_BLOCK)
    x_scales += tokens.to(tl.int64) * (x_stride // K_BLOCK) + x_start // K_BLOCK
    total = tl.zeros((rows.shape[0], tokens.shape[0]), tl.float32)
    for block in range(first_block, end_block):
        w = tl.load(w_tile + block * K_BLOCK, mask=live_rows[:, None], other=0.0)
        values = tl.load(x_tile + block * K_BLOCK, mask=live_tokens[None, :], other=0.0)
        part = _product(w, values, W_FORMAT, X_FORMAT)
        if W_FORMAT == "plain":
            total += part
        else:
            scale = tl.load(weight_scales + block)
            if X_FORMAT == "plain":
                total += part * scale
            else:
                row_scales = tl.load(x_scales + block, mask=live_tokens, other=0.0)
                total += part * (scale * row_scales)[None, :]
    return total


@triton.jit
def all_splits_sum(  # type: ignore[no-untyped-def]
    weight,
    weight_scales,
    x,
    x_scales,
    rows,
    live_rows,
    scale_row,
    tokens,
    live_tokens,
    width,
    x_stride,
    x_start,
    splits,
    SINGLE: tl.constexpr,
    W_FORMAT: tl.constexpr,
    X_FORMAT: tl.constexpr,
):
    """[rows, tokens] float32: each split's sum, added in order. SINGLE: there is one."""
    blocks = width // K_BLOCK
    if SINGLE:
        return split_sum(
            weight, weight_scales, x, x_scales, rows, live_rows, scale_row, tokens, live_tokens, width, x_stride,
            x_start, 0, blocks, W_FORMAT, X_FORMAT,
        )  # fmt: skip
    split_blocks = tl.cdiv(blocks, splits)
    total = tl.zeros((rows.shape[0], tokens.shape[0]), tl.float32)
    for split in range(splits):
        first = split * split_blocks
        total += split_sum(
            weight, weight_scales, x, x_scales, rows, live_rows, scale_row, tokens, live_tokens, width, x_stride,
            x_start, first, tl.minimum(first + split_blocks, blocks), W_FORMAT, X_FORMAT,
        )  # fmt: skip
    return total


@triton.jit(do_not_specialize=["num_tokens", "splits"])
def scaled_linear_kernel(  # type: ignore[no-untyped-def]
    out,
    partial,
    tickets,
    weight,
    weight_scales,
    x,
    x_scales,
    num_rows,
    num_tokens,
    width,
    x_stride,
    group_rows,
    splits,
    W_FORMAT: tl.constexpr,
    X_FORMAT: tl.constexpr,
    SHARED: tl.constexpr,
    SINGLE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    """Grid: (row tiles, token tiles or, if SHARED, splits). SHARED: a program a split, one tile of tokens."""
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    live_rows = rows < num_rows
    scale_row = tl.program_id(0) * BLOCK_N // K_BLOCK
    x_start = tl.program_id(0) * BLOCK_N // group_rows * width
    dtype: tl.constexpr = out.dtype.element_ty
    if SHARED:
        tokens = tl.arange(0, BLOCK_T)
        live_tokens = tokens < num_tokens
        live = live_rows[:, None] & live_tokens[None, :]
        split = tl.program_id(1)
        blocks = width // K_BLOCK
        split_blocks = tl.cdiv(blocks, splits)
        first = split * split_blocks
        own = split_sum(
            weight, weight_scales, x, x_scales, rows, live_rows, scale_row, tokens, live_tokens, width, x_stride,
            x_start, first, tl.minimum(first + split_blocks, blocks), W_FORMAT, X_FORMAT,
        )  # fmt: skip
        places = tokens[None, :] * num_rows + rows[:, None]
        tl.store(partial + split * num_tokens * num_rows + places, own, mask=live)
        tl.debug_barrier()  # all of this program's sums are stored before its ticket is taken
        ticket = tl.atomic_add(tickets + tl.program_id(0), 1, sem="acq_rel", scope="gpu")
        if ticket == splits - 1:
            total = tl.zeros((BLOCK_N, BLOCK_T), tl.float32)
            for other in range(splits):
                # past the first-level cache, which may not see what other programs have stored
                total += tl.load(
                    partial + other * num_tokens * num_rows + places, mask=live, other=0.0, cache_modifier=".cg"
                )
            tl.store(out + places, cast_like(total, dtype), mask=live)
            tl.store(tickets + tl.program_id(0), 0)
    else:
        tokens = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
        live_tokens = tokens < num_tokens
        total = all_splits_sum(
            weight, weight_scales, x, x_scales, rows, live_rows, scale_row, tokens, live_tokens, width, x_stride,
            x_start, splits, SINGLE, W_FORMAT, X_FORMAT,
        )  # fmt: skip
        places = tokens[None, :].to(tl.int64) * num_rows + rows[:, None]
        tl.store(out + places, cast_like(total, dtype), mask=live_rows[:, None] & live_tokens[None, :])


def operands(x: Tensor | Fp8Rows, weight: LinearWeight) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor], dict[str, str]]:
    """(weight, its scales, rows, their scales) as the kernels take them, and the two formats. Scales that do not exist
    are tensors that are never loaded."""
    weight_scales = weight.tickets if weight.scales is None else weight.scales
    formats = {
        "W_FORMAT": FORMATS[weight.dialect],
        "X_FORMAT": "plain" if isinstance(x, Tensor) else FORMATS[x.dialect],
    }
    rows, row_scales = (x.contiguous(), weight.tickets) if isinstance(x, Tensor) else (x.codes, x.scales)
    return (
        native_fp8(weight.data, weight.dialect),
        weight_scales,
        native_fp8(rows, weight.dialect),
        row_scales,
    ), formats


def native_fp8(codes: Tensor, dialect: Fp8Dialect | None) -> Tensor:
    """Bytes as the type that matrix instructions take; anything else as it is. The interpreter keeps bytes."""
    if codes.dtype != torch.uint8 or dialect is None or codes.device.type == "cpu":
        return codes
    return codes.view(_FP8[dialect])


def tiles_for_tokens(device: torch.device, tokens: int, rows: int, splits: int) -> LinearTiles:
    """Changes speed alone, except in the interpreter, whose products depend on their shape: there is one tile."""
    if device.type == "cpu":
        return INTERPRETER_LINEAR_TILES
    return linear_tiles(gpu_architecture(device), tokens, rows, splits)


def scaled_linear(
    x: Tensor | Fp8Rows,
    weight: LinearWeight,
    *,
    groups: int = 1,
    dtype: torch.dtype = torch.bfloat16,
    tiles: LinearTiles | None = None,
) -> Tensor:
    """As the reference. `tiles` are the architecture's unless a test or benchmark asks for others."""
    if not has_kernels(weight.data):
        return reference.scaled_linear(x, weight, groups=groups, dtype=dtype)
    check_linear(x, weight, groups)
    arguments, formats = operands(x, weight)
    num_tokens, (num_rows, width) = arguments[2].shape[0], weight.data.shape
    out = torch.empty(num_tokens, num_rows, dtype=dtype, device=weight.data.device)
    if out.numel() == 0:
        return out
    splits = split_count(num_rows, width)
    tiles = tiles or tiles_for_tokens(out.device, num_tokens, num_rows, splits)
    shared = splits > 1 and num_tokens <= min(_FEW_TOKENS, tiles.tokens)
    partial = torch.empty(splits * out.numel(), device=out.device) if shared else out
    grid = (cdiv(num_rows, tiles.rows), splits if shared else cdiv(num_tokens, tiles.tokens))
    launch(
        scaled_linear_kernel,
        grid,
        out,
        partial,
        weight.tickets,
        *arguments,
        num_rows,
        num_tokens,
        width,
        groups * width,
        num_rows // groups if groups > 1 else cdiv(num_rows, tiles.rows) * tiles.rows,
        splits,
        SHARED=shared,
        SINGLE=splits == 1,
        BLOCK_N=tiles.rows,
        BLOCK_T=tiles.tokens,
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        **formats,
    )
    return out
