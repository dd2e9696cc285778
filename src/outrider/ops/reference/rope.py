"""Rotary embedding of the LAST `rope_dim` dims of a head, adjacent pairs (2i, 2i+1); YaRN where a layer compresses.

    (a, b) -> (a cos - b sin, b cos + a sin),  angle = position * freq_i

The inverse rotation is applied to attention outputs: values are keys here and carry the keys' rotation.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Rotation(NamedTuple):
    """Angles of a set of rows: cos and sin, each [T, rope_dim / 2] float32."""

    cos: Tensor
    sin: Tensor

    def inverse(self) -> Rotation:
        return Rotation(self.cos, -self.sin)

    def select(self, rows: Tensor) -> Rotation:
        return Rotation(self.cos[rows], self.sin[rows])


def inverse_frequencies(
    rope_dim: int,
    theta: float,
    *,
    factor: float = 1.0,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    original_max_position_embeddings: int = 0,
) -> Tensor:
    """freq_i = theta^(-2i/rope_dim), float32 [rope_dim / 2]; with `factor` > 1 blended as YaRN does.

    Pairs that turn more than `beta_fast` times over the original context keep their frequency, those that turn less
    than `beta_slow` times are divided by `factor`, and a linear ramp joins them. There is no amplitude term.
    """
    half = torch.arange(0, rope_dim, 2, dtype=torch.float32)
    freqs = 1.0 / theta ** (half / rope_dim)
    if factor == 1.0:
        return freqs

    def pair_turning(times: float) -> float:
        turns = original_max_position_embeddings / (times * 2 * math.pi)
        return rope_dim * math.log(turns) / (2 * math.log(theta))

    low = max(math.floor(pair_turning(beta_fast)), 0)
    high = min(math.ceil(pair_turning(beta_slow)), rope_dim - 1)
    width = max(high - low, 0.001)  # a ramp of no width would divide by zero
    ramp = ((torch.arange(rope_dim // 2, dtype=torch.float32) - low) / width).clamp(0.0, 1.0)
    return freqs * (1.0 - ramp) + freqs / factor * ramp


def rotation(positions: Tensor, inverse_freqs: Tensor) -> Rotation:
    """positions: [T] int64 -> angles of each row in float32."""
    angles = positions.to(torch.float32)[:, None] * inverse_freqs
    return Rotation(angles.cos(), angles.sin())


def apply_rope(x: Tensor, angles: Rotation) -> Tensor:
    """Rotates the last dims of x in place and returns it. x: [T, D] or [T, H, D] float32, owned by the caller."""
    cos, sin = angles
    if x.ndim == 3:
        cos, sin = cos[:, None], sin[:, None]
    pairs = x[..., x.shape[-1] - 2 * cos.shape[-1] :].unflatten(-1, (-1, 2))
    real, imag = pairs[..., 0], pairs[..., 1]
    rotated_real = real * cos - imag * sin
    rotated_imag = imag * cos + real * sin
    real.copy_(rotated_real)
    imag.copy_(rotated_imag)
    return x
