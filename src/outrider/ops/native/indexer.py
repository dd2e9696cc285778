"""Lightning indexer: I[j] = sum_h w[h] * relu(q[h] . k[j]), and the Hadamard rotation before its rounding."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from outrider.ops.native.compilation import kernel
from outrider.ops.native.rows import is_plain
from outrider.ops.native.vector import FLOAT_BYTES, dot_1x1, dot_4x1, floats
from outrider.ops.reference import indexer as reference

_ZERO = np.float32(0.0)


@kernel
def _scores(q, weights, heads, d, keys, key_pitch, count, out):  # type: ignore[no-untyped-def]
    w, o = floats(weights), floats(out)
    pitch = d * FLOAT_BYTES
    for j in range(count):
        key = keys + j * key_pitch
        total = _ZERO
        head = 0
        while head + 4 <= heads:
            q0 = q + head * pitch
            a, b, c, e = dot_4x1(q0, q0 + pitch, q0 + 2 * pitch, q0 + 3 * pitch, key, 0, d)
            total += w[head] * max(a, _ZERO)
            total += w[head + 1] * max(b, _ZERO)
            total += w[head + 2] * max(c, _ZERO)
            total += w[head + 3] * max(e, _ZERO)
            head += 4
        while head < heads:
            (a,) = dot_1x1(q + head * pitch, key, 0, d)
            total += w[head] * max(a, _ZERO)
            head += 1
        o[j] = total


@kernel
def _hadamard(x, rows, n, factor, out):  # type: ignore[no-untyped-def]
    scale = np.float32(factor)
    for row in range(rows):
        source, v = floats(x + row * n * FLOAT_BYTES), floats(out + row * n * FLOAT_BYTES)
        for i in range(n):
            v[i] = source[i]
        half = 1
        while half < n:
            for start in range(0, n, 2 * half):
                for i in range(start, start + half):
                    even, odd = v[i], v[i + half]
                    v[i], v[i + half] = even + odd, even - odd
            half *= 2
        for i in range(n):
            v[i] *= scale


def indexer_scores(q: Tensor, head_weights: Tensor, keys: Tensor) -> Tensor:
    """Scores of one query: q [H, D], head_weights [H], keys [N, D] -> [N] float32."""
    if not (is_plain(q) and is_plain(head_weights) and is_plain(keys)):
        return reference.indexer_scores(q, head_weights, keys)
    q, head_weights, keys = q.contiguous(), head_weights.contiguous(), keys.contiguous()
    heads, d = q.shape
    count = keys.shape[0]
    out = q.new_empty(count)
    _scores(q.data_ptr(), head_weights.data_ptr(), heads, d, keys.data_ptr(), d * FLOAT_BYTES, count, out.data_ptr())
    return out


def hadamard(x: Tensor) -> Tensor:
    """Orthonormal Walsh-Hadamard transform (Sylvester order) over the last dim, a power of two. Float32."""
    if not is_plain(x):
        return reference.hadamard(x)
    x = x.contiguous()
    n = x.shape[-1]
    assert n & (n - 1) == 0, f"{n} is not a power of two"
    out = x.new_empty(x.shape)
    _hadamard(x.data_ptr(), x.numel() // n, n, n**-0.5, out.data_ptr())
    return out
