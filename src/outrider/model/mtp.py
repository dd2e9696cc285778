"""The MTP layer: drafts the token after next from the trunk's residual streams and the next token.

    e   = RMSNorm(embed[x_t]; enorm),   g_k = RMSNorm(X_{t-1, k}; hnorm)      for each stream k
    Z_k = e_proj e + h_proj g_k;   Z' = layer(Z);   logits = head(RMSNorm(hc_head(Z')))  ->  x_{t+1}

The row built from (X_{t-1}, x_t) is stored at position t, with its token; the layer has only a sliding window and
relative positions, so this equals the convention that stores it at t - 1. There is no row at position 0. For the second
and later drafts the layer's own Z' takes the place of X. Embedding and vocabulary head are the trunk's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from outrider import ops
from outrider.cache.batch import RequestRows
from outrider.cache.paged_cache import LayerCache
from outrider.config import LayerKind, Numerics
from outrider.model.decoder_layer import DecoderLayer
from outrider.model.hyper_connections import StreamHead
from outrider.model.plan import Planner
from outrider.model.rounding import Rounding
from outrider.model.transformer import Transformer

_PREFIX = "mtp.0."


class MultiTokenPredictor:
    """The drafter's layer, beside the trunk whose embedding and head it shares."""

    def __init__(self, trunk: Transformer, weights: Mapping[str, Tensor], numerics: Numerics) -> None:
        config = trunk.config
        self._eps = config.rms_norm_eps
        self._embedding = trunk.embedding
        self._enorm = weights[_PREFIX + "enorm.weight"]
        self._hnorm = weights[_PREFIX + "hnorm.weight"]
        self._e_proj = ops.Linear(weights[_PREFIX + "e_proj.weight"])
        self._h_proj = ops.Linear(weights[_PREFIX + "h_proj.weight"])
        self._rounding = Rounding(config, numerics)
        self._layer = DecoderLayer(config, weights, _PREFIX, LayerKind.WINDOW, self._rounding, hash_routed=False)
        self._head = StreamHead(config, weights, _PREFIX, trunk.vocabulary_head)
        self._planner = Planner(config, [LayerKind.WINDOW])

    def forward(
        self,
        previous_streams: Tensor,
        token_ids: Tensor,
        rows: Sequence[RequestRows],
        cache: LayerCache,
        *,
        query_rows: Sequence[int] | None = None,
    ) -> Tensor:
        """previous_streams: [T, n, d], of the token before each row's; token_ids: [T] -> Z' of the query rows.

        All rows are written to the cache; only `query_rows` (None: all) are computed to the end: [Q, n, d].
        """
        rows = [replace(item, first_position=max(item.first_position, 1)) for item in rows]
        embedded = ops.rms_norm(self._embedding[token_ids], self._enorm, self._eps)
        normed = ops.rms_norm(previous_streams, self._hnorm, self._eps)
        from_token = self._e_proj(self._rounding.linear_input(embedded))
        from_state = self._h_proj(self._rounding.linear_input(normed))
        plan = self._planner.plan(rows, query_rows=query_rows)
        return self._layer.forward(from_state.add_(from_token[:, None]), token_ids, plan, cache)

    def logits(self, streams: Tensor) -> Tensor:
        """[M, n, d] -> [M, V] float32: the distribution of the token after each row's."""
        return self._head.logits(streams)
