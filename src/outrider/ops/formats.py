"""Number formats of DeepSeek-V4: FP8 E4M3, FP4 E2M1 and E8M0 scales, and their block quantisers.

    E4M3 (OCP "fn")  s eeee mmm   bias 7, no infinity, 0x7F / 0xFF = NaN, largest 448, smallest 2^-9
    E2M1             s ee m       bias 1, neither infinity nor NaN: 0, .5, 1, 1.5, 2, 3, 4, 6
    E8M0             eeeeeeee     2^(byte - 127), byte 255 = NaN; byte 0 is 2^-127, subnormal in float32

Everything that must be exact works on bit patterns, so that it gives the same bytes on every device. Rounding is to
nearest, ties to even; values beyond the largest saturate. All functions are elementwise or per block: a row alone and
the same row in a batch give the same bits.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import pad

E4M3_MAX = 448.0
E2M1_MAX = 6.0
E8M0_NAN = 255
FP8_BLOCK = 128  # weights: 128 x 128; inputs of linear layers: 1 x 128
FP4_BLOCK = 32  # weights: 1 x 32 along the input dim
ACTIVATION_FLOOR_FP8 = 1e-4  # official kernel: act_quant, smallest amax of a block
ACTIVATION_FLOOR_FP4 = 6 * 2.0**-126  # official kernel: fp4_act_quant

_EXPONENT = 0x7F800000
_MAGNITUDE = 0x7FFFFFFF


def _bits(x: Tensor) -> Tensor:
    """float32 -> its bit pattern as int32 (a view)."""
    return x.contiguous().view(torch.int32)


# ------------------------------------------------------------------------------------------------ single values


def decode_e8m0(codes: Tensor) -> Tensor:
    """E8M0 bytes (uint8, any shape) -> float32 powers of two; byte 255 -> NaN."""
    bits = codes.to(torch.int32) << 23
    bits = bits.masked_fill(codes == 0, 0x00400000).masked_fill(codes == E8M0_NAN, 0x7FC00000)
    return bits.view(torch.float32)


def encode_e8m0_ceil(x: Tensor) -> Tensor:
    """float32 x >= 0 -> byte of the smallest power of two that is not below x (exact ceil-log2).

    From the exponent field, plus one if any mantissa bit is set; subnormals round up to 2^-127 or 2^-126. Values above
    2^127 saturate at byte 254; infinity and NaN give 255.
    """
    bits = _bits(x)
    exponent = (bits + 0x7FFFFF) >> 23  # a set mantissa bit carries into the exponent
    exponent = exponent.clamp(max=254).masked_fill(bits <= 0x00400000, 0)
    return exponent.masked_fill(bits >= _EXPONENT, E8M0_NAN).to(torch.uint8)


def _encode_minifloat(x: Tensor, mantissa_bits: int, bias: int, largest: int) -> Tensor:
    """float32 -> magnitude code (int32) of a small float format, nearest-even, saturating at code `largest`."""
    magnitude = _bits(x) & _MAGNITUDE
    drop = 23 - mantissa_bits
    rounded = magnitude + ((1 << (drop - 1)) - 1) + ((magnitude >> drop) & 1)
    normal = (rounded >> drop) - ((127 - bias) << mantissa_bits)
    # below the smallest normal the grid is even: count multiples of the smallest subnormal
    step = 2.0 ** (1 - bias - mantissa_bits)
    below = x.abs() < 2.0 ** (1 - bias)
    subnormal = torch.where(below, x.abs() / step, 0.0).round().to(torch.int32)
    return torch.where(below, subnormal, normal.clamp(max=largest))


def encode_e4m3(x: Tensor) -> Tensor:
    """float32 -> E4M3 bytes (uint8, same shape): nearest-even, saturating at +-448, NaN -> 0x7F with x's sign."""
    x = x.float()
    code = _encode_minifloat(x, mantissa_bits=3, bias=7, largest=0x7E).masked_fill(x.isnan(), 0x7F)
    return (code | ((_bits(x) >> 24) & 0x80)).to(torch.uint8)


def decode_e4m3(codes: Tensor) -> Tensor:
    """E4M3 bytes (uint8 or float8_e4m3fn, any shape) -> float32, exact."""
    return codes.view(torch.float8_e4m3fn).to(torch.float32)


