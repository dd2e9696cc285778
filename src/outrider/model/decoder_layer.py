"""One layer: attention and experts, each between a read and a write of the residual streams."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from outrider import ops
from outrider.cache.paged_cache import LayerCache
from outrider.config import LayerKind, ModelConfig
from outrider.model.attention import Attention
from outrider.model.experts import MixtureOfExperts
from outrider.model.hyper_connections import HyperConnection
from outrider.model.plan import ForwardPlan
from outrider.model.rounding import Rounding


class DecoderLayer:
    """`prefix`: "layers.{i}." or "mtp.0."."""

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, Tensor],
        prefix: str,
        kind: LayerKind,
        rounding: Rounding,
        *,
        hash_routed: bool,
    ) -> None:
        self._eps = config.rms_norm_eps
        self._attn_site = HyperConnection(config, weights, prefix + "hc_attn_")
        self._attn_norm = weights[prefix + "attn_norm.weight"]
        self._attention = Attention(config, weights, prefix + "attn.", kind, rounding)
        self._ffn_site = HyperConnection(config, weights, prefix + "hc_ffn_")
        self._ffn_norm = weights[prefix + "ffn_norm.weight"]
        self._experts = MixtureOfExperts(config, weights, prefix + "ffn.", rounding, hash_routed=hash_routed)

    def forward(self, streams: Tensor, token_ids: Tensor, plan: ForwardPlan, cache: LayerCache) -> Tensor:
        """streams [T, n, d], token_ids [T] -> streams of the query rows [Q, n, d]."""
        u, post, comb = self._attn_site.read(streams)
        y = self._attention.forward(ops.rms_norm(u, self._attn_norm, self._eps), plan, cache)
        rows = plan.batch.query_rows
        if rows is not None:
            streams, token_ids, post, comb = streams[rows], token_ids[rows], post[rows], comb[rows]
        streams = self._attn_site.write(y, streams, post, comb)
        u, post, comb = self._ffn_site.read(streams)
        y = self._experts.forward(ops.rms_norm(u, self._ffn_norm, self._eps), token_ids)
        return self._ffn_site.write(y, streams, post, comb)
