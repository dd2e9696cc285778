"""Root-mean-square normalisation: x / sqrt(mean(x^2) + eps) * weight."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from outrider.ops.native.compilation import kernel
from outrider.ops.native.row_functions import inverse_rms, scale_row
from outrider.ops.native.rows import is_plain, row_view
from outrider.ops.native.vector import FLOAT_BYTES
from outrider.ops.reference import norms as reference


@kernel
def _rms_norm(x, pitch, count, width, weight, eps, out):  # type: ignore[no-untyped-def]
    for row in range(count):
        source = x + row * pitch
        factor = inverse_rms(source, width, np.float32(eps))
        scale_row(source, width, factor, weight, out + row * width * FLOAT_BYTES)


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """x / rms(x) * weight, all in float32. x: [..., D]; weight: [D], or None for a norm without one (query heads)."""
    if not is_plain(x) or (weight is not None and not (is_plain(weight) and weight.is_contiguous())):
        return reference.rms_norm(x, weight, eps)
    rows, count, pitch = row_view(x)
    out = torch.empty_like(rows) if rows.is_contiguous() else x.new_empty(x.shape)
    address = 0 if weight is None else weight.data_ptr()
    _rms_norm(rows.data_ptr(), pitch, count, x.shape[-1], address, eps, out.data_ptr())
    return out
