"""Norms and activations of bfloat16 rows, and their FP8 form, in one launch each; one program a row.

Formula and contract: ops/reference/row_norms.py. The sum of squares of a row is one reduction over one tile whose shape
follows from the row's width, so that a row has the same bits in every batch.

Floor: rows in, rows out (2 D bytes each, D + D / 32 more for FP8).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.ops.reference import row_norms as reference
from outrider.ops.reference import scaled_linear as reference_linear
from outrider.ops.reference.row_norms import Rows
from outrider.ops.reference.scaled_linear import Fp8Rows
from outrider.ops.triton.arithmetic import as_bfloat16, as_float32
from outrider.ops.triton.fp8_bytes import (
    SCALE_NAN,
    block_scale,
    decode_e8m0,
    encode_e4m3,
    magnitude_bits,
    reciprocal_scale,
)
from outrider.ops.triton.key_rows import FORMATS
from outrider.ops.triton.launching import has_kernels, launch, next_power_of_2
from outrider.platforms.architectures import Fp8Dialect

_GROUP = tl.constexpr(128)
_WARP_COLUMNS = 1024  # of a row, that a warp takes


@triton.jit
def store_rows(x, values, codes, scales, dims, groups, width, KEEP: tl.constexpr, FP8: tl.constexpr):  # type: ignore[no-untyped-def]
    """x [groups, 128] float32 -> a row of `values` (KEEP), and of codes and scales (FP8 not "plain")."""
    rounded = as_bfloat16(x)
    live = dims < width
    if KEEP:
        tl.store(values + dims, rounded, mask=live)
    if FP8 != "plain":
        blocks = tl.where(live, as_float32(rounded), 0.0)
        byte = block_scale(tl.max(magnitude_bits(blocks), 1))
        code = encode_e4m3(blocks * reciprocal_scale(byte)[:, None], FP8 == "fnuz")
        scale = decode_e8m0(byte)
        if FP8 == "fnuz":
            scale = scale * 2.0
        # a block that is not finite: its scale says so, and its bytes are numbers
        tl.store(codes + dims, tl.where((byte == SCALE_NAN)[:, None], 0, code).to(tl.uint8), mask=live)
        tl.store(scales + groups, scale, mask=groups * _GROUP < width)


@triton.jit
def row_dims(BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """(dims [groups, 128], groups) of a row."""
    groups = tl.arange(0, BLOCK // _GROUP)
    return groups[:, None] * _GROUP + tl.arange(0, _GROUP)[None, :], groups


@triton.jit
def normed(x, weight, dims, live, width, eps):  # type: ignore[no-untyped-def]
    """x [groups, 128] float32, 0 beyond the row."""
    inverse_rms = 1.0 / tl.sqrt(tl.sum(tl.sum(x * x, 1), 0) / width + eps)
    return x * inverse_rms * as_float32(tl.load(weight + dims, mask=live, other=0.0))


@triton.jit
def norm_rows_kernel(  # type: ignore[no-untyped-def]
    x,
    norm_weight,
    values,
    codes,
    scales,
    width,
    x_stride,
    eps,
    NORM: tl.constexpr,
    FP8: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Grid: (rows,). BLOCK >= width; without NORM rows are only quantised."""
    row = tl.program_id(0).to(tl.int64)
    dims, groups = row_dims(BLOCK)
    live = dims < width
    own = as_float32(tl.load(x + row * x_stride + dims, mask=live, other=0.0))
    if NORM:
        own = normed(own, norm_weight, dims, live, width, eps)
    store_rows(
        own, values + row * width, codes + row * width, scales + row * (width // _GROUP), dims, groups, width, NORM, FP8
    )  # fmt: skip


@triton.jit
def mtp_rows_kernel(  # type: ignore[no-untyped-def]
    streams,
    embedding,
    token_ids,
    enorm,
    hnorm,
    values,
    codes,
    scales,
    width,
    num_streams,
    eps,
    FP8: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Grid: (tokens, streams + 1); a token's last program norms its embedding and stores it beside every stream."""
    token = tl.program_id(0).to(tl.int64)
    stream = tl.program_id(1)
    dims, groups = row_dims(BLOCK)
    live = dims < width
    row = token * num_streams
    group_count = width // _GROUP
    if stream < num_streams:
        row += stream
        own = as_float32(tl.load(streams + row * width + dims, mask=live, other=0.0))
        own = normed(own, hnorm, dims, live, width, eps)
        place = (2 * row + 1) * width
        store_rows(
            own, values + place, codes + place, scales + (2 * row + 1) * group_count, dims, groups, width, True, FP8
        )
    else:
        source = embedding + tl.load(token_ids + token).to(tl.int64) * width
        own = as_float32(tl.load(source + dims, mask=live, other=0.0))
        own = normed(own, enorm, dims, live, width, eps)
        for k in range(num_streams):
            place = 2 * (row + k) * width
            store_rows(
                own, values + place, codes + place, scales + 2 * (row + k) * group_count, dims, groups, width, True, FP8
            )  # fmt: skip


@triton.jit
def swiglu_rows_kernel(x, values, codes, scales, width, limit, FP8: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Grid: (rows,). x: gate, then up, `width` each."""
    row = tl.program_id(0).to(tl.int64)
    dims, groups = row_dims(BLOCK)
    live = dims < width
    source = x + row * 2 * width
    gate = as_float32(tl.load(source + dims, mask=live, other=0.0))
    up = as_float32(tl.load(source + width + dims, mask=live, other=0.0))
    # comparisons, not minima: NaN stays
    gate = tl.where(gate > limit, limit, gate)
    up = tl.where(up > limit, limit, tl.where(up < -limit, -limit, up))
    own = tl.div_rn(gate, 1.0 + tl.exp(-gate)) * up
    store_rows(
        own, values + row * width, codes + row * width, scales + row * (width // _GROUP), dims, groups, width, True, FP8
    )  # fmt: skip


def norm_rows(x: Tensor, weight: Tensor, eps: float, dialect: Fp8Dialect | None = None) -> Rows:
    """As the reference."""
    if not has_kernels(x):
        return reference.norm_rows(x, weight, eps, dialect)
    width = _width(x, dialect)
    if weight.shape != (width,):
        raise ValueError(f"norm weight: {list(weight.shape)}, rows have {width} values")
    out = empty_rows(x, (x.shape[0], width), dialect)
    if x.shape[0]:
        launch(
            norm_rows_kernel,
            (x.shape[0],),
            x,
            weight,
            *row_pointers(out),
            width,
            x.stride(0),
            eps,
            NORM=True,
            **_constants(width, dialect),
        )
    return out


def quantize_rows(x: Tensor, dialect: Fp8Dialect = Fp8Dialect.OCP) -> Fp8Rows:
    """As the reference, of [T, D] bfloat16."""
    if not has_kernels(x):
        return reference_linear.quantize_rows(x, dialect)
    width = _width(x, dialect)
    out = empty_rows(x, (x.shape[0], width), dialect)
    assert out.fp8 is not None
    if x.shape[0]:
        launch(
            norm_rows_kernel,
            (x.shape[0],),
            x,
            x,
            *row_pointers(out),
            width,
            x.stride(0),
            0.0,
            NORM=False,
            **_constants(width, dialect),
        )
    return out.fp8


def mtp_rows(
    streams: Tensor,
    embedding: Tensor,
    token_ids: Tensor,
    enorm: Tensor,
    hnorm: Tensor,
    eps: float,
    dialect: Fp8Dialect | None = None,
) -> Rows:
    """As the reference."""
    if not has_kernels(streams):
        return reference.mtp_rows(streams, embedding, token_ids, enorm, hnorm, eps, dialect)
    tokens, n, _ = streams.shape
    width = _width(streams, dialect)
    if embedding.shape[1] != width or embedding.dtype != torch.bfloat16 or not embedding.is_contiguous():
        raise ValueError(
            f"embedding: {list(embedding.shape)} {embedding.dtype}, expected contiguous bfloat16 rows of {width}"
        )
    if width % _GROUP.value:
        raise ValueError(f"streams of {width} values; the kernel takes multiples of 128")
    out = empty_rows(streams, (tokens, n, 2 * width), dialect)
    if tokens:
        launch(mtp_rows_kernel, (tokens, n + 1),
            streams.contiguous(), embedding, token_ids, enorm, hnorm, *row_pointers(out), width, n, eps,
            **_constants(width, dialect),
        )  # fmt: skip
    return out


def swiglu_rows(gate_up: Tensor, limit: float, dialect: Fp8Dialect | None = None) -> Rows:
    """As the reference."""
    if not has_kernels(gate_up):
        return reference.swiglu_rows(gate_up, limit, dialect)
    width = _width(gate_up, None) // 2
    out = empty_rows(gate_up, (gate_up.shape[0], width), dialect)
    if gate_up.shape[0]:
        launch(
            swiglu_rows_kernel,
            (gate_up.shape[0],),
            gate_up.contiguous(),
            *row_pointers(out),
            width,
            limit,
            **_constants(width, dialect),
        )
    return out


def _width(x: Tensor, dialect: Fp8Dialect | None) -> int:
    width = x.shape[-1]
    if x.dtype != torch.bfloat16 or x.stride(-1) != 1:
        raise ValueError(f"rows: {x.dtype}, expected contiguous rows of bfloat16")
    if dialect is not None and width % _GROUP.value:
        raise ValueError(f"rows of {width} values; FP8 takes multiples of 128")
    return width


def empty_rows(x: Tensor, shape: tuple[int, ...], dialect: Fp8Dialect | None) -> Rows:
    values = torch.empty(shape, dtype=torch.bfloat16, device=x.device)
    if dialect is None:
        return Rows(values, None)
    if shape[-1] % _GROUP.value:
        raise ValueError(f"rows of {shape[-1]} values; FP8 takes multiples of 128")
    codes = torch.empty(shape, dtype=torch.uint8, device=x.device)
    scales = torch.empty(*shape[:-1], shape[-1] // _GROUP.value, device=x.device)
    return Rows(values, Fp8Rows(codes, scales, dialect))


def row_pointers(out: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """values, codes, scales; without FP8 the last two are never written."""
    return (out.values, out.values, out.values) if out.fp8 is None else (out.values, out.fp8.codes, out.fp8.scales)


def _constants(width: int, dialect: Fp8Dialect | None) -> dict[str, object]:
    block = max(_GROUP.value, next_power_of_2(width))
    return {"FP8": FORMATS[dialect], "BLOCK": block, "num_warps": warps_for_row(block)}


def warps_for_row(block: int) -> int:
    """Warps of a program whose row has `block` values. Decides the bits of a norm, and follows from the width alone."""
    return min(8, max(1, block // _WARP_COLUMNS))
