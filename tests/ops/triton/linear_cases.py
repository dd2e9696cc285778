"""Weights and rows in every format that a product takes."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from outrider.ops.formats import quantize_fp8_block
from outrider.ops.reference.scaled_linear import Fp8Rows, LinearWeight, bf16_weight, fp8_weight, quantize_rows
from outrider.platforms.architectures import Fp8Dialect


class Format(NamedTuple):
    """dialect: of an FP8 weight, None for bfloat16."""

    dialect: Fp8Dialect | None
    fp8_rows: bool


OCP, FNUZ = Fp8Dialect
FORMATS = {
    "bf16": Format(None, False),
    "fp8 bf16": Format(OCP, False),
    "fp8": Format(OCP, True),
    "fnuz bf16": Format(FNUZ, False),
    "fnuz": Format(FNUZ, True),
}


def random_weight(name: str, rows: int, width: int) -> LinearWeight:
    """Blocks of different magnitudes."""
    size = torch.rand(rows, width // 128).mul(6).sub(3).exp2().repeat_interleave(128, 1)
    values = torch.randn(rows, width) * size
    dialect = FORMATS[name].dialect
    if dialect is None:
        return bf16_weight(values.bfloat16())
    return fp8_weight(*quantize_fp8_block(values), dialect)


def random_rows(name: str, tokens: int, width: int) -> Tensor | Fp8Rows:
    size = torch.rand(tokens, width // 128).mul(6).sub(3).exp2().repeat_interleave(128, 1)
    x = (torch.randn(tokens, width) * size).bfloat16()
    dialect = FORMATS[name].dialect
    return quantize_rows(x, dialect) if FORMATS[name].fp8_rows and dialect is not None else x


def moved(x: Any, device: str) -> Any:
    """A copy of a tensor or of a tuple of some, elsewhere."""
    if isinstance(x, Tensor):
        return x.to(device, copy=True)
    if isinstance(x, tuple):
        values = [moved(value, device) for value in x]
        return type(x)(*values) if hasattr(x, "_fields") else tuple(values)
    return x
