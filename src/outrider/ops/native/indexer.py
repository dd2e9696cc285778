"""Lightning indexer: I[j] = sum_h w[h] * relu(q[h] . k[j]), and the Hadamard rotation before its rounding."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from outrider.ops.native.compilation import kernel
from outrider.ops.native.dot_tiles import dot_tile
from outrider.ops.native.rows import is_plain
from outrider.ops.native.vector import FLOAT_BYTES, floats
from outrider.ops.reference import indexer as reference

_ZERO = np.float32(0.0)

_tile_4x1 = dot_tile(4, 1)
_tile_1x1 = dot_tile(1, 1)


@kernel
def _scores(q, weights, heads, d, keys, key_pitch, count, products, out):  # type: ignore[no-untyped-def]
    """products: [heads] floats of scratch."""
    w, o, p = floats(weights), floats(out), floats(products)
    pitch = d * FLOAT_BYTES
    for j in range(count):
        key = keys + j * key_pitch
        head = 0
        while head + 4 <= heads:
            _tile_4x1(q + head * pitch, pitch, key, 0, d, products + head * FLOAT_BYTES, FLOAT_BYTES)
            head += 4
        while head < heads:
            _tile_1x1(q + head * pitch, pitch, key, 0, d, products + head * FLOAT_BYTES, FLOAT_BYTES)
            head += 1
        total = _ZERO
        for head in range(heads):
            total += w[head] * max(p[head], _ZERO)
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
    products = q.new_empty(heads)
    pitch, scratch, target = d * FLOAT_BYTES, products.data_ptr(), out.data_ptr()
    _scores(q.data_ptr(), head_weights.data_ptr(), heads, d, keys.data_ptr(), pitch, count, scratch, target)
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
