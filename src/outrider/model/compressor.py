"""Compressor: pools windows of tokens into entries, from rows that are stored per token.

    a = wkv x,   z = wgate x + ape[t mod r]           stored at position t
    entry w      = RMSNorm(pool of window w), rotated to the position of the window's first token

With overlap (ratio 4) every row has two halves: an entry pools the left halves of the window before it and the right
halves of its own. Nothing is accumulated, so a token that is rejected leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from outrider import ops
from outrider.cache.batch import Batch, CompressionPlan
from outrider.config import LayerKind


class Compressor:
    """`prefix`: official name up to and with `compressor.`; `finish` rounds the entries before they are stored."""

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        prefix: str,
        kind: LayerKind,
        norm_eps: float,
        finish: Callable[[Tensor], Tensor],
    ) -> None:
        self._ratio = int(kind)
        self._overlap = kind == LayerKind.CSA
        self._wkv_wgate = ops.Linear(torch.cat([weights[prefix + "wkv.weight"], weights[prefix + "wgate.weight"]]))
        self._ape = weights[prefix + "ape"]
        self._norm = weights[prefix + "norm.weight"]
        self._norm_eps = norm_eps
        self._finish = finish

    def forward(
        self,
        x: Tensor,
        batch: Batch,
        plan: CompressionPlan,
        entry_rotation: ops.Rotation,
        partial_cache: Tensor,
        entry_cache: Tensor,
    ) -> None:
        """x: [T, d]. Stores the partial rows of every token and the entries that these tokens complete."""
        values_gates = self._wkv_wgate(x)
        values_gates[:, values_gates.shape[1] // 2 :] += self._ape[batch.positions % self._ratio]
        partial_cache[batch.write_slots] = values_gates
        if plan.closing_rows.numel() == 0:
            return
        values, gates = self._windows(partial_cache[plan.source_slots])
        entries = ops.pool_windows(values, gates + plan.source_bias)
        entries = ops.apply_rope(ops.rms_norm(entries, self._norm, self._norm_eps), entry_rotation)
        entry_cache[plan.entry_slots] = self._finish(entries)

    def _windows(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """[C, n, 2 c D] rows [a | z] -> values and gates, each [C, n, D]."""
        values, gates = rows.chunk(2, dim=-1)
        if not self._overlap:
            return values, gates
        return self._halves(values), self._halves(gates)

    def _halves(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=-1)
        return torch.cat([left[:, : self._ratio], right[:, self._ratio :]], dim=1)