def encode_e2m1(x: Tensor) -> Tensor:
    """float32 -> E2M1 codes 0..15 (uint8, one a byte): nearest-even, saturating at +-6.

    NaN has no code; the quantisers refuse it before they come here.
    """
    x = x.float()
    code = _encode_minifloat(x, mantissa_bits=1, bias=1, largest=7)
    return (code | ((_bits(x) >> 28) & 0x8)).to(torch.uint8)


def decode_e2m1(codes: Tensor) -> Tensor:
    """E2M1 codes 0..15 (uint8, one a byte) -> float32, exact."""
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], device=codes.device)
    return table[codes.to(torch.int64)]


def pack_e2m1(codes: Tensor) -> Tensor:
    """[..., K] codes -> [..., K/2] bytes: low nibble = even k, high nibble = odd k."""
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack_e2m1(packed: Tensor) -> Tensor:
    """[..., K/2] bytes (uint8 or int8) -> [..., K] codes."""
    packed = packed.view(torch.uint8)
    return torch.stack([packed & 0xF, packed >> 4], -1).flatten(-2)


# ------------------------------------------------------------------------------------------------ weight blocks


def _blocks(x: Tensor, rows: int, cols: int) -> Tensor:
    """[N, K] -> [N/rows, rows, K/cols, cols], zero-padded up to whole blocks."""
    n, k = x.shape
    if n % rows or k % cols:
        x = pad(x, (0, -k % cols, 0, -n % rows))
    return x.unflatten(1, (-1, cols)).unflatten(0, (-1, rows))


def _unblock(blocks: Tensor, n: int, k: int) -> Tensor:
    """Inverse of `_blocks`: drops the padding, and the memory that it took."""
    padded = blocks.flatten(2, 3).flatten(0, 1)
    return (
        padded.contiguous() if padded.shape == (n, k) else padded[:n, :k].clone(memory_format=torch.contiguous_format)
    )


def _block_scale(amax: Tensor, mantissa_limit: int, exponent_of_max: int) -> Tensor:
    """float32 amax > 0 -> byte of the smallest power of two s with amax <= s * largest, largest = m * 2^e.

    No division: with amax = f * 2^E the answer is 2^(E - e), one more if f > m. `mantissa_limit` is m's mantissa field.
    All-zero blocks get scale 1.
    """
    # subnormal amax: its exponent field is 0 and the result saturates at byte 0, which is large enough
    bits = _bits(amax)
    byte = ((bits + (0x7FFFFF - mantissa_limit)) >> 23) - exponent_of_max
    return byte.clamp(0, 254).masked_fill(bits == 0, 127).to(torch.uint8)


def _finite_amax(blocks: Tensor) -> Tensor:
    amax = blocks.abs().amax((1, 3), keepdim=True)
    if not bool(torch.isfinite(amax).all()):
        raise ValueError("holds NaN or infinity, which cannot be quantised")
    return amax


def quantize_fp8_block(weight: Tensor, *, float32_scale: bool = False) -> tuple[Tensor, Tensor]:
    """[N, K] float -> (uint8 E4M3 bytes [N, K], scale [ceil(N/128), ceil(K/128)]).

    The scale is an E8M0 byte (the smallest power of two that fits), or float32 amax/448 with `float32_scale` (Base
    checkpoints). Raises ValueError on NaN or infinity.
    """
    n, k = weight.shape
    blocks = _blocks(weight.float(), FP8_BLOCK, FP8_BLOCK)
    amax = _finite_amax(blocks)
    if float32_scale:
        # the floor keeps tiny blocks from dividing by a scale that rounds to zero
        factor = torch.where(amax == 0, 1.0, (amax / E4M3_MAX).clamp_min(2.0**-126))
        scale = factor
    else:
        scale = _block_scale(amax, 0x600000, 8)  # 448 = 1.75 * 2^8
        factor = decode_e8m0(scale)
    return _unblock(encode_e4m3(blocks / factor), n, k), scale[:, 0, :, 0].contiguous()


def dequantize_fp8_block(codes: Tensor, scale: Tensor) -> Tensor:
    """E4M3 [N, K] (uint8 or float8_e4m3fn) and scales [ceil(N/128), ceil(K/128)] (uint8 = E8M0, or float32) -> float32.

    W[i, k] = code[i, k] * scale[i // 128, k // 128].
    """
    n, k = codes.shape
    factor = decode_e8m0(scale) if scale.dtype == torch.uint8 else scale.float()
    values = _blocks(decode_e4m3(codes), FP8_BLOCK, FP8_BLOCK)
    return _unblock(values.mul_(factor[:, None, :, None]), n, k)


