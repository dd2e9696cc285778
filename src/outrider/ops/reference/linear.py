"""Matrix product with rows that do not know of each other.

    y[t] = W @ x[t]        x: [T, K], W: [N, K], y: [T, N], float32

Rows are taken ROW_TILE at a time (the last tile padded with zeros), so that the library runs one kernel, with one
reduction order, however many rows there are. The tile size and the kernel depend on the shape of W alone. Every row of
a tile, of W and of the result starts on a cache line (K and N are padded where they must be): small products add up in
another order where one does not.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

ROW_TILE = 4
# oneDNN with a weight packed ahead of time reads W once for a whole tile; its call costs more than it saves below this.
_PACK_MIN_ELEMENTS = 1 << 17
_CACHE_LINE = 16  # floats


class Linear:
    """One weight matrix, ready for row-tiled products. `weight`: [N, K] float32, on the CPU or another device."""

    def __init__(self, weight: Tensor) -> None:
        self.out_features, self.in_features = weight.shape
        self._padding = -self.in_features % _CACHE_LINE
        self._weight = F.pad(weight, (0, self._padding, 0, -self.out_features % _CACHE_LINE)).contiguous()
        self._packed: Tensor | None = None
        if _can_pack(weight):
            self._packed = torch.ops.mkldnn._reorder_linear_weight(self._weight, ROW_TILE)

    def __call__(self, x: Tensor) -> Tensor:
        """x: [..., K] float32 -> [..., N] float32."""
        rows = x.reshape(-1, self.in_features)
        count = rows.shape[0]
        tiles = max(1, -(-count // ROW_TILE))
        missing = tiles * ROW_TILE - count
        if missing or self._padding:
            rows = F.pad(rows, (0, self._padding, 0, missing))
        rows = rows.contiguous()
        if tiles == 1:
            out = self._tile(rows)
        else:
            out = torch.cat([self._tile(tile) for tile in rows.split(ROW_TILE)])
        return out[:count, : self.out_features].reshape(*x.shape[:-1], self.out_features)

    def _tile(self, rows: Tensor) -> Tensor:
        rows = aligned(rows)
        if self._packed is None:
            return F.linear(rows, self._weight)
        return torch.ops.mkldnn._linear_pointwise(rows, self._packed, None, "none", [], "")


def aligned(x: Tensor) -> Tensor:
    """x, copied if it does not start on a cache line: the library's sums depend on how its operands are aligned."""
    return x if x.data_ptr() % 64 == 0 else x.clone()


def matrix_product(a: Tensor, b: Tensor, out: Tensor) -> None:
    """out = a @ b for one row of a batch (slices, at any offset): the same bits wherever in the batch the row lies."""
    a, b = aligned(a), aligned(b)
    if out.data_ptr() % 64 == 0:
        torch.mm(a, b, out=out)
    else:
        out.copy_(torch.mm(a, b))


def _can_pack(weight: Tensor) -> bool:
    return (
        weight.device.type == "cpu"
        and weight.numel() >= _PACK_MIN_ELEMENTS
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )
