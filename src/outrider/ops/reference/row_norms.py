"""Norms and activations of bfloat16 rows, with the FP8 rows that the next product takes.

    norm_rows     RMSNorm(x; weight)
    mtp_rows      [RMSNorm(embedding[id]; enorm), RMSNorm(X_k; hnorm)] for each stream k: with [e_proj | h_proj] as one
                  matrix, Z_k = e_proj e + h_proj g_k is one product. No position is masked (spec 3.3)
    swiglu_rows   silu(min(gate, limit)) * clamp(up, -limit, limit)

All in float32, rounded to bfloat16 once; FP8 rows are those of the bfloat16 values (spec 5.1).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from outrider.ops.reference.activations import clamped_swiglu
from outrider.ops.reference.norms import rms_norm
from outrider.ops.reference.scaled_linear import Fp8Rows, quantize_rows
from outrider.platforms.architectures import Fp8Dialect


class Rows(NamedTuple):
    """values: [..., D] bfloat16; fp8: the same rows quantised, or None where no dialect was asked for."""

    values: Tensor
    fp8: Fp8Rows | None


def norm_rows(x: Tensor, weight: Tensor, eps: float, dialect: Fp8Dialect | None = None) -> Rows:
    """x: [T, D] bfloat16, rows contiguous (a slice of wider ones will do); weight: [D] bfloat16 or float32."""
    return _rows(rms_norm(x.float(), weight.float(), eps), dialect)


def mtp_rows(
    streams: Tensor,
    embedding: Tensor,
    token_ids: Tensor,
    enorm: Tensor,
    hnorm: Tensor,
    eps: float,
    dialect: Fp8Dialect | None = None,
) -> Rows:
    """streams: [T, n, D] bfloat16, of the token before each row's; embedding: [V, D] bfloat16; token_ids: [T] int64;
    enorm, hnorm: [D] -> [T, n, 2 D]. An id outside the vocabulary is our own bug; padded rows take id 0."""
    embedded = rms_norm(embedding[token_ids].float(), enorm.float(), eps)
    normed = rms_norm(streams.float(), hnorm.float(), eps)
    return _rows(torch.cat([embedded[:, None].expand_as(normed), normed], dim=-1), dialect)


def swiglu_rows(gate_up: Tensor, limit: float, dialect: Fp8Dialect | None = None) -> Rows:
    """gate_up: [T, 2 I] bfloat16, gate first -> [T, I]. `limit`: the model's swiglu_limit."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return _rows(clamped_swiglu(gate, up, limit), dialect)


def _rows(x: Tensor, dialect: Fp8Dialect | None) -> Rows:
    values = x.to(torch.bfloat16)
    return Rows(values, None if dialect is None else quantize_rows(values, dialect))
