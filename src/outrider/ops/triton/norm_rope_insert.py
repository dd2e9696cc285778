"""Norm and rope of the query heads, and of the latent row with its quantisation and insertion, in one launch.

Formula: ops/reference/norm_rope_insert.py. One program normalises a tile of heads of one token; one more a token does
its latent row. Dims that rotate are loaded a second time with their partners (dim xor 1), from cache, so that no lane
needs another's register.

Invalid input: a slot outside the cache writes nothing. A block with NaN or infinity is NaN in the cache.
Floor: 4 H D bytes a token (bfloat16 queries in and out), and its row in and out.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.ops.kv_rows import KvRows
from outrider.ops.reference import norm_rope_insert as reference
from outrider.ops.reference.rope import Rotation
from outrider.ops.triton.arithmetic import as_float32, cast_like
from outrider.ops.triton.fp8_bytes import (
    block_scale,
    decode_e4m3,
    decode_e8m0,
    encode_e4m3,
    magnitude_bits,
    reciprocal_scale,
    stored_scale,
)
from outrider.ops.triton.key_rows import key_arguments, key_format
from outrider.ops.triton.launching import cdiv, has_kernels, launch

_HEAD_TILE = 8


@triton.jit
def rotate(own, partner, dims, cos, sin):  # type: ignore[no-untyped-def]
    """Rope of dims [R] (last dim of own and partner, float32): (a, b) -> (a cos - b sin, b cos + a sin)."""
    return tl.where(dims % 2 == 0, own * cos - partner * sin, own * cos + partner * sin)


@triton.jit
def norm_rope_insert_kernel(  # type: ignore[no-untyped-def]
    q_in,
    q_out,
    kv,
    kv_norm_weight,
    cos,
    sin,
    write_slots,
    values,
    codes,
    scales,
    num_heads,
    num_slots,
    kv_stride,
    row_stride,
    scale_stride,
    eps,
    FORMAT: tl.constexpr,
    D: tl.constexpr,
    NOPE: tl.constexpr,
    QUANT_BLOCK: tl.constexpr,
    ROUND_TRIP: tl.constexpr,
    BLOCK_H: tl.constexpr,
):
    """Grid: (tokens, head tiles + 1); the last of a token's programs does its row. NOPE: dims that do not rotate."""
    ROPE: tl.constexpr = D - NOPE
    token = tl.program_id(0).to(tl.int64)
    tail = tl.arange(0, ROPE)
    c = tl.load(cos + token * (ROPE // 2) + tail // 2)
    s = tl.load(sin + token * (ROPE // 2) + tail // 2)
    if tl.program_id(1) < tl.num_programs(1) - 1:
        heads = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
        live = (heads < num_heads)[:, None]
        row = (token * num_heads + heads)[:, None] * D
        dims = tl.arange(0, D)[None, :]
        x = as_float32(tl.load(q_in + row + dims, mask=live, other=0.0))
        inverse_rms = (1.0 / tl.sqrt(tl.sum(x * x, 1) / D + eps))[:, None]
        dtype: tl.constexpr = q_out.dtype.element_ty
        tl.store(q_out + row + dims, cast_like(x * inverse_rms, dtype), mask=live & (dims < NOPE))
        own = as_float32(tl.load(q_in + row + NOPE + tail[None, :], mask=live, other=0.0))
        partner = as_float32(tl.load(q_in + row + NOPE + (tail ^ 1)[None, :], mask=live, other=0.0))
        own = as_float32(cast_like(own * inverse_rms, dtype))
        partner = as_float32(cast_like(partner * inverse_rms, dtype))
        turned = rotate(own, partner, tail[None, :], c[None, :], s[None, :])
        tl.store(q_out + row + NOPE + tail[None, :], cast_like(turned, dtype), mask=live)
        return

    slot = tl.load(write_slots + token).to(tl.int64)
    if (slot < 0) | (slot >= num_slots):
        return
    kv_dtype: tl.constexpr = kv.dtype.element_ty
    kv += token * kv_stride
    values += slot * row_stride
    blocks = tl.arange(0, D // QUANT_BLOCK)
    dims = blocks[:, None] * QUANT_BLOCK + tl.arange(0, QUANT_BLOCK)[None, :]
    coded = dims < NOPE
    x = as_float32(tl.load(kv + dims))
    inverse_rms = 1.0 / tl.sqrt(tl.sum(tl.sum(x * x, 1), 0) / D + eps)
    normed = as_float32(cast_like(x * inverse_rms * as_float32(tl.load(kv_norm_weight + dims)), kv_dtype))

    own = as_float32(tl.load(kv + NOPE + tail)) * inverse_rms * as_float32(tl.load(kv_norm_weight + NOPE + tail))
    partner = as_float32(tl.load(kv + NOPE + (tail ^ 1))) * inverse_rms
    partner = partner * as_float32(tl.load(kv_norm_weight + NOPE + (tail ^ 1)))
    own, partner = as_float32(cast_like(own, kv_dtype)), as_float32(cast_like(partner, kv_dtype))
    turned = cast_like(rotate(own, partner, tail, c, s), values.dtype.element_ty)

    if FORMAT == "plain" and not ROUND_TRIP:
        tl.store(values + dims, cast_like(normed, values.dtype.element_ty), mask=coded)
        tl.store(values + NOPE + tail, turned)
    else:
        scale = block_scale(tl.max(magnitude_bits(normed), 1))
        scaled = normed * reciprocal_scale(scale)[:, None]
        if FORMAT == "plain":
            rounded = decode_e4m3(encode_e4m3(scaled, False), False) * decode_e8m0(scale)[:, None]
            tl.store(values + dims, cast_like(rounded, values.dtype.element_ty), mask=coded)
            tl.store(values + NOPE + tail, turned)
        else:
            FNUZ: tl.constexpr = FORMAT == "fnuz"
            tl.store(codes + slot * row_stride * 2 + dims, encode_e4m3(scaled, FNUZ), mask=coded)
            tl.store(scales + slot * scale_stride + blocks, stored_scale(scale, FNUZ), mask=blocks * QUANT_BLOCK < NOPE)
            tl.store(values + NOPE // 2 + tail, turned)


def norm_rope_insert(
    q: Tensor,
    kv: Tensor,
    kv_norm_weight: Tensor,
    rotation: Rotation,
    write_slots: Tensor,
    cache: KvRows,
    eps: float,
    block: int,
    *,
    round_trip: bool,
) -> Tensor:
    """As the reference."""
    if not has_kernels(q):
        return reference.norm_rope_insert(
            q, kv, kv_norm_weight, rotation, write_slots, cache, eps, block, round_trip=round_trip
        )
    tokens, heads, head_dim = q.shape
    constants = key_format(cache, q)
    nope = head_dim - 2 * rotation.cos.shape[1]
    if cache.scales is None:
        constants |= {"NOPE": nope, "QUANT_BLOCK": block}
    if constants["NOPE"] != nope or constants["QUANT_BLOCK"] != block or nope % block or head_dim % block:
        raise ValueError(
            f"cache rows of {constants['NOPE']} quantised dims in blocks of {constants['QUANT_BLOCK']}, the rotation "
            f"leaves {nope} and blocks of {block} are asked for"
        )
    if kv.dtype != q.dtype or kv.stride(-1) != 1:
        raise ValueError(f"kv: {kv.dtype}, expected contiguous rows of q's {q.dtype}")
    rows = key_arguments(cache)
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if tokens == 0:
        return out
    launch(
        norm_rope_insert_kernel,
        (tokens, cdiv(heads, _HEAD_TILE) + 1),
        q.contiguous(),
        out,
        kv,
        kv_norm_weight,
        rotation.cos.contiguous(),
        rotation.sin.contiguous(),
        write_slots,
        rows.values,
        rows.codes,
        rows.scales,
        heads,
        rows.slots,
        kv.stride(0),
        rows.row_stride,
        rows.scale_stride,
        eps,
        ROUND_TRIP=round_trip,
        BLOCK_H=_HEAD_TILE,
        num_warps=4,
        **constants,
    )
    return out
