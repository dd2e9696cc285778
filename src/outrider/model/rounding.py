"""The round trips that the model was trained with, switched on or off by `Numerics`."""

from __future__ import annotations

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
        """[T, head_dim]: E4M3 for the dims that are not rotated; the rotated ones stay. In place."""
        if self._numerics.kv_round_trip:
            rows[:, : self._nope] = ops.round_trip_fp8(rows[:, : self._nope], self._kv_block)
        return rows

    def indexer(self, rows: Tensor) -> Tensor:
        """[..., index_head_dim]: Hadamard rotation, then E2M1; without rounding the rotation cancels: left out."""
        if self._numerics.indexer_round_trip:
            return ops.round_trip_fp4(ops.hadamard(rows), self._indexer_block)
        return rows

    def linear_input(self, x: Tensor) -> Tensor:
        """[..., K]: input of an FP8 or FP4 weight, E4M3 with one scale per 128 values (or per row where K is less)."""
        if self._numerics.activation_fp8:
            width = x.shape[-1]
            return ops.round_trip_fp8(x, _ACTIVATION_BLOCK if width % _ACTIVATION_BLOCK == 0 else width)
        return x
