"""Greedy token of each row, from the vocabulary head without its logits: a product whose tiles keep only their best.

Formula and contract: ops/reference/scaled_linear.py. The product is that of ops/triton/scaled_linear.py, so the token
is the argmax of the logits which that would write, bit for bit; among equals the lowest id.

Floor: bytes of the head once (V4-Flash: 530 MB in FP8, 1.06 GB in bfloat16).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.ops.reference import scaled_linear as reference
from outrider.ops.reference.scaled_linear import Fp8Rows, LinearWeight, check_linear
from outrider.ops.triton.launching import cdiv, has_kernels, launch
from outrider.ops.triton.sampling import best_parts
from outrider.ops.triton.scaled_linear import K_BLOCK, all_splits_sum, operands, split_count, tiles_for_tokens


@triton.jit(do_not_specialize=["num_tokens", "splits"])
def greedy_head_kernel(  # type: ignore[no-untyped-def]
    part_scores,
    part_ids,
    weight,
    weight_scales,
    x,
    x_scales,
    num_rows,
    num_tokens,
    width,
    splits,
    W_FORMAT: tl.constexpr,
    X_FORMAT: tl.constexpr,
    SINGLE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    """Grid: (row tiles, token tiles). part_scores, part_ids: [row tiles, tokens]."""
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    live_rows = rows < num_rows
    tokens = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    live_tokens = tokens < num_tokens
    scores = all_splits_sum(
        weight, weight_scales, x, x_scales, rows, live_rows, tl.program_id(0) * BLOCK_N // K_BLOCK,
        tokens, live_tokens, width, width, 0, splits, SINGLE, W_FORMAT, X_FORMAT,
    )  # fmt: skip
    scores = tl.where(live_rows[:, None], scores, float("-inf"))
    best = tl.max(scores, 0)
    ids = tl.min(tl.where(scores == best[None, :], rows[:, None], 0x7FFFFFFF), 0)
    broken = tl.max((scores != scores).to(tl.int32), 0) > 0
    places = tl.program_id(0).to(tl.int64) * num_tokens + tokens
    tl.store(part_scores + places, tl.where(broken, float("nan"), best), mask=live_tokens)
    tl.store(part_ids + places, ids, mask=live_tokens)


def greedy_tokens(x: Tensor | Fp8Rows, weight: LinearWeight) -> Tensor:
    """As the reference."""
    if not has_kernels(weight.data):
        return reference.greedy_tokens(x, weight)
    check_linear(x, weight, 1)
    arguments, formats = operands(x, weight)
    num_tokens, (num_rows, width) = arguments[2].shape[0], weight.data.shape
    device = weight.data.device
    if num_tokens == 0:
        return torch.empty(0, dtype=torch.int64, device=device)
    splits = split_count(num_rows, width)
    tiles = tiles_for_tokens(device, num_tokens, num_rows, splits)
    row_tiles = cdiv(num_rows, tiles.rows)
    part_scores = torch.empty(row_tiles, num_tokens, device=device)
    part_ids = torch.empty(row_tiles, num_tokens, dtype=torch.int32, device=device)
    launch(
        greedy_head_kernel,
        (row_tiles, cdiv(num_tokens, tiles.tokens)),
        part_scores,
        part_ids,
        *arguments,
        num_rows,
        num_tokens,
        width,
        splits,
        SINGLE=splits == 1,
        BLOCK_N=tiles.rows,
        BLOCK_T=tiles.tokens,
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        **formats,
    )
    return best_parts(part_scores, part_ids, num_rows, part_dim=0)
