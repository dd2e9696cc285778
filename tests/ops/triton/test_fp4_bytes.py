"""E2M1 on bit patterns: every code, every halfway point, and where a block's scale steps up."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl

from outrider.ops import formats
from outrider.ops.index_rows import encode_fp4
from outrider.ops.triton.fp4_bytes import decode_e2m1, encode_e2m1, fp4_block_scale
from outrider.ops.triton.fp8_bytes import magnitude_bits
from outrider.ops.triton.launching import OPTIONS

BLOCK = 128
UP, DOWN = torch.tensor(torch.inf), torch.tensor(-torch.inf)


@triton.jit
def convert_kernel(x, codes, values, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, BLOCK)
    code = encode_e2m1(tl.load(x + i))
    tl.store(codes + i, code)
    tl.store(values + i, decode_e2m1(code))


@triton.jit
def scale_kernel(x, scales, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, BLOCK)
    tl.store(scales + i, fp4_block_scale(magnitude_bits(tl.load(x + i))))


def test_encoding_is_nearest_even_and_saturates(device: str) -> None:
    grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    points = torch.cat([grid, (grid[1:] + grid[:-1]) / 2, torch.tensor([1e-30, 1e-45, 6.1, 7.0, 9.0, 1e30])])
    x = torch.cat([points, torch.nextafter(points, UP), torch.nextafter(points, DOWN)])
    x = torch.cat([x, -x])
    assert x.numel() <= BLOCK
    x = torch.cat([x, x.new_zeros(BLOCK - x.numel())])
    codes = torch.empty(BLOCK, dtype=torch.int32, device=device)
    values = torch.empty(BLOCK, device=device)
    convert_kernel[(1,)](x.to(device), codes, values, BLOCK=BLOCK, **OPTIONS)
    expected = formats.encode_e2m1(x)
    assert torch.equal(codes.cpu(), expected.int())
    assert expected.unique().numel() == 16
    assert torch.equal(values.cpu().view(torch.int32), formats.decode_e2m1(expected).view(torch.int32))


def test_scales(device: str) -> None:
    """amax just below, at and just above 6 * 2^e; zero, below the floor, the largest float; not finite."""
    edges = 6.0 * torch.exp2(torch.arange(-124, 124, 9).float())
    x = torch.cat([torch.nextafter(edges, DOWN), edges, -torch.nextafter(edges, UP)])
    x = torch.cat([x, torch.tensor([0.0, 1e-45, 3.4028234e38, -torch.inf, torch.nan])])
    assert x.numel() <= BLOCK
    x = torch.cat([x, x.new_ones(BLOCK - x.numel())])
    scales = torch.empty(BLOCK, dtype=torch.int32, device=device)
    scale_kernel[(1,)](x.to(device), scales, BLOCK=BLOCK, **OPTIONS)
    _, expected = encode_fp4(x[:, None].expand(-1, 32))
    assert torch.equal(scales.cpu(), expected[:, 0].int())
    finite = expected[:, 0] != 255
    assert int((~finite).sum()) == 2
    # the smallest power of two that fits, by the formula
    step = formats.decode_e8m0(expected[finite, 0]).double()
    amax = x[finite].double().abs().clamp_min(6 * 2.0**-126)
    assert bool((amax <= 6 * step).all()) and bool((amax > 3 * step).all())
