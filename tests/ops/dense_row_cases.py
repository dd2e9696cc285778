"""Row cases of products, norms and draws of bfloat16 and FP8 rows, as GPUs take them. CASES here are all of them."""

from __future__ import annotations

from typing import Any

import torch
from tests.ops.row_cases import CASES, ROWS, Built, case
from torch import Tensor, randn

from outrider.ops import formats
from outrider.platforms.architectures import Fp8Dialect

__all__ = ["CASES"]


def _as_tuple(rows: Any) -> tuple[Tensor, ...]:
    """Rows with or without their FP8 form."""
    return (rows.values,) if rows.fp8 is None else (rows.values, rows.fp8.codes, rows.fp8.scales)


def _scaled_linear(ops: Any, op: str, n: int, k: int, *, fp8: bool) -> Built:
    weight = (
        ops.fp8_weight(*formats.quantize_fp8_block(randn(n, k))) if fp8 else ops.bf16_weight(randn(n, k).bfloat16())
    )
    return (lambda x: getattr(ops, op)(x, weight)), (randn(ROWS, k).bfloat16(),)


def _quantize_rows(ops: Any, width: int) -> Built:
    return (lambda x: tuple(ops.quantize_rows(x)[:2])), (randn(ROWS, width).bfloat16(),)


def _row_values(ops: Any, width: int) -> Built:
    return (lambda x: ops.row_values(ops.quantize_rows(x))), (randn(ROWS, width).bfloat16(),)


def _norm_rows(ops: Any, width: int) -> Built:
    weight = randn(width)
    return (lambda x: _as_tuple(ops.norm_rows(x, weight, 1e-6, Fp8Dialect.OCP))), (randn(ROWS, width).bfloat16(),)


def _swiglu_rows(ops: Any, width: int) -> Built:
    return (lambda x: _as_tuple(ops.swiglu_rows(x, 10.0))), (15 * randn(ROWS, 2 * width).bfloat16(),)


def _mtp_rows(ops: Any, width: int) -> Built:
    embedding, enorm, hnorm = randn(9, width).bfloat16(), randn(width), randn(width)

    def call(streams: Tensor, token_ids: Tensor) -> tuple[Tensor, ...]:
        return _as_tuple(ops.mtp_rows(streams, embedding, token_ids, enorm, hnorm, 1e-6))

    return call, (randn(ROWS, 4, width).bfloat16(), torch.randint(0, 9, (ROWS,)))


def _mhc_site(ops: Any, op: str, d: int) -> Built:
    rows = 24 if op == "mhc_site" else 4
    weights = ops.MixWeights(randn(rows, 4 * d) / 8, randn(rows), torch.rand(3 if op == "mhc_site" else 1))
    norm_weight, eps = torch.rand(d), {"hc_eps": 1e-6, "norm_eps": 1e-6}

    def call(streams: Tensor, y: Tensor, post: Tensor, comb: Tensor) -> tuple[Tensor, ...]:
        written = ops.Written(y, post, comb)
        if op == "mhc_head":
            streams, read = ops.mhc_head(streams, written, weights, norm_weight, **eps)
            return streams, *_as_tuple(read)
        site = ops.mhc_site(streams, written, weights, norm_weight, iterations=20, **eps)
        return site.streams, *_as_tuple(site.rows), site.post, site.comb

    return call, (randn(ROWS, 4, d).bfloat16(), randn(ROWS, d).bfloat16(), torch.rand(ROWS, 4), torch.rand(ROWS, 4, 4))


def _sample_tokens(ops: Any, vocab_size: int) -> Built:
    def call(logits: Tensor, *asked: Tensor) -> Tensor:
        return ops.sample_tokens(logits, ops.Draws(*asked, True))

    drawn = (torch.randint(0, 1 << 62, (ROWS,)), torch.arange(ROWS), 2 * torch.rand(ROWS).round(decimals=1))
    filters = (torch.randint(0, 9, (ROWS,), dtype=torch.int32), torch.rand(ROWS).clamp_min(0.1), torch.rand(ROWS) / 9)
    return call, (2 * randn(ROWS, vocab_size), *drawn, *filters)


def _best_tokens(ops: Any, vocab_size: int) -> Built:
    return ops.best_tokens, (torch.randint(0, 9, (ROWS, vocab_size)).float(),)


for fp8 in (False, True):
    for op in ("scaled_linear", "greedy_tokens"):
        case(op, f"256 to 77 {'fp8' if fp8 else 'bf16'}", _scaled_linear, op, 77, 256, fp8=fp8)
case("quantize_rows", "384", _quantize_rows, 384)
case("row_values", "384", _row_values, 384)
case("norm_rows", "384", _norm_rows, 384)
case("swiglu_rows", "123", _swiglu_rows, 123)
case("mtp_rows", "123", _mtp_rows, 123)
for op in ("mhc_site", "mhc_head"):
    case(op, "123", _mhc_site, op, 123)
case("sample_tokens", "1023", _sample_tokens, 1023)
case("best_tokens", "1023", _best_tokens, 1023)
