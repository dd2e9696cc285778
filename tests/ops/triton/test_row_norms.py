"""Norms and activations of rows against the reference, in bfloat16 and as FP8 rows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from tests.ops.triton.linear_cases import moved

from outrider.ops.reference import row_norms as reference
from outrider.ops.reference import scaled_linear as reference_linear
from outrider.ops.reference.row_norms import Rows
from outrider.ops.reference.scaled_linear import Fp8Rows, row_values
from outrider.ops.triton import row_norms as kernels
from outrider.platforms.architectures import Fp8Dialect

OCP, FNUZ = Fp8Dialect
DIALECTS = [None, OCP, FNUZ]


def rows(count: int, width: int) -> Tensor:
    return (torch.randn(count, width) * torch.rand(count, width) ** 4).bfloat16()


def check(found: Rows, expected: Rows) -> None:
    """bfloat16 within one unit in the last place, which is rare; FP8 rows are exactly those of the bfloat16 ones."""
    values, wanted = found.values.cpu(), expected.values
    assert values.dtype == torch.bfloat16 and values.shape == wanted.shape
    assert torch.allclose(values.float(), wanted.float(), rtol=2.0**-7, atol=1e-6)
    assert float((values != wanted).float().mean()) < 0.002
    assert (found.fp8 is None) == (expected.fp8 is None)
    if found.fp8 is not None:
        check_fp8(found.fp8, reference_linear.quantize_rows(values, found.fp8.dialect))


def check_fp8(found: Fp8Rows, expected: Fp8Rows) -> None:
    assert torch.equal(found.codes.cpu(), expected.codes)
    assert torch.equal(found.scales.cpu(), expected.scales)
    assert found.dialect == expected.dialect


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("width", [128, 1024, 7168])
def test_norm(width: int, dialect: Fp8Dialect | None, device: str) -> None:
    x = rows(5, width + 128)[:, :width]  # a slice of wider rows, as the latent query is
    x[2, :width] = 0
    for weight in (torch.rand(width) + 0.5, (torch.rand(width) + 0.5).bfloat16()):
        found = kernels.norm_rows(x.to(device) if device == "cuda" else x, weight.to(device), 1e-6, dialect)
        check(found, reference.norm_rows(x, weight, 1e-6, dialect))


def test_norm_of_an_odd_width(device: str) -> None:
    x, weight = rows(3, 123), torch.rand(123)
    check(kernels.norm_rows(x.to(device), weight.to(device), 1e-6), reference.norm_rows(x, weight, 1e-6))


@pytest.mark.parametrize("dialect", [OCP, FNUZ])
def test_quantised_rows(dialect: Fp8Dialect, device: str) -> None:
    x = torch.cat([rows(4, 384), torch.zeros(1, 384).bfloat16(), 1e-6 * rows(1, 384), 1e37 * rows(1, 384)])
    x[0, 0], x[1, 130] = -0.0, 448.0
    found = kernels.quantize_rows(x.to(device), dialect)
    check_fp8(found, reference_linear.quantize_rows(x, dialect))
    error = (row_values(moved(found, "cpu")) - x.float()).abs()
    steps = found.scales.cpu().repeat_interleave(128, 1)
    assert bool((error <= 0.0625 * x.float().abs() + steps * 2.0**-9).all())


def test_a_block_that_is_not_finite_is_nan_and_no_other(device: str) -> None:
    x = rows(2, 384)
    x[0, 130], x[1, 300] = torch.nan, -torch.inf
    found = row_values(moved(kernels.quantize_rows(x.to(device)), "cpu"))
    assert found[0].isnan().nonzero()[:, 0].tolist() == list(range(128, 256))
    assert found[1].isnan().nonzero()[:, 0].tolist() == list(range(256, 384))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_mtp_rows(dialect: Fp8Dialect | None, device: str) -> None:
    """Token 0 is no exception: nothing is masked at any position."""
    streams = rows(5 * 4, 256).view(5, 4, 256)
    embedding, token_ids = rows(9, 256), torch.tensor([0, 8, 3, 3, 1])
    enorm, hnorm = torch.rand(256) + 0.5, torch.rand(256).bfloat16()
    arguments = (streams, embedding, token_ids, enorm, hnorm)
    streams, embedding, token_ids, enorm, hnorm = moved(arguments, device)
    found = kernels.mtp_rows(streams, embedding, token_ids, enorm, hnorm, 1e-6, dialect)
    check(found, reference.mtp_rows(*arguments, 1e-6, dialect))
    assert found.values.shape == (5, 4, 512)
    assert bool(found.values[0].any())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_swiglu(dialect: Fp8Dialect | None, device: str) -> None:
    gate_up = (8 * torch.randn(5, 512)).bfloat16()
    gate_up[0, 0], gate_up[0, 256] = 50.0, -50.0  # spec 2.8: silu(10) * -10
    gate_up[1, 0], gate_up[1, 256] = -50.0, 50.0
    found = kernels.swiglu_rows(gate_up.to(device), 10.0, dialect)
    check(found, reference.swiglu_rows(gate_up, 10.0, dialect))
    assert float(found.values[0, 0]) == -100.0
    assert abs(float(found.values[1, 0])) < 1e-17


def test_a_row_does_not_know_of_its_neighbours(device: str) -> None:
    x, weight = rows(33, 1024).to(device), torch.rand(1024, device=device)
    together = kernels.norm_rows(x, weight, 1e-6, OCP)
    for row in (0, 7, 32):
        alone = kernels.norm_rows(x[row : row + 1], weight, 1e-6, OCP)
        assert torch.equal(alone.values[0], together.values[row])
        assert alone.fp8 is not None and together.fp8 is not None
        assert torch.equal(alone.fp8.codes[0], together.fp8.codes[row])


def test_no_rows_and_what_is_refused(device: str) -> None:
    x = torch.zeros(0, 256, dtype=torch.bfloat16, device=device)
    weight = torch.ones(256, device=device)
    assert kernels.norm_rows(x, weight, 1e-6).values.shape == (0, 256)
    assert kernels.quantize_rows(x).codes.shape == (0, 256)
    assert kernels.swiglu_rows(x, 10.0).values.shape == (0, 128)
    with pytest.raises(ValueError, match="FP8 takes multiples of 128"):
        kernels.quantize_rows(torch.zeros(2, 100, dtype=torch.bfloat16, device=device))
    with pytest.raises(ValueError, match=r"rows: torch\.float32"):
        kernels.norm_rows(x.float(), weight, 1e-6)
    with pytest.raises(ValueError, match=r"norm weight: \[128\], rows have 256 values"):
        kernels.norm_rows(x, weight[:128], 1e-6)
