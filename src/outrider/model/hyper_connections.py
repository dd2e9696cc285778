"""The two mHC sites of a layer, and the collapse of the streams before a head."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from outrider import ops
from outrider.config import ModelConfig


class HyperConnection:
    """One site. `prefix`: official name up to and with `hc_attn_` or `hc_ffn_`."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, Tensor], prefix: str) -> None:
        self._weights = ops.HyperConnectionWeights(
            ops.Linear(weights[prefix + "fn"]), weights[prefix + "base"], weights[prefix + "scale"]
        )
        self._iterations = config.hc_sinkhorn_iters
        self._hc_eps = config.hc_eps
        self._norm_eps = config.rms_norm_eps

    def read(self, streams: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """streams [T, n, d] -> what the sublayer reads [T, d], and post [T, n] and comb [T, n, n] for `write`."""
        return ops.mhc_pre(
            streams, self._weights, iterations=self._iterations, hc_eps=self._hc_eps, norm_eps=self._norm_eps
        )

    @staticmethod
    def write(y: Tensor, streams: Tensor, post: Tensor, comb: Tensor) -> Tensor:
        """y [T, d] and the streams that were read -> new streams [T, n, d]."""
        return ops.mhc_post(y, streams, post, comb)


class StreamHead:
    """Streams -> logits: collapse, norm, vocabulary head. `prefix`: "" for the trunk, "mtp.0." for the drafter."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, Tensor], prefix: str, head: ops.Linear) -> None:
        self._collapse = ops.HcHeadWeights(
            ops.Linear(weights[prefix + "hc_head_fn"]),
            weights[prefix + "hc_head_base"],
            weights[prefix + "hc_head_scale"],
        )
        self._norm = weights[prefix + "norm.weight"]
        self._head = head
        self._hc_eps = config.hc_eps
        self._norm_eps = config.rms_norm_eps

    def logits(self, streams: Tensor) -> Tensor:
        """[M, n, d] -> [M, vocab_size] float32."""
        hidden = ops.hc_head(streams, self._collapse, hc_eps=self._hc_eps, norm_eps=self._norm_eps)
        return self._head(ops.rms_norm(hidden, self._norm, self._norm_eps))
