"""Conversions on bit patterns: every byte, every halfway point, and what is not finite."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl

from outrider.ops import formats
from outrider.ops.kv_rows import encode_fp8
from outrider.ops.triton.arithmetic import as_bfloat16, as_float32
from outrider.ops.triton.fp8_bytes import (
    block_scale,
    decode_e4m3,
    decode_e8m0,
    encode_e4m3,
    magnitude_bits,
    reciprocal_scale,
    stored_scale,
)
from outrider.ops.triton.launching import OPTIONS
from outrider.platforms.architectures import Fp8Dialect

BLOCK = 256
DIALECTS = list(Fp8Dialect)


@triton.jit
def decode_kernel(codes, values, scales, FNUZ: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, BLOCK)
    code = tl.load(codes + i)
    tl.store(values + i, decode_e4m3(code, FNUZ))
    tl.store(scales + i, decode_e8m0(code))


@triton.jit
def encode_kernel(x, codes, rounded, widened, FNUZ: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i)
    tl.store(codes + i, encode_e4m3(value, FNUZ))
    half = as_bfloat16(value)
    tl.store(rounded + i, half)
    tl.store(widened + i, as_float32(half))


@triton.jit
def quantise_kernel(x, codes, scales, FNUZ: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    i = row * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i)
    scale = block_scale(tl.max(magnitude_bits(value), 0))
    tl.store(codes + i, encode_e4m3(value * reciprocal_scale(scale), FNUZ))
    tl.store(scales + row, stored_scale(scale, FNUZ))


def bits(x: torch.Tensor) -> torch.Tensor:
    """Bit patterns, with one for every NaN."""
    return torch.where(x.isnan(), -1, x.view(torch.int32) if x.dtype == torch.float32 else x.view(torch.int16).int())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_byte_is_read_as_its_dialect_says(dialect: Fp8Dialect, device: str) -> None:
    codes = torch.arange(256, dtype=torch.uint8, device=device)
    values, scales = (torch.empty(256, device=device) for _ in range(2))
    decode_kernel[(1,)](codes, values, scales, FNUZ=dialect is Fp8Dialect.FNUZ, BLOCK=256, **OPTIONS)
    native = torch.float8_e4m3fnuz if dialect is Fp8Dialect.FNUZ else torch.float8_e4m3fn
    assert torch.equal(bits(values.cpu()), bits(codes.cpu().view(native).float()))
    exponents = torch.arange(-127, 128, dtype=torch.float64)
    assert torch.equal(scales.cpu()[:255].double(), torch.exp2(exponents))
    assert bool(scales[255].isnan())


def float_cases() -> torch.Tensor:
    """Every E4M3 value, every point halfway between two, their float32 neighbours, values beyond, and random ones."""
    grid = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    points = torch.cat([grid, (grid[1:] + grid[:-1]) / 2, torch.tensor([1e-30, 1e-45, 463.9, 464.0, 480.0, 1e30])])
    near = torch.cat([points, *(torch.nextafter(points, torch.tensor(end)) for end in (torch.inf, -torch.inf))])
    x = torch.cat([near, -near, torch.randn(2000) * 100])
    return torch.cat([x, x.new_zeros(-x.numel() % BLOCK)])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_encoding_is_nearest_even_and_saturates(dialect: Fp8Dialect, device: str) -> None:
    x = float_cases()
    codes = torch.empty(x.shape, dtype=torch.uint8, device=device)
    rounded = torch.empty(x.shape, dtype=torch.bfloat16, device=device)
    widened = torch.empty(x.shape, device=device)
    fnuz = dialect is Fp8Dialect.FNUZ
    encode_kernel[(x.numel() // BLOCK,)](x.to(device), codes, rounded, widened, FNUZ=fnuz, BLOCK=BLOCK, **OPTIONS)
    expected = formats.encode_e4m3(x)
    assert torch.equal(codes.cpu(), expected.masked_fill(expected == 0x80, 0) if fnuz else expected)
    assert torch.equal(bits(rounded.cpu()), bits(x.bfloat16()))
    assert torch.equal(bits(widened.cpu()), bits(x.bfloat16().float()))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_block_and_its_scale(dialect: Fp8Dialect, device: str) -> None:
    """amax just below, at and just above every 448 * 2^e; all zero; below the floor; not finite."""
    edges = 448.0 * torch.exp2(torch.arange(-40, 41, 4).float())
    x = 0.1 * torch.randn(3 * edges.numel() + 5, 32)
    amax = torch.cat(
        [torch.nextafter(edges, torch.tensor(0.0)), edges, torch.nextafter(edges, torch.tensor(torch.inf))]
    )
    x[: amax.numel()] *= amax[:, None]
    x[: amax.numel()] = x[: amax.numel()].clamp(-amax[:, None], amax[:, None])
    x[: amax.numel(), 7] = -amax
    x[-5], x[-4] = 0.0, 1e-7
    x[-3, 0], x[-2, 31], x[-1, 4] = torch.inf, torch.nan, -3.4e38
    codes = torch.empty(x.shape, dtype=torch.uint8, device=device)
    scales = torch.empty(x.shape[0], dtype=torch.uint8, device=device)
    fnuz = dialect is Fp8Dialect.FNUZ
    quantise_kernel[(x.shape[0],)](x.to(device), codes, scales, FNUZ=fnuz, BLOCK=32, **OPTIONS)
    expected_codes, expected_scales = encode_fp8(x, 32, dialect)
    assert torch.equal(scales.cpu(), expected_scales[:, 0])
    finite = expected_scales[:, 0] != 255
    assert int((~finite).sum()) == 2
    assert torch.equal(codes.cpu()[finite], expected_codes[finite])
