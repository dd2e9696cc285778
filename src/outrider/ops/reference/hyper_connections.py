"""Manifold-constrained hyper-connections (mHC): how a sublayer reads and writes the n residual streams.

    m            = (fn @ f) / rms(f),           f = streams of a token, flattened, un-normed
    pre, post, C = sigmoid / 2 sigmoid / Sinkhorn of m
    u            = sum_k pre_k X_k              what the sublayer reads
    X'_k         = post_k y + sum_j C[j, k] X_j what it writes; the first index of C is the SOURCE stream

Everything is float32 (paper: mHC; official kernel: hc_split_sinkhorn).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from outrider.ops.reference.activations import sigmoid
from outrider.ops.reference.linear import Linear
from outrider.ops.reference.norms import inverse_rms


class HyperConnectionWeights(NamedTuple):
    """One site. fn: [(2 + n) n, n d], rows pre, post, C (row-major [source, destination]); base alike; scale: [3]."""

    fn: Linear
    base: Tensor
    scale: Tensor


class HcHeadWeights(NamedTuple):
    """Collapse of the streams before a head. fn: [n, n d], base: [n], scale: [1]."""

    fn: Linear
    base: Tensor
    scale: Tensor


def sinkhorn(logits: Tensor, iterations: int, eps: float) -> Tensor:
    """Makes [T, n, n] logits nearly doubly stochastic: a row softmax, then columns and rows divided by their sums.

    The last step is over columns, so columns sum to 1 and rows only nearly (as the model was trained).
    """
    c = torch.softmax(logits, dim=-1).add_(eps)
    c.div_(c.sum(-2, keepdim=True).add_(eps))
    for _ in range(iterations - 1):
        c.div_(c.sum(-1, keepdim=True).add_(eps))
        c.div_(c.sum(-2, keepdim=True).add_(eps))
    return c


def mhc_pre(
    streams: Tensor, weights: HyperConnectionWeights, *, iterations: int, hc_eps: float, norm_eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """streams: [T, n, d] -> u [T, d], post [T, n], C [T, n, n]."""
    n = streams.shape[1]
    flat = streams.flatten(1)
    mix = weights.fn(flat).mul_(inverse_rms(flat, norm_eps))
    pre = sigmoid(mix[:, :n] * weights.scale[0] + weights.base[:n]).add_(hc_eps)
    post = sigmoid(mix[:, n : 2 * n] * weights.scale[1] + weights.base[n : 2 * n]).mul_(2.0)
    logits = (mix[:, 2 * n :] * weights.scale[2] + weights.base[2 * n :]).unflatten(-1, (n, n))
    return _weighted_sum(streams, pre), post, sinkhorn(logits, iterations, hc_eps)


def mhc_post(y: Tensor, streams: Tensor, post: Tensor, comb: Tensor) -> Tensor:
    """y: [T, d], streams: [T, n, d], post: [T, n], comb: [T, n, n] -> new streams [T, n, d]."""
    out = post[:, :, None] * y[:, None, :]
    for source in range(streams.shape[1]):  # one addition at a time: a fixed order for every row
        out += comb[:, source, :, None] * streams[:, source, None, :]
    return out


def hc_head(streams: Tensor, weights: HcHeadWeights, *, hc_eps: float, norm_eps: float) -> Tensor:
    """Collapses streams [T, n, d] to [T, d] with sigmoid weights (no Sinkhorn, no factor 2)."""
    flat = streams.flatten(1)
    mix = weights.fn(flat).mul_(inverse_rms(flat, norm_eps))
    return _weighted_sum(streams, sigmoid(mix * weights.scale + weights.base).add_(hc_eps))


def _weighted_sum(streams: Tensor, weights: Tensor) -> Tensor:
    out = weights[:, 0, None] * streams[:, 0]
    for k in range(1, streams.shape[1]):
        out += weights[:, k, None] * streams[:, k]
    return out
