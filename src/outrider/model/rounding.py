"""The round trips that the model was trained with, or those of other cache formats, as `Numerics` says."""

from __future__ import annotations

import torch
from torch import Tensor

from outrider import ops
from outrider.config import ModelConfig, Numerics

_ACTIVATION_BLOCK = 128


class Rounding:
    """Rounds values as the formats they would be stored or multiplied in do; each method returns float32."""

    def __init__(self, config: ModelConfig, numerics: Numerics) -> None:
        self._numerics = numerics
        self._nope = config.nope_head_dim
        self._kv_block = config.kv_quant_block
        self._indexer_block = config.indexer_quant_block

    def kv(self, rows: Tensor) -> Tensor:
        """[T, head_dim], latent rows and compressed entries as the cache would hold them. In place."""
        dtype, nope = self._numerics.kv_cache_dtype, self._nope
        if dtype in ("auto", "fp8"):
            rows[:, :nope] = ops.round_trip_fp8(rows[:, :nope], self._kv_block)
        if dtype == "fp8":
            rows[:, nope:] = _round_trip_bf16(rows[:, nope:])
        elif dtype == "bf16":
            rows.copy_(_round_trip_bf16(rows))
        return rows

    def indexer(self, rows: Tensor) -> Tensor:
        """[..., index_head_dim], keys and queries of the indexer as they would be multiplied."""
        dtype = self._numerics.indexer_dtype
        if dtype == "fp4":
            return ops.round_trip_fp4(ops.hadamard(rows), self._indexer_block)
        if dtype == "fp8":
            return ops.round_trip_fp8(ops.hadamard(rows), rows.shape[-1])
        # the rotation, equal on both sides, cancels
        return _round_trip_bf16(rows) if dtype == "bf16" else rows

    def linear_input(self, x: Tensor) -> Tensor:
        """[..., K]: input of an FP8 or FP4 weight, E4M3 with one scale per 128 values (or per row where K is less)."""
        if self._numerics.activation_fp8:
            width = x.shape[-1]
            return ops.round_trip_fp8(x, _ACTIVATION_BLOCK if width % _ACTIVATION_BLOCK == 0 else width)
        return x


def _round_trip_bf16(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16).float()
