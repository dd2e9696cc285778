"""Pooling of a window of tokens into one entry: e = sum_t softmax_t(z_t) * a_t, separately for every channel."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from outrider.ops.native.compilation import kernel
from outrider.ops.native.rows import is_plain
from outrider.ops.native.vector import FLOAT_BYTES, exp, floats
from outrider.ops.reference import compressor as reference

_ZERO = np.float32(0.0)


@kernel
def _pool(values, value_window, value_token, gates, gate_window, gate_token, windows, n, d, scratch, out):  # type: ignore[no-untyped-def]
    """scratch: [2, d] floats."""
    top, total = floats(scratch), floats(scratch + d * FLOAT_BYTES)
    for window in range(windows):
        value, gate = values + window * value_window, gates + window * gate_window
        o, z = floats(out + window * d * FLOAT_BYTES), floats(gate)
        for i in range(d):
            top[i], total[i], o[i] = z[i], _ZERO, _ZERO
        for t in range(1, n):
            z = floats(gate + t * gate_token)
            for i in range(d):
                top[i] = z[i] if z[i] > top[i] else top[i]
        for t in range(n):
            z, a = floats(gate + t * gate_token), floats(value + t * value_token)
            for i in range(d):
                weight = exp(z[i] - top[i])
                total[i] += weight
                o[i] += weight * a[i]
        for i in range(d):
            o[i] /= total[i]


def pool_windows(values: Tensor, gates: Tensor) -> Tensor:
    """values, gates: [C, n, D] float32 (a gate of -inf leaves its token out) -> [C, D]."""
    if not (is_plain(values) and is_plain(gates)):
        return reference.pool_windows(values, gates)
    if values.stride(2) != 1:
        values = values.contiguous()
    if gates.stride(2) != 1:
        gates = gates.contiguous()
    windows, n, d = values.shape
    out, scratch = values.new_empty(windows, d), values.new_empty(2, d)
    _pool(
        values.data_ptr(),
        values.stride(0) * FLOAT_BYTES,
        values.stride(1) * FLOAT_BYTES,
        gates.data_ptr(),
        gates.stride(0) * FLOAT_BYTES,
        gates.stride(1) * FLOAT_BYTES,
        windows,
        n,
        d,
        scratch.data_ptr(),
        out.data_ptr(),
    )
    return out
