"""Queries and latent rows made ready for attention: norm, rope, and the rows written to the cache.

    q  = rope(q / rms(q))                     per head, no weight
    kv = rope(kv / rms(kv) * weight)          one row a token; its first `nope` dims rounded as FP8, the rest rotated

Each result is rounded to its tensor's dtype after the norm, again after the rope, and rows are quantised from rounded
values (spec 5.4), as the reference inference does.
"""

from __future__ import annotations

import torch
from torch import Tensor

from outrider.ops.kv_rows import KvRows, read_rows, write_rows
from outrider.ops.reference.norms import rms_norm
from outrider.ops.reference.rope import Rotation, apply_rope


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
    """q: [T, H, D] and kv: [T, D], bfloat16 or float32, as projected; kv_norm_weight: [D]; rotation: of the T rows;
    write_slots: [T] int64, a row outside the cache (-1: padded) is not written. Returns q ready for attention, same
    dtype, and writes the rows to `cache`: FP8, or plain (with `round_trip` rounded as FP8 would, blocks of `block`).
    """
    rows = _rotated(rms_norm(kv.float(), kv_norm_weight.float(), eps).to(kv.dtype), rotation)
    nope = kv.shape[-1] - 2 * rotation.cos.shape[1]
    write_rows(cache, write_slots, rows.float(), nope=nope, block=block, round_trip=round_trip)
    return _rotated(rms_norm(q.float(), None, eps).to(q.dtype), rotation)


def _rotated(x: Tensor, rotation: Rotation) -> Tensor:
    return apply_rope(x.to(torch.float32, copy=True), rotation).to(x.dtype)


def gather_rows(cache: KvRows, slots: Tensor, head_dim: int) -> Tensor:
    """Rows at slots [N] int64 of a cache -> [N, D], dequantised to bfloat16 if FP8; zeros outside the cache (-1)."""
    dtype = torch.bfloat16 if cache.scales is not None else cache.data.dtype
    return read_rows(cache, slots, head_dim).to(dtype)
