"""Matrix product with rows that do not know of each other.

    y[t] = W @ x[t]        x: [T, K], W: [N, K], y: [T, N], float32

Each output is one dot product (see `vector`); tiles of up to 4 rows and 4 weights share loads and nothing else. Floor:
the bytes of W for few rows, T * N * K multiply-adds for many.
"""

from __future__ import annotations

from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from outrider.ops.native.compilation import kernel, part
from outrider.ops.native.rows import is_plain, row_view
from outrider.ops.native.threads import WORTH_A_THREAD, spread
from outrider.ops.native.vector import FLOAT_BYTES, dot_1x1, dot_1x4, dot_2x1, dot_2x4, dot_4x1, dot_4x2, floats
from outrider.ops.reference import linear as reference

_BLOCK_FLOATS = 32 * 1024  # weights that stay in the second-level cache while all rows pass by


@part
def row_tile(x0, x1, x2, x3, rows, weight, first, last, k, y0, y1, y2, y3):  # type: ignore[no-untyped-def]
    """y_r[n] = W[n] . x_r for n in first .. last - 1 and `rows` of 1 to 4 rows, given by address."""
    pitch = k * FLOAT_BYTES
    a, b, c, d = floats(y0), floats(y1), floats(y2), floats(y3)
    n = first
    if rows == 4:
        while n + 2 <= last:
            a[n], a[n + 1], b[n], b[n + 1], c[n], c[n + 1], d[n], d[n + 1] = dot_4x2(
                x0, x1, x2, x3, weight + n * pitch, pitch, k
            )
            n += 2
        if n < last:
            a[n], b[n], c[n], d[n] = dot_4x1(x0, x1, x2, x3, weight + n * pitch, pitch, k)
        return
    if rows >= 2:
        while n + 4 <= last:
            a[n], a[n + 1], a[n + 2], a[n + 3], b[n], b[n + 1], b[n + 2], b[n + 3] = dot_2x4(
                x0, x1, weight + n * pitch, pitch, k
            )
            n += 4
        while n < last:
            a[n], b[n] = dot_2x1(x0, x1, weight + n * pitch, pitch, k)
            n += 1
    if rows != 2:
        if rows == 3:
            x0, a = x2, c
        n = first
        while n + 4 <= last:
            a[n], a[n + 1], a[n + 2], a[n + 3] = dot_1x4(x0, weight + n * pitch, pitch, k)
            n += 4
        while n < last:
            (a[n],) = dot_1x1(x0, weight + n * pitch, pitch, k)
            n += 1


@part
def product(x, x_pitch, t, weight, first, last, k, y, y_pitch):  # type: ignore[no-untyped-def]
    """y[:, first:last] = x @ W[first:last].T; addresses, and pitches of rows in bytes."""
    block = max(8, _BLOCK_FLOATS // k)
    for start in range(first, last, block):
        end = min(start + block, last)
        for row in range(0, t, 4):
            x0, y0 = x + row * x_pitch, y + row * y_pitch
            row_tile(
                x0,
                x0 + x_pitch,
                x0 + 2 * x_pitch,
                x0 + 3 * x_pitch,
                min(4, t - row),
                weight,
                start,
                end,
                k,
                y0,
                y0 + y_pitch,
                y0 + 2 * y_pitch,
                y0 + 3 * y_pitch,
            )


@kernel
def _product(x, x_pitch, t, weight, first, last, k, y, y_pitch):  # type: ignore[no-untyped-def]
    product(x, x_pitch, t, weight, first, last, k, y, y_pitch)


class Linear(reference.Linear):
    """One weight matrix [N, K] float32; other inputs than plain float32 ones go through the reference's product."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight.contiguous()
        self.is_native = is_plain(weight)
        self.out_features, self.in_features = weight.shape
        self._padding = -self.in_features % reference._CACHE_LINE
        self.address = self.weight.data_ptr()

    # what the reference's product needs is made when it is first used

    @cached_property
    def _weight(self) -> Tensor:  # type: ignore[override]
        return F.pad(self.weight, (0, self._padding)) if self._padding else self.weight

    @cached_property
    def _packed(self) -> Tensor | None:  # type: ignore[override]
        if not reference._can_pack(self.weight):
            return None
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(self._weight, reference.ROW_TILE)
        return packed

    def __call__(self, x: Tensor) -> Tensor:
        """x: [..., K] float32 -> [..., N] float32."""
        if not (self.is_native and is_plain(x)):
            return super().__call__(x)
        n, k = self.out_features, self.in_features
        rows, count, pitch = row_view(x)
        out = x.new_empty(count, n) if x.ndim == 2 else x.new_empty(*x.shape[:-1], n)
        source, weight, target = rows.data_ptr(), self.address, out.data_ptr()
        work = count * n * k
        if work < WORTH_A_THREAD:
            _product(source, pitch, count, weight, 0, n, k, target, n * FLOAT_BYTES)
        else:
            spread(lambda a, b: _product(source, pitch, count, weight, a, b, k, target, n * FLOAT_BYTES), n, work, 16)
        return out
