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
from outrider.ops.native.linear import Linear, product
from outrider.ops.native.norms import inverse_rms
from outrider.ops.native.rows import is_plain
from outrider.ops.native.vector import FLOAT_BYTES, exp, floats
from outrider.ops.reference import hyper_connections as reference
from outrider.ops.reference.hyper_connections import HcHeadWeights, HyperConnectionWeights

_ZERO, _ONE, _TWO = np.float32(0.0), np.float32(1.0), np.float32(2.0)


@part
def _sigmoid(x):  # type: ignore[no-untyped-def]
    return _ONE / (_ONE + exp(-x))


@part
def _divide(c, start, step, n, eps):  # type: ignore[no-untyped-def]
    """Divides n elements, a step apart, by their sum + eps."""
    total = _ZERO
    for i in range(n):
        total += c[start + i * step]
    total += eps
    for i in range(n):
        c[start + i * step] /= total


@part
def _sinkhorn(c, n, iterations, eps):  # type: ignore[no-untyped-def]
    """In place, [n, n] row-major: row softmax, then columns and rows by turns; columns last."""
    for row in range(n):
        top = c[row * n]
        for i in range(1, n):
            top = max(top, c[row * n + i])
        total = _ZERO
        for i in range(n):
            e = exp(c[row * n + i] - top)
            c[row * n + i] = e
            total += e
        for i in range(n):
            c[row * n + i] = c[row * n + i] / total + eps
    for column in range(n):
        _divide(c, column, n, n, eps)
    for _ in range(iterations - 1):
        for row in range(n):
            _divide(c, row * n, 1, n, eps)
        for column in range(n):
            _divide(c, column, n, n, eps)


@part
def _weighted_sum(streams, weights, n, d, out):  # type: ignore[no-untyped-def]
    """out = sum_k weights[k] * streams[k]; pointers, streams [n, d]."""
    for i in range(d):
        out[i] = weights[0] * streams[i]
    for k in range(1, n):
        w = weights[k]
        for i in range(d):
            out[i] += w * streams[k * d + i]


@kernel
def _pre(streams, t, n, d, fn, base, scale, iterations, hc_eps, norm_eps, u, post, comb):  # type: ignore[no-untyped-def]
    width, rows = n * d, (2 + n) * n
    mixes = np.empty((t, rows), np.float32)
    pitch = width * FLOAT_BYTES
    product(streams, pitch, t, fn, 0, rows, width, mixes.ctypes.data, rows * FLOAT_BYTES)
    b, s, eps = floats(base), floats(scale), np.float32(hc_eps)
    pre = np.empty(n, np.float32)
    for row in range(t):
        factor = inverse_rms(streams + row * pitch, width, norm_eps)
        p, c = floats(post + row * n * FLOAT_BYTES), floats(comb + row * n * n * FLOAT_BYTES)
        m = mixes[row]
        for k in range(n):
            pre[k] = _sigmoid(m[k] * factor * s[0] + b[k]) + eps
            p[k] = _TWO * _sigmoid(m[n + k] * factor * s[1] + b[n + k])
        for k in range(n * n):
            c[k] = m[2 * n + k] * factor * s[2] + b[2 * n + k]
        _sinkhorn(c, n, iterations, eps)
        _weighted_sum(floats(streams + row * pitch), pre, n, d, floats(u + row * d * FLOAT_BYTES))


@kernel
def _post(y, streams, post, comb, t, n, d, out):  # type: ignore[no-untyped-def]
    for row in range(t):
        v, x = floats(y + row * d * FLOAT_BYTES), floats(streams + row * n * d * FLOAT_BYTES)
        p, c = floats(post + row * n * FLOAT_BYTES), floats(comb + row * n * n * FLOAT_BYTES)
        for k in range(n):
            o = floats(out + (row * n + k) * d * FLOAT_BYTES)
            weight = p[k]
            for i in range(d):
                o[i] = weight * v[i]
            for source in range(n):
                weight = c[source * n + k]
                for i in range(d):
                    o[i] += weight * x[source * d + i]


@kernel
def _head(streams, t, n, d, fn, base, scale, hc_eps, norm_eps, out):  # type: ignore[no-untyped-def]
    width = n * d
    mixes = np.empty((t, n), np.float32)
    pitch = width * FLOAT_BYTES
    product(streams, pitch, t, fn, 0, n, width, mixes.ctypes.data, n * FLOAT_BYTES)
    b, s = floats(base), floats(scale)
    for row in range(t):
        factor = inverse_rms(streams + row * pitch, width, norm_eps)
        m = mixes[row]
        for k in range(n):
            m[k] = _sigmoid(m[k] * factor * s[0] + b[k]) + np.float32(hc_eps)
        _weighted_sum(floats(streams + row * pitch), m, n, d, floats(out + row * d * FLOAT_BYTES))


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
    _pre(
        streams.data_ptr(),
        t,
        n,
        d,
        fn.address,
        base.data_ptr(),
        scale.data_ptr(),
        iterations,
        hc_eps,
        norm_eps,
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
    out = streams.new_empty(t, d)
    _head(
        streams.data_ptr(),
        t,
        n,
        d,
        fn.address,
        base.data_ptr(),
        scale.data_ptr(),
        hc_eps,
        norm_eps,
        out.data_ptr(),
    )
    return out
