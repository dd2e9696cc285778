"""Between stored tensors (bytes with a safetensors dtype) and the values that they stand for."""

from __future__ import annotations

import torch
from torch import Tensor

from outrider.checkpoint.names import TensorSpec
from outrider.ops.formats import (
    E8M0_NAN,
    dequantize_fp4_block,
    dequantize_fp8_block,
    quantize_fp4_block,
    quantize_fp8_block,
)

# in memory: E8M0 scales and packed FP4 pairs are plain bytes
TORCH_DTYPES: dict[str, torch.dtype] = {
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E8M0": torch.uint8,
    "I8": torch.uint8,
    "I32": torch.int32,
    "I64": torch.int64,
}
FLOATS = (torch.float32, torch.bfloat16)
# dtypes under which already stored values may come in; all of them are one byte wide and taken as they are
RAW_NAMES: dict[str, tuple[str, ...]] = {
    "F8_E4M3": ("float8_e4m3fn", "uint8"),
    "F8_E8M0": ("float8_e8m0fnu", "uint8"),
    "I8": ("float4_e2m1fn_x2", "int8", "uint8"),
    "F32": ("float32",),
}


def dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def encode_weight(spec: TensorSpec, scale: TensorSpec, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Float weight [N, K] -> (stored weight, stored scales) as `spec` and `scale` say. ValueError on NaN, infinity."""
    if spec.dtype == "I8":
        return quantize_fp4_block(weight)
    return quantize_fp8_block(weight, float32_scale=scale.dtype == "F32")


def decode_weight(spec: TensorSpec, stored: Tensor, scale: Tensor | None) -> Tensor:
    """Stored weight and its scales -> float32 of the logical shape; integer tensors are returned as int64."""
    if not spec.is_float and spec.scale is None:
        return stored.long()
    if scale is None:
        return stored.float()
    if spec.dtype == "I8":
        return dequantize_fp4_block(stored, scale)
    return dequantize_fp8_block(stored, scale)


def scale_problem(scale: Tensor) -> str | None:
    """What is wrong with a tensor of block scales, or None. E8M0 has one NaN byte; float32 scales must be finite."""
    bad = (scale == E8M0_NAN) if scale.dtype == torch.uint8 else ~torch.isfinite(scale)
    count = int(bad.sum())
    return f"{count} of {scale.numel()} block scales are NaN or infinite" if count else None


def routing_table_problem(table: Tensor, experts: int) -> str | None:
    """What is wrong with a token-to-experts table [V, top-k], or None: ids in range, distinct in a row."""
    outside = (table < 0) | (table >= experts)
    if bool(outside.any()):
        row = int(outside.any(-1).nonzero()[0])
        return f"row {row} names experts {table[row].tolist()}, valid ids are 0 to {experts - 1}"
    ordered = table.sort(-1).values
    repeated = (ordered[:, 1:] == ordered[:, :-1]).any(-1)
    if bool(repeated.any()):
        row = int(repeated.nonzero()[0])
        return f"row {row} names an expert twice: {table[row].tolist()}"
    return None
