"""Indexer keys as a cache holds them: plain, FP8 with one scale a row, or FP4 with one scale a block of 32.

All are `KvRows`. FP8: [slots, D] uint8 and scales [slots, 1] (`kv_rows`, all dims coded). FP4: [slots, D / 2] uint8,
two E2M1 codes a byte (low nibble: even dim), scales [slots, D / 32] E8M0, no dialect. What is stored is the key after
rope and Hadamard (spec 2.7), as the query is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from outrider.ops.formats import (
    ACTIVATION_FLOOR_FP4,
    FP4_BLOCK,
    decode_e2m1,
    decode_e8m0,
    encode_e2m1,
    pack_e2m1,
    unpack_e2m1,
)
from outrider.ops.kv_rows import SCALE_NAN, KvRows, read_rows, write_rows

_SCALE_LARGEST = 254


def is_fp4(rows: KvRows) -> bool:
    return rows.scales is not None and rows.dialect is None


def check_index_rows(rows: KvRows, head_dim: int) -> None:
    """ValueError unless the rows are plain, FP8 with one scale a row, or FP4, of this head dim."""
    scale_width = 0 if rows.scales is None else rows.scales.shape[1]
    shape = f"{list(rows.data.shape)} {str(rows.data.dtype).removeprefix('torch.')} with {scale_width} scales a row"
    if rows.data.stride(1) != 1 or (rows.scales is not None and rows.scales.stride(1) != 1):
        raise ValueError(f"indexer keys: {shape}: a row must be contiguous")
    if rows.scales is None:
        if not rows.data.is_floating_point() or rows.data.shape[1] != head_dim:
            raise ValueError(f"indexer keys: {shape}; plain rows hold {head_dim} floating-point values")
    elif rows.data.dtype != torch.uint8 or rows.scales.dtype != torch.uint8:
        raise ValueError(f"indexer keys: {shape}; FP8 and FP4 rows and their scales are uint8")
    elif is_fp4(rows):
        if head_dim % FP4_BLOCK or rows.data.shape[1] != head_dim // 2 or scale_width != head_dim // FP4_BLOCK:
            raise ValueError(
                f"indexer keys: {shape}; FP4 rows of {head_dim} dims hold {head_dim // 2} bytes and one scale a block "
                f"of {FP4_BLOCK}"
            )
    elif rows.data.shape[1] != head_dim or scale_width != 1:
        raise ValueError(f"indexer keys: {shape}; FP8 rows hold {head_dim} bytes and one scale")


def empty_fp4_rows(slots: int, head_dim: int, device: torch.device | str = "cpu") -> KvRows:
    """Rows of zeros."""
    data = torch.zeros(slots, head_dim // 2, dtype=torch.uint8, device=device)
    return KvRows(data, torch.zeros(slots, head_dim // FP4_BLOCK, dtype=torch.uint8, device=device))


def encode_fp4(x: Tensor, block: int = FP4_BLOCK) -> tuple[Tensor, Tensor]:
    """[..., K] float -> (uint8 [..., K / 2], scales uint8 [..., K / block]); decodes to `round_trip_fp4` of x.

    s = 2^ceil(log2(max(amax, 6 * 2^-126) / 6)) (official kernel: fp4_act_quant). A block with NaN or infinity gets
    scale 255, which is NaN.
    """
    blocks = x.float().unflatten(-1, (-1, block))
    amax = blocks.abs().amax(-1)
    finite = torch.isfinite(amax)
    bits = amax.clamp_min(ACTIVATION_FLOOR_FP4).contiguous().view(torch.int32)
    scale = (((bits + 0x3FFFFF) >> 23) - 2).masked_fill(~finite, SCALE_NAN)  # 6 = 1.5 * 2^2
    factor = decode_e8m0(scale.clamp_max(_SCALE_LARGEST).to(torch.uint8))
    codes = encode_e2m1((blocks / factor[..., None]).nan_to_num(0.0, 0.0, 0.0)).flatten(-2)
    return pack_e2m1(codes), scale.to(torch.uint8)


def decode_fp4(packed: Tensor, scales: Tensor) -> Tensor:
    """Inverse of `encode_fp4`: uint8 [..., K / 2] and [..., K / block] -> float32 [..., K]."""
    values = decode_e2m1(unpack_e2m1(packed)).unflatten(-1, (scales.shape[-1], -1))
    return (values * decode_e8m0(scales)[..., None]).flatten(-2)


def write_index_rows(rows: KvRows, slots: Tensor, values: Tensor) -> None:
    """Stores values [T, D], rotated already, at slots [T]; a slot outside the cache (-1) is not written.

    Plain rows are stored as they are: who wants them rounded as FP4 or FP8 passes rounded values.
    """
    if not is_fp4(rows):
        width = values.shape[1]
        write_rows(rows, slots, values, nope=width, block=width, round_trip=False)
        return
    assert rows.scales is not None
    wanted = (slots >= 0) & (slots < rows.data.shape[0])
    slots, values = slots[wanted], values[wanted]
    rows.data[slots], rows.scales[slots] = encode_fp4(values)


def read_index_rows(rows: KvRows, slots: Tensor, head_dim: int) -> Tensor:
    """Rows at slots [N] -> float32 [N, D]; zeros where a slot lies outside the cache (-1)."""
    if not is_fp4(rows):
        return read_rows(rows, slots, head_dim)
    assert rows.scales is not None
    missing = (slots < 0) | (slots >= rows.data.shape[0])
    slots = slots.masked_fill(missing, 0)
    return decode_fp4(rows.data[slots], rows.scales[slots]).masked_fill(missing[:, None], 0.0)
