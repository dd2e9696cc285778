"""Products with a weight in bfloat16 or block-scaled FP8, of rows in bfloat16 or group-scaled FP8.

    y[t, n] = sum over blocks b of 128 of  s_w[n // 128, b] * s_x[t, b] * sum over k in b of W[n, k] * x[t, k]

Scales of W are those of the checkpoint (128 x 128, powers of two; float32 in Base checkpoints), held as float32; s_x is
1 for bfloat16 rows. With groups, group g of W's rows multiplies the g-th part of a row of x alone (`wo_a`).
Source: spec 4.2 and 5.1 (official kernels: act_quant, fp8_gemm).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from outrider.ops.formats import FP8_BLOCK, decode_e4m3, decode_e8m0, encode_e4m3
from outrider.ops.reference.linear import Linear
from outrider.ops.reference.sampling import best_tokens
from outrider.platforms.architectures import Fp8Dialect

TICKET_ROWS = 64
"""Rows of a weight that a program multiplies at least."""


class LinearWeight(NamedTuple):
    """One matrix. Made by `bf16_weight` or `fp8_weight`.

    data:    [N, K] bfloat16, or uint8 (E4M3) with `scales` and `dialect`; contiguous
    scales:  [ceil(N / 128), K / 128] float32
    dialect: of the bytes. In FNUZ a byte is half as large, so scales are twice those of the checkpoint
    tickets: [ceil(N / 64)] int32 zeros, scratch of the kernels: one launch at a time may use a weight
    """

    data: Tensor
    scales: Tensor | None
    dialect: Fp8Dialect | None
    tickets: Tensor


class Fp8Rows(NamedTuple):
    """Rows as an FP8 weight takes them. codes: [..., K] uint8 (E4M3); scales: [..., K / 128] float32 powers of two, NaN
    for a block that was not finite."""

    codes: Tensor
    scales: Tensor
    dialect: Fp8Dialect


def bf16_weight(data: Tensor) -> LinearWeight:
    """data: [N, K] bfloat16. ValueError if it is anything else, or K is no multiple of 128."""
    if data.ndim != 2 or data.dtype != torch.bfloat16 or data.shape[1] % FP8_BLOCK:
        raise ValueError(f"weight: {list(data.shape)} {data.dtype}, expected [N, K] bfloat16 with K a multiple of 128")
    return LinearWeight(data.contiguous(), None, None, _tickets(data))


def fp8_weight(codes: Tensor, scales: Tensor, dialect: Fp8Dialect = Fp8Dialect.OCP) -> LinearWeight:
    """Bytes and scales of a checkpoint, for a GPU of this dialect; rows of several matrices may be concatenated first.

    codes: [N, K] uint8 or float8_e4m3fn; scales: [ceil(N / 128), K / 128], uint8 (E8M0) or float32. ValueError, naming
    the shapes, if they do not fit together or K is no multiple of 128.
    """
    codes = codes.view(torch.uint8)
    n, k = codes.shape
    if k % FP8_BLOCK or scales.shape != (-(-n // FP8_BLOCK), k // FP8_BLOCK):
        raise ValueError(f"weight: {[n, k]} FP8 with scales {list(scales.shape)}; one is needed for each 128 x 128")
    factors = decode_e8m0(scales) if scales.dtype == torch.uint8 else scales.float()
    if dialect == Fp8Dialect.FNUZ:  # -0 is its NaN
        codes, factors = codes.masked_fill(codes == 0x80, 0), factors * 2
    return LinearWeight(codes.contiguous(), factors.contiguous(), dialect, _tickets(codes))


def quantize_rows(x: Tensor, dialect: Fp8Dialect = Fp8Dialect.OCP) -> Fp8Rows:
    """x: [..., K] float, K a multiple of 128 (else ValueError) -> E4M3 with a scale for each 128 values.

    s = 2^ceil(log2(max(amax, 1e-4) / 448)); a block that holds NaN or infinity has scale NaN.
    """
    if x.shape[-1] % FP8_BLOCK:
        raise ValueError(f"rows of {x.shape[-1]} values; FP8 takes multiples of {FP8_BLOCK}")
    blocks = x.float().unflatten(-1, (-1, FP8_BLOCK))
    amax = blocks.abs().amax(-1, keepdim=True)
    finite = torch.isfinite(amax)
    bits = amax.clamp_min(1e-4).view(torch.int32) + (0x7FFFFF - 0x600000)  # 448 = 1.75 * 2^8
    scales = ((bits & 0x7F800000) - (8 << 23)).view(torch.float32)
    codes = encode_e4m3(torch.where(finite, blocks, 0.0) / scales)
    if dialect == Fp8Dialect.FNUZ:
        codes, scales = codes.masked_fill(codes == 0x80, 0), scales * 2
    return Fp8Rows(codes.flatten(-2), scales.masked_fill(~finite, torch.nan)[..., 0], dialect)


def scaled_linear(
    x: Tensor | Fp8Rows, weight: LinearWeight, *, groups: int = 1, dtype: torch.dtype = torch.bfloat16
) -> Tensor:
    """x: [T, groups K], bfloat16 or FP8 rows; weight: [N, K] -> [T, N] of `dtype` (bfloat16 or float32).

    ValueError where widths do not fit, or FP8 rows meet a weight that is not FP8 of their dialect.
    """
    check_linear(x, weight, groups)
    parts = row_values(x).chunk(groups, dim=-1)
    matrices = weight_values(weight).chunk(groups)
    return torch.cat([Linear(w)(part) for w, part in zip(matrices, parts, strict=True)], dim=-1).to(dtype)


def greedy_tokens(x: Tensor | Fp8Rows, weight: LinearWeight) -> Tensor:
    """x: [M, K], weight of a vocabulary head [V, K] -> [M] int64, each row's best token, the lowest id among equals.

    V where the best logit is not finite (no token can be drawn then): any NaN or +infinity, or nothing above -infinity.
    """
    return best_tokens(scaled_linear(x, weight, dtype=torch.float32))


def check_linear(x: Tensor | Fp8Rows, weight: LinearWeight, groups: int) -> None:
    """ValueError for operands that do not fit together."""
    n, k = weight.data.shape
    width = x.shape[-1] if isinstance(x, Tensor) else x.codes.shape[-1]
    if width != groups * k:
        raise ValueError(f"rows of {width} values, weight {[n, k]} with {groups} groups takes {groups * k}")
    if groups > 1 and n % (groups * FP8_BLOCK):
        raise ValueError(f"weight {[n, k]}: {groups} groups of rows, each must be a multiple of 128")
    if isinstance(x, Tensor):
        if x.dtype != torch.bfloat16:
            raise ValueError(f"rows: {x.dtype}, expected bfloat16 or FP8 rows")
    elif x.dialect != weight.dialect:
        raise ValueError(f"FP8 rows of {x.dialect} with a weight of {weight.dialect or 'bfloat16'}")


def row_values(x: Tensor | Fp8Rows) -> Tensor:
    """[..., K] float32."""
    if isinstance(x, Tensor):
        return x.float()
    return _decode(x.codes, x.dialect).unflatten(-1, (-1, FP8_BLOCK)).mul(x.scales[..., None]).flatten(-2)


def weight_values(weight: LinearWeight) -> Tensor:
    """[N, K] float32."""
    if weight.scales is None or weight.dialect is None:
        return weight.data.float()
    n, k = weight.data.shape
    scales = weight.scales.repeat_interleave(FP8_BLOCK, 0)[:n].repeat_interleave(FP8_BLOCK, 1)
    return _decode(weight.data, weight.dialect).mul_(scales[:, :k])


def _decode(codes: Tensor, dialect: Fp8Dialect) -> Tensor:
    """E4M3 bytes without NaN -> float32."""
    return decode_e4m3(codes) * (0.5 if dialect == Fp8Dialect.FNUZ else 1.0)


def _tickets(data: Tensor) -> Tensor:
    return torch.zeros(-(-data.shape[0] // TICKET_ROWS), dtype=torch.int32, device=data.device)
