"""Lightning indexer of a CSA layer: picks the index_topk entries that a query attends."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from outrider import ops
from outrider.cache.batch import ENTRY_TILE, Batch, visible_entries
from outrider.config import LayerKind, ModelConfig
from outrider.model.rounding import Rounding


class Indexer:
    def __init__(self, config: ModelConfig, weights: Mapping[str, Tensor], prefix: str, rounding: Rounding) -> None:
        self._heads = config.index_n_heads
        self._topk = config.index_topk
        self._weight_scale = config.index_head_dim**-0.5 * config.index_n_heads**-0.5
        self._wq_b = ops.Linear(weights[prefix + "wq_b.weight"])
        self._weights_proj = ops.Linear(weights[prefix + "weights_proj.weight"])
        self._rounding = rounding

    def select(
        self,
        x: Tensor,
        query_latent: Tensor,
        rotation: ops.Rotation,
        requests: Tensor,
        visible: Tensor,
        batch: Batch,
        index_keys: Tensor,
    ) -> Tensor:
        """Entries of queries that see more than index_topk of them, ascending: [t, index_topk] int64.

        x: [t, d] and query_latent: [t, q_lora_rank] of these queries; requests, visible: [t].
        """
        q = self._wq_b(self._rounding.linear_input(query_latent)).unflatten(-1, (self._heads, -1))
        q = self._rounding.indexer(ops.apply_rope(q, rotation))
        head_weights = self._weights_proj(x).mul_(self._weight_scale)
        # the keys of a query are padded by its own position, never by its neighbours'
        counts = ((visible + ENTRY_TILE - 1) // ENTRY_TILE * ENTRY_TILE).tolist()
        scores = q.new_full((q.shape[0], max(counts)), float("-inf"))
        for row, count in enumerate(counts):
            entries = visible_entries(visible[row : row + 1], count)
            slots = batch.entry_slots(requests[row : row + 1], entries, int(LayerKind.CSA))[0]
            seen = ops.indexer_scores(q[row], head_weights[row], index_keys[slots.clamp_min(0)])
            scores[row, :count] = torch.where(slots < 0, float("-inf"), seen)
        return ops.top_entries(scores, self._topk)
