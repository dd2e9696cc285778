"""Root-mean-square normalisation."""

from __future__ import annotations

import torch
from torch import Tensor


def inverse_rms(x: Tensor, eps: float) -> Tensor:
    """1 / sqrt(mean(x^2) + eps) over the last dimension, kept: [..., D] -> [..., 1] float32."""
    return torch.rsqrt(x.square().mean(-1, keepdim=True).add_(eps))


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """x / rms(x) * weight, all in float32. x: [..., D]; weight: [D], or None for a norm without one (query heads)."""
    normed = x * inverse_rms(x, eps)
    return normed if weight is None else normed.mul_(weight)
