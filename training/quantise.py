"""Straight-through fake quantisation: the numbers an official checkpoint can hold, with the gradient of the identity.

    FP8 weight   128 x 128 blocks, s = 2^ceil(log2(amax / 448)), W = e4m3(W / s) * s
    FP4 weight   1 x 32 blocks along the input dim, s = 2^ceil(log2(amax / 6)), W = e2m1(W / s) * s
    FP8 input    1 x block, the same rule with amax floored at 1e-4 (linear inputs: 128, KV: 64)
    FP4 input    1 x 32 after a Hadamard rotation (indexer q and k)

Powers of two come from exponent bits, so they are exact. Re-quantising a quantised tensor gives it back, hence
exporting the rounded values is lossless. Written without in-place operations and host reads, for torch.compile.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad


def power_of_two_ceil(x: Tensor) -> Tensor:
    """Smallest power of two >= x, for positive normal float32."""
    return ((x.view(torch.int32) + 0x7FFFFF) & 0x7F800000).view(torch.float32)


def round_e4m3(x: Tensor) -> Tensor:
    """float32 -> nearest E4M3 value; |x| <= 448."""
    return x.to(torch.float8_e4m3fn).float()


def round_e2m1(x: Tensor) -> Tensor:
    """float32 -> nearest E2M1 value, ties to even; |x| <= 6. The grid's step is 0.5 below 2, 1 below 4, then 2."""
    a = x.abs()
    step = torch.where(a < 2, 0.5, torch.where(a < 4, 1.0, 2.0))
    return torch.round(x / step) * step


def _row_blocks(x: Tensor, block: int) -> Tensor:
    """[..., K] -> float32 [..., ceil(K / block), block], zero-padded."""
    return (pad(x, (0, -x.shape[-1] % block)) if x.shape[-1] % block else x).float().unflatten(-1, (-1, block))


def fp8_rows(x: Tensor, block: int) -> Tensor:
    """FP8 round trip of [..., K] in blocks of the last dim (a short last block is allowed); keeps the dtype."""
    blocks = _row_blocks(x, block)
    scale = power_of_two_ceil(blocks.abs().amax(-1, keepdim=True).clamp_min(1e-4) / 448.0)
    out = (round_e4m3((blocks / scale).clamp(-448, 448)) * scale).flatten(-2)
    return out[..., : x.shape[-1]].to(x.dtype)


def fp4_rows(x: Tensor, block: int = 32) -> Tensor:
    """FP4 round trip of [..., K] in blocks of the last dim; keeps the dtype."""
    blocks = _row_blocks(x, block)
    scale = power_of_two_ceil(blocks.abs().amax(-1, keepdim=True).clamp_min(6 * 2.0**-126) / 6.0)
    out = (round_e2m1((blocks / scale).clamp(-6, 6)) * scale).flatten(-2)
    return out[..., : x.shape[-1]].to(x.dtype)


def fp8_weight(w: Tensor, block: int = 128) -> Tensor:
    """[N, K] float32 -> the nearest weight that FP8 with 128 x 128 E8M0 scales can hold, float32."""
    n, k = w.shape
    padded = pad(w, (0, -k % block, 0, -n % block)) if n % block or k % block else w
    blocks = padded.unflatten(1, (-1, block)).unflatten(0, (-1, block))
    scale = power_of_two_ceil(blocks.abs().amax((1, 3), keepdim=True).clamp_min(1e-30) / 448.0)
    return (round_e4m3(blocks / scale) * scale).flatten(2, 3).flatten(0, 1)[:n, :k]


def fp4_weight(w: Tensor) -> Tensor:
    """[..., N, K] float32 -> the nearest weight that MXFP4 (1 x 32 blocks along K) can hold, float32."""
    return fp4_rows(w)


def bf16_weight(w: Tensor) -> Tensor:
    return w.to(torch.bfloat16).to(w.dtype)


ROUND = {"fp8": fp8_weight, "fp4": fp4_weight, "bf16": bf16_weight, "f32": lambda w: w}


class _StraightThrough(torch.autograd.Function):
    """Forward: the rounded weight in the compute dtype; backward: the gradient unchanged, in float32."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, form: str, dtype: torch.dtype) -> Tensor:
        return ROUND[form](w).to(dtype).contiguous()  # a stride of its own would compile everything again

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None, None]:
        return grads[0].float(), None, None


def straight_through(w: Tensor, form: str, dtype: torch.dtype) -> Tensor:
    """w float32 -> rounded to `form` ("fp8", "fp4", "bf16", "f32") in `dtype`, with the identity's gradient."""
    out: Tensor = _StraightThrough.apply(w, form, dtype)
    return out


def blend(x: Tensor, rounded: Tensor, on: Tensor) -> Tensor:
    """x where on = 0, rounded(x) where on = 1 (0-dim float tensor); the gradient is x's either way.

    A tensor flag instead of a Python one: switching quantisation on must not compile everything again.
    """
    return (x.float() + on * (rounded.float() - x.float()).detach()).to(x.dtype)
