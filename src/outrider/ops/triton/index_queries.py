"""Indexer queries: rope on the last dims, Hadamard over all of them, rounded as FP4 or FP8.

Formula: ops/reference/paged_indexer.py. The result holds the codes' values, exact in bfloat16: the logits kernel would
otherwise decode a query anew for every tile of keys.

Invalid input: a block with NaN or infinity is NaN.
Floor: 4 H D bytes a token (bfloat16 in and out).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.ops.reference import paged_indexer as reference
from outrider.ops.reference.paged_indexer import IndexerFormat
from outrider.ops.reference.rope import Rotation
from outrider.ops.triton.arithmetic import as_float32, cast_like
from outrider.ops.triton.fp4_bytes import decode_e2m1, encode_e2m1, fp4_block_scale
from outrider.ops.triton.fp8_bytes import (
    block_scale,
    decode_e4m3,
    decode_e8m0,
    encode_e4m3,
    magnitude_bits,
    reciprocal_scale,
)
from outrider.ops.triton.hadamard import hadamard
from outrider.ops.triton.launching import cdiv, has_kernels, launch
from outrider.ops.triton.norm_rope_insert import rotate

HEAD_TILE = 8


@triton.jit
def index_queries_kernel(  # type: ignore[no-untyped-def]
    q_in,
    q_out,
    cos,
    sin,
    num_heads,
    FORMAT: tl.constexpr,
    D: tl.constexpr,
    LOG2_D: tl.constexpr,
    SCALE: tl.constexpr,
    NOPE: tl.constexpr,
    QUANT_BLOCK: tl.constexpr,
    BLOCK_H: tl.constexpr,
):
    """Grid: (tokens, head tiles). NOPE: dims that do not rotate; SCALE: D^-0.5; FORMAT "fp4", "fp8" or "plain"."""
    dtype: tl.constexpr = q_out.dtype.element_ty
    token = tl.program_id(0).to(tl.int64)
    heads = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    live = (heads < num_heads)[:, None]
    rows = (token * num_heads + heads)[:, None] * D
    dims = tl.arange(0, D)
    rotated = dims >= NOPE
    angle = token * ((D - NOPE) // 2) + tl.where(rotated, dims - NOPE, 0) // 2
    c = tl.load(cos + angle, mask=rotated, other=1.0)[None, :]
    s = tl.load(sin + angle, mask=rotated, other=0.0)[None, :]
    own = as_float32(tl.load(q_in + rows + dims[None, :], mask=live, other=0.0))
    partner = as_float32(tl.load(q_in + rows + (dims ^ 1)[None, :], mask=live & rotated[None, :], other=0.0))
    turned = cast_like(tl.where(rotated[None, :], rotate(own, partner, dims[None, :], c, s), own), dtype)
    if FORMAT == "plain":
        tl.store(q_out + rows + dims[None, :], turned, mask=live)
    else:
        mixed = hadamard(as_float32(turned), BLOCK_H, D, LOG2_D, SCALE)
        blocks = tl.reshape(as_float32(cast_like(mixed, dtype)), (BLOCK_H, D // QUANT_BLOCK, QUANT_BLOCK))
        amax = tl.max(magnitude_bits(blocks), 2)
        if FORMAT == "fp4":
            scale = fp4_block_scale(amax)
            rounded = decode_e2m1(encode_e2m1(blocks * reciprocal_scale(scale)[:, :, None]))
        else:
            scale = block_scale(amax)
            rounded = decode_e4m3(encode_e4m3(blocks * reciprocal_scale(scale)[:, :, None], False), False)
        rounded = tl.reshape(rounded * decode_e8m0(scale)[:, :, None], (BLOCK_H, D))
        tl.store(q_out + rows + dims[None, :], cast_like(rounded, dtype), mask=live)


def index_queries(q: Tensor, rotation: Rotation, indexer_format: IndexerFormat | None, block: int) -> Tensor:
    """As the reference. ValueError for dims that the kernel does not serve."""
    if not has_kernels(q):
        return reference.index_queries(q, rotation, indexer_format, block)
    tokens, heads, head_dim = q.shape
    if head_dim & (head_dim - 1) or block & (block - 1) or head_dim % block:
        raise ValueError(f"indexer queries: {head_dim} dims in blocks of {block}; the kernel takes powers of two")
    if q.dtype not in (torch.bfloat16, torch.float32):
        raise ValueError(f"indexer queries: {q.dtype}; the kernel takes bfloat16 or float32")
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if tokens == 0:
        return out
    launch(
        index_queries_kernel,
        (tokens, cdiv(heads, HEAD_TILE)),
        q.contiguous(),
        out,
        rotation.cos.contiguous(),
        rotation.sin.contiguous(),
        heads,
        FORMAT=indexer_format or "plain",
        D=head_dim,
        LOG2_D=head_dim.bit_length() - 1,
        SCALE=head_dim**-0.5,
        NOPE=head_dim - 2 * rotation.cos.shape[1],
        QUANT_BLOCK=block,
        BLOCK_H=HEAD_TILE,
        num_warps=4,
    )
    return out
