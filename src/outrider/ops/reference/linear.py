"""Matrix product with rows that do not know of each other.

    y[t] = W @ x[t]        x: [T, K], W: [N, K], y: [T, N], float32

Rows are taken ROW_TILE at a time (the last tile padded with zeros), so that the library runs one kernel, with one
reduction order, however many rows there are. The tile size and the kernel depend on the shape of W alone.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

ROW_TILE = 4
# oneDNN with a weight packed ahead of time reads W once for a whole tile; its call costs more than it saves below this.
_PACK_MIN_ELEMENTS = 1 << 17


class Linear:
    """One weight matrix, ready for row-tiled products. `weight`: [N, K] float32, on the CPU or another device."""

    def __init__(self, weight: Tensor) -> None:
        self.out_features, self.in_features = weight.shape
        self._weight = weight.contiguous()
        self._packed: Tensor | None = None
        if _can_pack(weight):
            self._packed = torch.ops.mkldnn._reorder_linear_weight(self._weight, ROW_TILE)

    def __call__(self, x: Tensor) -> Tensor:
        """x: [..., K] float32 -> [..., N] float32."""
        rows = x.reshape(-1, self.in_features)
        count = rows.shape[0]
        if count == ROW_TILE:
            out = self._tile(rows)
        elif count < ROW_TILE:
            padded = rows.new_zeros(ROW_TILE, self.in_features)
            padded[:count] = rows
            out = self._tile(padded)[:count]
        else:
            padding = -count % ROW_TILE
            if padding:
                rows = torch.cat([rows, rows.new_zeros(padding, self.in_features)])
            out = torch.cat([self._tile(tile) for tile in rows.split(ROW_TILE)])[:count]
        return out.view(*x.shape[:-1], self.out_features)

    def _tile(self, rows: Tensor) -> Tensor:
        if self._packed is None:
            return F.linear(rows, self._weight)
        return torch.ops.mkldnn._linear_pointwise(rows, self._packed, None, "none", [], "")


def _can_pack(weight: Tensor) -> bool:
    return (
        weight.device.type == "cpu"
        and weight.numel() >= _PACK_MIN_ELEMENTS
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )
