"""Root-mean-square normalisation: x / sqrt(mean(x^2) + eps) * weight."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from outrider.ops.native.compilation import kernel, part
from outrider.ops.native.dot_tiles import dot
from outrider.ops.native.rows import is_plain, row_view
from outrider.ops.native.vector import FLOAT_BYTES, floats
from outrider.ops.reference import norms as reference

_ONE = np.float32(1.0)


@part
def inverse_rms(x, width, eps):  # type: ignore[no-untyped-def]
    """Of one row at address x, float32."""
    return _ONE / np.float32(math.sqrt(dot(x, x, width) / np.float32(width) + np.float32(eps)))


@kernel
def _rms_norm(x, pitch, count, width, weight, eps, out):  # type: ignore[no-untyped-def]
    w = floats(weight)
    for row in range(count):
        factor = inverse_rms(x + row * pitch, width, eps)
        source, target = floats(x + row * pitch), floats(out + row * width * FLOAT_BYTES)
        if weight == 0:
            for i in range(width):
                target[i] = source[i] * factor
        else:
            for i in range(width):
                target[i] = source[i] * factor * w[i]


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """x / rms(x) * weight, all in float32. x: [..., D]; weight: [D], or None for a norm without one (query heads)."""
    if not is_plain(x) or (weight is not None and not (is_plain(weight) and weight.is_contiguous())):
        return reference.rms_norm(x, weight, eps)
    rows, count, pitch = row_view(x)
    out = torch.empty_like(rows) if rows.is_contiguous() else x.new_empty(x.shape)
    address = 0 if weight is None else weight.data_ptr()
    _rms_norm(rows.data_ptr(), pitch, count, x.shape[-1], address, eps, out.data_ptr())
    return out
