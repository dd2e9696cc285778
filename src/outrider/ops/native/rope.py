"""Rotary embedding of the last dims of a head, adjacent pairs: (a, b) -> (a cos - b sin, b cos + a sin)."""

from __future__ import annotations

from torch import Tensor

from outrider.ops.native.compilation import kernel
from outrider.ops.native.rows import is_plain
from outrider.ops.native.vector import FLOAT_BYTES, floats
from outrider.ops.reference import rope as reference
from outrider.ops.reference.rope import Rotation


@kernel
def _apply_rope(x, row_pitch, head_pitch, rows, heads, width, cos, sin, pairs):  # type: ignore[no-untyped-def]
    for row in range(rows):
        c, s = floats(cos + row * pairs * FLOAT_BYTES), floats(sin + row * pairs * FLOAT_BYTES)
        for head in range(heads):
            v = floats(x + row * row_pitch + head * head_pitch + (width - 2 * pairs) * FLOAT_BYTES)
            for i in range(pairs):
                a, b = v[2 * i], v[2 * i + 1]
                v[2 * i] = a * c[i] - b * s[i]
                v[2 * i + 1] = b * c[i] + a * s[i]


def apply_rope(x: Tensor, angles: Rotation) -> Tensor:
    """Rotates the last dims of x in place and returns it. x: [T, D] or [T, H, D] float32, owned by the caller."""
    cos, sin = angles
    if not (is_plain(x) and is_plain(cos) and is_plain(sin) and x.stride(-1) == 1):
        return reference.apply_rope(x, angles)
    cos, sin = cos.contiguous(), sin.contiguous()
    rows, width = x.shape[0], x.shape[-1]
    heads, head_pitch = (x.shape[1], x.stride(1) * FLOAT_BYTES) if x.ndim == 3 else (1, 0)
    row_pitch = x.stride(0) * FLOAT_BYTES
    _apply_rope(x.data_ptr(), row_pitch, head_pitch, rows, heads, width, cos.data_ptr(), sin.data_ptr(), cos.shape[-1])
    return x
