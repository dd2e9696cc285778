"""What lies between two sublayers, in one op: the streams written by one, and what the next one reads of them.

    X'_k = post_k y + sum_j C[j, k] X_j                    rounded to bfloat16; left out where nothing was written yet
    u    = sum_k pre_k X'_k,  pre, post', C' from X'       rounded to bfloat16 (ops/reference/hyper_connections.py)
    x    = RMSNorm(u; the sublayer's norm)                 rounded to bfloat16, and quantised where FP8 is asked for

`mhc_head` is the same before a vocabulary head, whose collapse has no post and C. Source: spec 2.2.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from outrider.ops.reference.hyper_connections import (
    HcHeadWeights,
    HyperConnectionWeights,
    hc_head,
    mhc_post,
    mhc_pre,
)
from outrider.ops.reference.linear import Linear
from outrider.ops.reference.row_norms import Rows, norm_rows
from outrider.platforms.architectures import Fp8Dialect


class MixWeights(NamedTuple):
    """One site or head, float32. fn: [(2 + n) n, n d] (head: [n, n d]), contiguous; base: its rows; scale: [3] (1)."""

    fn: Tensor
    base: Tensor
    scale: Tensor


class Written(NamedTuple):
    """What a sublayer leaves. y: [T, d] bfloat16; post: [T, n], comb: [T, n, n] float32, from the read before it."""

    y: Tensor
    post: Tensor
    comb: Tensor


class Site(NamedTuple):
    """streams: [T, n, d] bfloat16; rows: what the sublayer reads, normed, [T, d]; post, comb: for the next write."""

    streams: Tensor
    rows: Rows
    post: Tensor
    comb: Tensor


def mhc_site(
    streams: Tensor,
    written: Written | None,
    weights: MixWeights,
    norm_weight: Tensor,
    *,
    iterations: int,
    hc_eps: float,
    norm_eps: float,
    dialect: Fp8Dialect | None = None,
) -> Site:
    """streams: [T, n, d] bfloat16, before `written` (None: nothing to write, and streams come back as they are);
    norm_weight: [d] bfloat16 or float32."""
    streams = _write(streams, written)
    site = HyperConnectionWeights(Linear(weights.fn), weights.base, weights.scale)
    u, post, comb = mhc_pre(streams.float(), site, iterations=iterations, hc_eps=hc_eps, norm_eps=norm_eps)
    return Site(streams, norm_rows(u.to(streams.dtype), norm_weight, norm_eps, dialect), post, comb)


def mhc_head(
    streams: Tensor,
    written: Written | None,
    weights: MixWeights,
    norm_weight: Tensor,
    *,
    hc_eps: float,
    norm_eps: float,
    dialect: Fp8Dialect | None = None,
) -> tuple[Tensor, Rows]:
    """As `mhc_site`, before a vocabulary head -> the streams (which the drafter takes) and the head's input."""
    streams = _write(streams, written)
    head = HcHeadWeights(Linear(weights.fn), weights.base, weights.scale)
    u = hc_head(streams.float(), head, hc_eps=hc_eps, norm_eps=norm_eps)
    return streams, norm_rows(u.to(streams.dtype), norm_weight, norm_eps, dialect)


def _write(streams: Tensor, written: Written | None) -> Tensor:
    if written is None:
        return streams
    return mhc_post(written.y.float(), streams.float(), written.post, written.comb).to(streams.dtype)
