"""Attention of V4: low-rank queries, one latent row a token that is key and value, a window and compressed entries.

qr = RMSNorm(wq_a x);  q = rope(headnorm(wq_b qr));  kv = rope(RMSNorm(wkv x))
o  = attend(q; entries, window) with a sink, un-rotated at the query's position
y  = wo_b [wo_a_g o_g for each group g of heads]
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from outrider import ops
from outrider.cache.paged_cache import LayerCache
from outrider.config import LayerKind, ModelConfig
from outrider.model.compressor import Compressor
from outrider.model.indexer import Indexer
from outrider.model.plan import EntryReads, ForwardPlan, KindPlan
from outrider.model.rounding import Rounding


class Attention:
    """`prefix`: official name up to and with `attn.`."""

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, Tensor],
        prefix: str,
        kind: LayerKind,
        rounding: Rounding,
    ) -> None:
        self._kind = kind
        self._heads = config.num_attention_heads
        self._groups = config.o_groups
        self._q_lora_rank = config.q_lora_rank
        self._scale = config.head_dim**-0.5
        self._eps = config.rms_norm_eps
        self._rounding = rounding
        self._wq_a_wkv = ops.Linear(torch.cat([weights[prefix + "wq_a.weight"], weights[prefix + "wkv.weight"]]))
        self._wq_b = ops.Linear(weights[prefix + "wq_b.weight"])
        self._q_norm = weights[prefix + "q_norm.weight"]
        self._kv_norm = weights[prefix + "kv_norm.weight"]
        self._sink = weights[prefix + "attn_sink"]
        self._wo_a = [ops.Linear(group) for group in weights[prefix + "wo_a.weight"].chunk(self._groups)]
        self._wo_b = ops.Linear(weights[prefix + "wo_b.weight"])
        self._compressor: Compressor | None = None
        self._index_compressor: Compressor | None = None
        self._indexer: Indexer | None = None
        if kind != LayerKind.WINDOW:
            self._compressor = Compressor(weights, prefix + "compressor.", kind, self._eps, rounding.kv)
        if kind == LayerKind.CSA:
            self._indexer = Indexer(config, weights, prefix + "indexer.", rounding)
            self._index_compressor = Compressor(
                weights, prefix + "indexer.compressor.", kind, self._eps, rounding.indexer
            )

    def forward(self, x: Tensor, plan: ForwardPlan, cache: LayerCache) -> Tensor:
        """x: [T, d], normed input of the rows -> [Q, d] for the query rows. Writes the rows' cache first."""
        kind, batch = plan.kinds[self._kind], plan.batch
        latent, kv = self._wq_a_wkv(self._rounding.linear_input(x)).split(
            [self._q_lora_rank, cache.window.shape[1]], dim=-1
        )
        kv = ops.apply_rope(ops.rms_norm(kv, self._kv_norm, self._eps), kind.rotation)
        cache.window[batch.write_slots] = self._rounding.kv(kv)
        self._compress(x, plan, kind, cache)
        if batch.query_rows is not None:
            x, latent = x[batch.query_rows], latent[batch.query_rows]
        latent = ops.rms_norm(latent, self._q_norm, self._eps)
        q = self._wq_b(self._rounding.linear_input(latent)).unflatten(-1, (self._heads, -1))
        q = ops.apply_rope(ops.rms_norm(q, None, self._eps), kind.query_rotation)
        out = self._attend(q, x, latent, plan, kind, cache)
        out = ops.apply_rope(out, kind.query_rotation.inverse())
        return self._project(out)

    def _compress(self, x: Tensor, plan: ForwardPlan, kind: KindPlan, cache: LayerCache) -> None:
        for compressor, partial, entries in (
            (self._compressor, cache.partial, cache.entries),
            (self._index_compressor, cache.index_partial, cache.index_keys),
        ):
            if compressor is not None:
                assert partial is not None and entries is not None
                assert kind.compression is not None and kind.entry_rotation is not None
                compressor.forward(x, plan.batch, kind.compression, kind.entry_rotation, partial, entries)

    def _attend(
        self, q: Tensor, x: Tensor, latent: Tensor, plan: ForwardPlan, kind: KindPlan, cache: LayerCache
    ) -> Tensor:
        window = plan.batch.window
        if self._compressor is None:
            return ops.sparse_attention(q, cache.window, window, None, None, self._sink, self._scale)
        out = torch.empty_like(q)
        for reads in kind.reads:
            slots = self._entry_slots(x, latent, plan, kind, reads, cache)
            if reads.all_rows:
                return ops.sparse_attention(q, cache.window, window, cache.entries, slots, self._sink, self._scale)
            rows = reads.rows
            out[rows] = ops.sparse_attention(
                q[rows], cache.window, window.select(rows), cache.entries, slots, self._sink, self._scale
            )
        return out

    def _entry_slots(
        self, x: Tensor, latent: Tensor, plan: ForwardPlan, kind: KindPlan, reads: EntryReads, cache: LayerCache
    ) -> ops.KeySlots:
        """Slots of the entries that a group of queries reads; asks the indexer where more are visible than allowed."""
        if self._indexer is None or reads.scored.numel() == 0:
            return reads.slots
        assert kind.visible is not None and cache.index_keys is not None
        rows = reads.rows[reads.scored]
        requests = plan.batch.query_requests
        entries = reads.entries.clone()
        entries[reads.scored] = self._indexer.select(
            x[rows],
            latent[rows],
            kind.query_rotation.select(rows),
            requests[rows],
            kind.visible[rows],
            plan.batch,
            cache.index_keys,
        )
        return ops.key_slots(plan.batch.entry_slots(requests[reads.rows], entries, int(self._kind)))

    def _project(self, out: Tensor) -> Tensor:
        """[Q, H, D] -> [Q, d]: each group of heads through its own low-rank matrix, then all of them together."""
        grouped = out.flatten(1).chunk(self._groups, dim=-1)
        latent = torch.cat([wo_a(part) for wo_a, part in zip(self._wo_a, grouped, strict=True)], dim=-1)
        return self._wo_b(self._rounding.linear_input(latent))
