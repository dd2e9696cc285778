"""Elementwise functions built only from operations whose result does not depend on an element's place in the tensor."""

from __future__ import annotations

import torch
from torch import Tensor


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + e^-x), float32, same shape as x."""
    return torch.exp(-x).add_(1.0).reciprocal_()


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x), float32, same shape as x."""
    return x / torch.exp(-x).add_(1.0)


def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x), float32, without overflow."""
    return torch.log1p(torch.exp(-x.abs())) + x.clamp_min(0.0)


def clamped_swiglu(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    """silu(min(gate, limit)) * clamp(up, -limit, limit), float32 (`swiglu_limit`; the gate has no lower bound)."""
    return silu(gate.clamp_max(limit)).mul_(up.clamp(-limit, limit))
