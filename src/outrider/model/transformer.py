"""The trunk: token ids in, residual streams out, logits where they are wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from outrider import ops
from outrider.cache.batch import RequestRows
from outrider.cache.paged_cache import PagedCache
from outrider.config import ModelConfig, Numerics
from outrider.model.decoder_layer import DecoderLayer
from outrider.model.hyper_connections import StreamHead
from outrider.model.plan import Planner
from outrider.model.rounding import Rounding


class Transformer:
    """DeepSeek-V4 without its drafter. `weights`: official tensor name -> float32 (int for `tid2eid`)."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, Tensor], numerics: Numerics) -> None:
        self.config = config
        self.embedding = weights["embed.weight"]  # [V, d]
        self.vocabulary_head = ops.Linear(weights["head.weight"])
        rounding = Rounding(config, numerics)
        self._layers = [
            DecoderLayer(config, weights, f"layers.{i}.", kind, rounding, hash_routed=i < config.num_hash_layers)
            for i, kind in enumerate(config.layer_kinds)
        ]
        self._head = StreamHead(config, weights, "", self.vocabulary_head)
        self._planner = Planner(config, config.layer_kinds)

    def forward(self, token_ids: Tensor, rows: Sequence[RequestRows], cache: PagedCache) -> Tensor:
        """token_ids: [T] int64, the query tokens of `rows` in order -> streams before the head [T, n, d].

        Writes the cache rows of these tokens. The streams are also what the drafter takes.
        """
        plan = self._planner.plan(rows)
        streams = self.embedding[token_ids][:, None].repeat(1, self.config.hc_mult, 1)
        for layer, layer_cache in zip(self._layers, cache.layers, strict=True):
            streams = layer.forward(streams, token_ids, plan, layer_cache)
        return streams

    def logits(self, streams: Tensor) -> Tensor:
        """[M, n, d] -> [M, V] float32: the distribution of the token after each row's."""
        return self._head.logits(streams)
