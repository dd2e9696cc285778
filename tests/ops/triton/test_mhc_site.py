"""Hyper-connections between two sublayers against the reference, and the bits of a token in any batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from tests.ops.triton.linear_cases import moved

from outrider.ops.reference import mhc_site as reference
from outrider.ops.reference.mhc_site import MixWeights, Site, Written
from outrider.ops.triton import mhc_site as kernels
from outrider.platforms.architectures import Fp8Dialect

OCP, FNUZ = Fp8Dialect
EPS: Any = {"hc_eps": 1e-6, "norm_eps": 1e-6}


@dataclass(frozen=True)
class Case:
    streams: Tensor
    written: Written
    site: MixWeights
    head: MixWeights
    norm_weight: Tensor


def case(tokens: int, width: int) -> Case:
    def weights(rows: int, scales: int) -> MixWeights:
        return MixWeights(torch.randn(rows, 4 * width) / 8, torch.randn(rows), torch.rand(scales) + 0.5)

    comb = torch.softmax(torch.randn(tokens, 4, 4), -1)
    written = Written(torch.randn(tokens, width).bfloat16(), 2 * torch.rand(tokens, 4), comb)
    streams = (3 * torch.randn(tokens, 4, width)).bfloat16()
    return Case(streams, written, weights(24, 3), weights(4, 1), torch.rand(width) + 0.5)


def site(c: Case, device: str, *, write: bool, dialect: Fp8Dialect | None = None, rows: slice = slice(None)) -> Site:
    written = Written(*(x[rows] for x in c.written)) if write else None
    arguments = moved((c.streams[rows], written, c.site, c.norm_weight), device)
    found: Site = kernels.mhc_site(*arguments, iterations=20, **EPS, dialect=dialect)
    return found


def close(found: Tensor, expected: Tensor) -> bool:
    """bfloat16 within two units in the last place, which is rare; float32 within the rounding of a long sum."""
    step = 2.0**-7 if expected.dtype == torch.bfloat16 else 1e-4
    rare = expected.dtype != torch.bfloat16 or float((found.cpu() != expected).float().mean()) < 0.01
    return rare and torch.allclose(found.cpu().float(), expected.float(), rtol=2 * step, atol=1e-5)


@pytest.mark.parametrize("write", [True, False])
@pytest.mark.parametrize(("tokens", "width"), [(3, 128), (18, 256), (1, 1152)])
def test_site(tokens: int, width: int, write: bool, device: str) -> None:
    c = case(tokens, width)
    found = site(c, device, write=write, dialect=OCP)
    expected = reference.mhc_site(
        c.streams, c.written if write else None, c.site, c.norm_weight, iterations=20, **EPS, dialect=OCP
    )
    assert torch.equal(found.streams.cpu(), expected.streams)  # the same products and sums, one by one
    assert close(found.rows.values, expected.rows.values)
    assert close(found.post, expected.post)
    assert close(found.comb, expected.comb)
    assert found.rows.fp8 is not None and found.rows.fp8.codes.shape == (tokens, width)


@pytest.mark.parametrize("write", [True, False])
def test_head(write: bool, device: str) -> None:
    c = case(3, 256)
    written = c.written if write else None
    streams, rows = kernels.mhc_head(*moved((c.streams, written, c.head, c.norm_weight), device), **EPS)
    expected, expected_rows = reference.mhc_head(c.streams, written, c.head, c.norm_weight, **EPS)
    assert torch.equal(streams.cpu(), expected)
    assert close(rows.values, expected_rows.values)
    assert rows.fp8 is None


def test_columns_of_comb_sum_to_one_and_rows_nearly(device: str) -> None:
    """The last step is over columns, the first index is the source: not the other way round."""
    comb = site(case(9, 128), device, write=True).comb.cpu()
    assert torch.allclose(comb.sum(1), torch.ones(9, 4), atol=1e-5)
    assert float((comb.sum(2) - 1).abs().max()) > 1e-5


def test_a_token_has_the_same_bits_in_every_batch(device: str) -> None:
    """On the GPU tiles of tokens differ too."""
    c = case(35, 128) if device == "cpu" else case(4096, 4096)
    together = site(c, device, write=True, dialect=OCP)
    for first, count in (
        ((0, 1), (0, 16), (1, 17), (34, 1)) if device == "cpu" else ((0, 1), (1, 33), (7, 65), (4095, 1))
    ):
        part = site(c, device, write=True, dialect=OCP, rows=slice(first, first + count))
        rows = slice(first, first + count)
        assert torch.equal(part.streams, together.streams[rows])
        assert torch.equal(part.rows.values, together.rows.values[rows])
        assert torch.equal(part.post, together.post[rows])
        assert torch.equal(part.comb, together.comb[rows])


def test_sums_have_the_precision_of_float32(device: str) -> None:
    """Against float64: the matrix is not rounded to bfloat16."""
    c = case(4, 512)
    flat = c.streams.flatten(1).double()
    mix = flat @ c.site.fn.double().T * torch.rsqrt(flat.square().mean(1, keepdim=True) + 1e-6)
    post = 2 * torch.sigmoid(mix[:, 4:8] * c.site.scale[1] + c.site.base[4:8])
    found = site(c, device, write=False)
    assert torch.allclose(found.post.cpu().double(), post, atol=2e-5, rtol=0)


def test_no_tokens_and_what_is_refused(device: str) -> None:
    c = case(2, 128)
    assert site(c, device, write=True, rows=slice(0, 0)).rows.values.shape == (0, 128)
    arguments = moved((c.streams[:, :3], None, c.site, c.norm_weight), device)
    with pytest.raises(ValueError, match=r"the kernels take \[T, 4, d\] bfloat16 with fn"):
        kernels.mhc_site(*arguments, iterations=20, **EPS)