def quantize_fp4_block(weight: Tensor) -> tuple[Tensor, Tensor]:
    """[N, K] float, K even -> (uint8 [N, K/2], two E2M1 codes a byte, E8M0 bytes [N, ceil(K/32)]).

    Raises ValueError on NaN or infinity, and for odd K.
    """
    n, k = weight.shape
    if k % 2:
        raise ValueError(f"the input dim must be even to pack two FP4 values a byte, found {k}")
    blocks = _blocks(weight.float(), 1, FP4_BLOCK)
    scale = _block_scale(_finite_amax(blocks), 0x400000, 2)  # 6 = 1.5 * 2^2
    codes = _unblock(encode_e2m1(blocks / decode_e8m0(scale)), n, k)
    return pack_e2m1(codes), scale[:, 0, :, 0].contiguous()


@lru_cache(maxsize=16)
def _pair_table(device: torch.device) -> Tensor:
    """[256, 2]: the two values of every packed byte, so that one look-up decodes both."""
    return decode_e2m1(unpack_e2m1(torch.arange(256, dtype=torch.uint8, device=device)[:, None]))


def dequantize_fp4_block(packed: Tensor, scale: Tensor) -> Tensor:
    """Packed E2M1 [N, K/2] (uint8 or int8) with E8M0 bytes [N, ceil(K/32)] -> float32 [N, K]."""
    n, k = packed.shape[0], 2 * packed.shape[1]
    values = _pair_table(packed.device)[packed.view(torch.uint8).to(torch.int32)].flatten(1)
    blocks = _blocks(values, 1, FP4_BLOCK)
    return _unblock(blocks.mul_(decode_e8m0(scale)[:, None, :, None]), n, k)


# ------------------------------------------------------------------------------------------------ activations


def _activation_blocks(
    x: Tensor, block: int, floor: float, mantissa_limit: int, exponent: int
) -> tuple[Tensor, Tensor]:
    """[..., K] -> (x / s as [..., K/block, block], s [..., K/block, 1]) with s the power of two that just fits."""
    if x.shape[-1] % block:
        raise ValueError(f"last dim {x.shape[-1]} is not a multiple of the block {block}")
    blocks = x.float().unflatten(-1, (-1, block))
    amax = blocks.abs().amax(-1, keepdim=True).clamp_min(floor)
    bits = ((_bits(amax) + (0x7FFFFF - mantissa_limit)) & _EXPONENT) - (exponent << 23)
    scale = bits.view(torch.float32) + amax * 0  # NaN or infinity anywhere: the whole block becomes NaN
    return blocks / scale, scale


def round_trip_fp8(x: Tensor, block: int) -> Tensor:
    """[..., K] float -> float32 rounded as E4M3 with one E8M0 scale per `block` values of the last dim.

    s = 2^ceil(log2(max(amax, 1e-4) / 448)), x -> e4m3(x / s) * s (official kernel: act_quant). K must be a multiple of
    `block`. A block that holds NaN or infinity becomes NaN.
    """
    scaled, scale = _activation_blocks(x, block, ACTIVATION_FLOOR_FP8, 0x600000, 8)
    # |x / s| <= 448 by the choice of s, so the plain cast never meets an overflow
    return scaled.to(torch.float8_e4m3fn).float().mul_(scale).flatten(-2)


def round_trip_fp4(x: Tensor, block: int) -> Tensor:
    """[..., K] float -> float32 rounded as E2M1 with one E8M0 scale per `block` values of the last dim.

    s = 2^ceil(log2(max(amax, 6 * 2^-126) / 6)), x -> e2m1(x / s) * s (official kernel: fp4_act_quant). K must be a
    multiple of `block`. A block that holds NaN or infinity becomes NaN.
    """
    scaled, scale = _activation_blocks(x, block, ACTIVATION_FLOOR_FP4, 0x400000, 2)
    # the grid's step is half the value's power of two, and 0.5 below 1
    power = (_bits(scaled.abs().clamp_min_(1.0)) & _EXPONENT).view(torch.float32)
    step = power.mul_(0.5)
    return (scaled / step).round_().mul_(step).mul_(scale).flatten(-2)
