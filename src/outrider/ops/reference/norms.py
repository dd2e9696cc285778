"""Root-mean-square normalisation."""

from __future__ import annotations

import torch
from torch import Tensor

_SPLIT_SUM = 1 << 15  # from this many elements on, torch splits a sum with one result over its threads


def inverse_rms(x: Tensor, eps: float) -> Tensor:
    """1 / sqrt(mean(x^2) + eps) over the last dimension, kept: [..., D] -> [..., 1] float32."""
    squares = x.square()
    if squares.numel() == squares.shape[-1] >= _SPLIT_SUM:  # one long row: sum it twice, so that there are two results
        mean = squares.expand(2, *squares.shape).mean(-1, keepdim=True)[0]
    else:
        mean = squares.mean(-1, keepdim=True)
    return torch.rsqrt(mean.add_(eps))


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """x / rms(x) * weight, all in float32. x: [..., D]; weight: [D], or None for a norm without one (query heads)."""
    normed = x * inverse_rms(x, eps)
    return normed if weight is None else normed.mul_(weight)
