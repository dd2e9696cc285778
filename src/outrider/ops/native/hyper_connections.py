"""Manifold-constrained hyper-connections (mHC), one token after another; formulas in the reference.

m            = (fn @ f) / rms(f),           f = streams of a token, flattened
pre, post, C = sigmoid / 2 sigmoid / Sinkhorn of m
u            = sum_k pre_k X_k
X'_k         = post_k y + sum_j C[j, k] X_j
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from outrider.ops.native.compilation import kernel, part
from outrider.ops.native.linear import Linear, product, product_address
from outrider.ops.native.row_functions import inverse_rms
from outrider.ops.native.rows import is_plain
from outrider.ops.native.vector import FLOAT_BYTES, add_row, clear, exp, floats
from outrider.ops.reference import hyper_connections as reference
from outrider.ops.reference.hyper_connections import HcHeadWeights, HyperConnectionWeights

_ZERO, _ONE, _TWO = np.float32(0.0), np.float32(1.0), np.float32(2.0)


@part
def _sinkhorn(c, n, iterations, eps):  # type: ignore[no-untyped-def]
    """In place, [n, n] row-major: row softmax, then columns and rows by turns; columns last."""
    for row in range(n):
        top = c[row * n]
        for i in range(row * n, row * n + n):
            top = c[i] if c[i] > top else top
        for i in range(row * n, row * n + n):
            c[i] = exp(c[i] - top)
    for turn in range(2 * iterations):
        step, jump = (1, n) if turn % 2 == 0 else (n, 1)
        for start in range(0, n * jump, jump):
            total = _ZERO
            for i in range(n):
                total += c[start + i * step]
            total += _ZERO if turn == 0 else eps
            for i in range(n):
                c[start + i * step] = c[start + i * step] / total + (eps if turn == 0 else _ZERO)


@kernel
def _pre(  # type: ignore[no-untyped-def]
    address, streams, t, n, d, fn, fn_bytes, base, scale, iterations, hc_eps, norm_eps, mixes, u, post, comb
):
    """mixes: [t, (2 + n) n] floats of scratch, of which the first n of a row become its pre."""
    width, rows = n * d, (2 + n) * n
    pitch = width * FLOAT_BYTES
    product(address, streams, pitch, t, fn, fn_bytes, 0, rows, width, mixes, rows * FLOAT_BYTES)
    b, s, eps = floats(base), floats(scale), np.float32(hc_eps)
    for row in range(t):
        factor = inverse_rms(streams + row * pitch, width, np.float32(norm_eps))
        p, c = floats(post + row * n * FLOAT_BYTES), floats(comb + row * n * n * FLOAT_BYTES)
        m, sums = floats(mixes + row * rows * FLOAT_BYTES), u + row * d * FLOAT_BYTES
        for k in range(2 * n):
            v = _ONE / (_ONE + exp(-(m[k] * factor * s[k // n] + b[k])))
            if k < n:
                m[k] = v + eps
            else:
                p[k - n] = _TWO * v
        for k in range(n * n):
            c[k] = m[2 * n + k] * factor * s[2] + b[2 * n + k]
        _sinkhorn(c, n, iterations, eps)
        clear(sums, d)
        for k in range(n):
            add_row(sums, m[k], streams + row * pitch + k * d * FLOAT_BYTES, d)


@kernel
def _post(y, streams, post, comb, t, n, d, out):  # type: ignore[no-untyped-def]
    size = d * FLOAT_BYTES
    p, c = floats(post), floats(comb)
    for k in range(t * n):
        row = k // n
        clear(out + k * size, d)
        add_row(out + k * size, p[k], y + row * size, d)
        for source in range(row * n, row * n + n):
            add_row(out + k * size, c[source * n + k % n], streams + source * size, d)


@kernel
def _head(address, streams, t, n, d, fn, fn_bytes, base, scale, hc_eps, norm_eps, mixes, out):  # type: ignore[no-untyped-def]
    """mixes: [t, n] floats of scratch."""
    width = n * d
    pitch = width * FLOAT_BYTES
    product(address, streams, pitch, t, fn, fn_bytes, 0, n, width, mixes, n * FLOAT_BYTES)
    b, s, m = floats(base), floats(scale), floats(mixes)
    for row in range(t):
        factor = inverse_rms(streams + row * pitch, width, np.float32(norm_eps))
        clear(out + row * d * FLOAT_BYTES, d)
        for k in range(n):
            weight = _ONE / (_ONE + exp(-(m[row * n + k] * factor * s[0] + b[k]))) + np.float32(hc_eps)
            add_row(out + row * d * FLOAT_BYTES, weight, streams + row * pitch + k * d * FLOAT_BYTES, d)


def mhc_pre(
    streams: Tensor, weights: HyperConnectionWeights, *, iterations: int, hc_eps: float, norm_eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """streams: [T, n, d] -> u [T, d], post [T, n], C [T, n, n]."""
    fn = weights.fn
    if not (isinstance(fn, Linear) and fn.is_native and is_plain(streams)):
        return reference.mhc_pre(streams, weights, iterations=iterations, hc_eps=hc_eps, norm_eps=norm_eps)
    t, n, d = streams.shape
    streams, base, scale = streams.contiguous(), weights.base.contiguous(), weights.scale.contiguous()
    u, post, comb = streams.new_empty(t, d), streams.new_empty(t, n), streams.new_empty(t, n, n)
    mixes = streams.new_empty(t, fn.out_features)
    _pre(
        product_address(),
        streams.data_ptr(),
        t,
        n,
        d,
        fn.address,
        fn.weight_bytes,
        base.data_ptr(),
        scale.data_ptr(),
        iterations,
        hc_eps,
        norm_eps,
        mixes.data_ptr(),
        u.data_ptr(),
        post.data_ptr(),
        comb.data_ptr(),
    )
    return u, post, comb


def mhc_post(y: Tensor, streams: Tensor, post: Tensor, comb: Tensor) -> Tensor:
    """y: [T, d], streams: [T, n, d], post: [T, n], comb: [T, n, n] -> new streams [T, n, d]."""
    if not (is_plain(y) and is_plain(streams) and is_plain(post) and is_plain(comb)):
        return reference.mhc_post(y, streams, post, comb)
    t, n, d = streams.shape
    y, streams, post, comb = y.contiguous(), streams.contiguous(), post.contiguous(), comb.contiguous()
    out = streams.new_empty(t, n, d)
    _post(y.data_ptr(), streams.data_ptr(), post.data_ptr(), comb.data_ptr(), t, n, d, out.data_ptr())
    return out


def hc_head(streams: Tensor, weights: HcHeadWeights, *, hc_eps: float, norm_eps: float) -> Tensor:
    """Collapses streams [T, n, d] to [T, d] with sigmoid weights (no Sinkhorn, no factor 2)."""
    fn = weights.fn
    if not (isinstance(fn, Linear) and fn.is_native and is_plain(streams)):
        return reference.hc_head(streams, weights, hc_eps=hc_eps, norm_eps=norm_eps)
    t, n, d = streams.shape
    streams, base, scale = streams.contiguous(), weights.base.contiguous(), weights.scale.contiguous()
    out, mixes = streams.new_empty(t, d), streams.new_empty(t, n)
    _head(
        product_address(),
        streams.data_ptr(),
        t,
        n,
        d,
        fn.address,
        fn.weight_bytes,
        base.data_ptr(),
        scale.data_ptr(),
        hc_eps,
        norm_eps,
        mixes.data_ptr(),
        out.data_ptr(),
    )
    return out
