"""Latent KV rows as a cache holds them: plain, or FP8 with one power-of-two scale a block.

An FP8 row is `nope` bytes E4M3, then `rope` bfloat16 (two bytes each): dims that rotate are not quantised. Scales lie
in a tensor of their own, one E8M0 byte a block of the first `nope` dims. Both dialects hold equal numbers: in FNUZ the
same byte is half as large, so scales are twice as large, and -0, whose byte is FNUZ's NaN, is written as 0.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from outrider.ops.formats import decode_e8m0, encode_e4m3, round_trip_fp8
from outrider.platforms.architectures import Fp8Dialect

SCALE_NAN = 255
_SCALE_LARGEST = 254
_LARGEST = 448.0
_AMAX_FLOOR = 1e-4  # official kernel: act_quant


class KvRows(NamedTuple):
    """Rows of one layer's window or entries; a slot is a row.

    data:    [slots, D] bfloat16 or float32, or [slots, nope + 2 rope] uint8 with `scales`
    scales:  [slots, nope / block] uint8 (E8M0), or None for plain rows
    dialect: of the E4M3 bytes, None for plain rows; scales without a dialect: FP4, indexer keys alone (`index_rows`)
    """

    data: Tensor
    scales: Tensor | None = None
    dialect: Fp8Dialect | None = None


class Fp8Shape(NamedTuple):
    """How an FP8 row is divided. All in dims; `block` dims share a scale."""

    nope: int
    rope: int
    block: int


def fp8_shape(rows: KvRows, head_dim: int) -> Fp8Shape:
    """Division of the rows of a cache of this head dim. ValueError if widths do not fit together."""
    if rows.scales is None or rows.dialect is None or rows.data.dtype != torch.uint8:
        raise ValueError("FP8 rows are uint8 data with scales and a dialect")
    rope = rows.data.shape[1] - head_dim
    nope = head_dim - rope
    blocks = rows.scales.shape[1]
    if rope < 0 or nope <= 0 or nope % blocks:
        raise ValueError(
            f"FP8 rows of {rows.data.shape[1]} bytes with {blocks} scales do not hold {head_dim} dims: expected "
            "nope + 2 rope bytes and one scale a block of nope"
        )
    return Fp8Shape(nope, rope, nope // blocks)


def empty_fp8_rows(
    slots: int, nope: int, rope: int, block: int, dialect: Fp8Dialect, device: torch.device | str = "cpu"
) -> KvRows:
    """Rows of zeros: byte 0 is 0 in both dialects, whatever the scale."""
    data = torch.zeros(slots, nope + 2 * rope, dtype=torch.uint8, device=device)
    return KvRows(data, torch.zeros(slots, nope // block, dtype=torch.uint8, device=device), dialect)


def encode_fp8(x: Tensor, block: int, dialect: Fp8Dialect) -> tuple[Tensor, Tensor]:
    """[..., K] float -> (uint8 [..., K], scales uint8 [..., K / block]); decodes to `round_trip_fp8` of x.

    s = 2^ceil(log2(max(amax, 1e-4) / 448)). A block with NaN or infinity gets scale 255, which is NaN.
    """
    blocks = x.float().unflatten(-1, (-1, block))
    amax = blocks.abs().amax(-1)
    finite = torch.isfinite(amax)
    bits = amax.clamp_min(_AMAX_FLOOR).contiguous().view(torch.int32)
    scale = (((bits + 0x1FFFFF) >> 23) - 8).masked_fill(~finite, SCALE_NAN)  # 448 = 1.75 * 2^8
    factor = decode_e8m0(scale.clamp_max(_SCALE_LARGEST).to(torch.uint8))
    codes = encode_e4m3((blocks / factor[..., None]).nan_to_num(0.0, 0.0, 0.0)).flatten(-2)
    if dialect is Fp8Dialect.FNUZ:
        codes = codes.masked_fill(codes == 0x80, 0)
        scale = torch.where(finite, (scale + 1).clamp_max(_SCALE_LARGEST), scale)
    return codes, scale.to(torch.uint8)


def decode_fp8(codes: Tensor, scales: Tensor, dialect: Fp8Dialect) -> Tensor:
    """Inverse of `encode_fp8`: uint8 [..., K] and [..., K / block] -> float32 [..., K]."""
    native = torch.float8_e4m3fn if dialect is Fp8Dialect.OCP else torch.float8_e4m3fnuz
    values = codes.contiguous().view(native).float().unflatten(-1, (scales.shape[-1], -1))
    return (values * decode_e8m0(scales)[..., None]).flatten(-2)


def write_rows(rows: KvRows, slots: Tensor, values: Tensor, *, nope: int, block: int, round_trip: bool) -> None:
    """Stores values [T, D] at slots [T]; a slot outside the cache (-1: a padded row) is not written.

    FP8 rows are always rounded; plain rows have their first `nope` dims rounded as FP8 would with `round_trip`.
    """
    wanted = (slots >= 0) & (slots < rows.data.shape[0])
    slots, values = slots[wanted], values[wanted]
    if rows.scales is None:
        if round_trip:
            values = torch.cat([round_trip_fp8(values[:, :nope], block), values[:, nope:].float()], dim=-1)
        rows.data[slots] = values.to(rows.data.dtype)
        return
    assert rows.dialect is not None
    codes, scales = encode_fp8(values[:, :nope], block, rows.dialect)
    tail = values[:, nope:].to(torch.bfloat16).contiguous().view(torch.uint8)
    rows.data[slots] = torch.cat([codes, tail], dim=-1)
    rows.scales[slots] = scales


def read_rows(rows: KvRows, slots: Tensor, head_dim: int) -> Tensor:
    """Rows at slots [N] -> float32 [N, D]; zeros where a slot lies outside the cache (-1: no key)."""
    missing = (slots < 0) | (slots >= rows.data.shape[0])
    slots = slots.masked_fill(missing, 0)
    if rows.scales is None:
        found = rows.data[slots].float()
    else:
        assert rows.dialect is not None
        nope = fp8_shape(rows, head_dim).nope
        data = rows.data[slots]
        tail = data[:, nope:].contiguous().view(torch.bfloat16).float()
        found = torch.cat([decode_fp8(data[:, :nope], rows.scales[slots], rows.dialect), tail], dim=-1)
    return found.masked_fill(missing[:, None], 0.0)
