"""What a kernel may be given, and how a tensor looks to it: rows of adjacent floats, a pitch apart."""

from __future__ import annotations

import torch
from torch import Tensor

from outrider.ops.native.vector import FLOAT_BYTES


def is_plain(x: Tensor) -> bool:
    """float32 on the CPU, without a gradient to keep."""
    return x.dtype is torch.float32 and x.is_cpu and not x.requires_grad


def row_view(x: Tensor) -> tuple[Tensor, int, int]:
    """x: [..., K] -> (a tensor with the same rows, their count, the distance of two rows in bytes).

    A copy is made only where rows are not adjacent floats an equal distance apart.
    """
    if not x.is_contiguous():
        if x.ndim == 2 and x.stride(1) == 1:
            return x, x.shape[0], x.stride(0) * FLOAT_BYTES
        x = x.contiguous()
    width = x.shape[-1]
    return x, x.numel() // width if width else 0, width * FLOAT_BYTES
