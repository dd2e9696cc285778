"""Products with bfloat16 and FP8 weights against the reference, and the bits of a row in batches of any size."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from tests.ops.triton.linear_cases import FORMATS, moved, random_rows, random_weight

from outrider.ops.reference import scaled_linear as reference
from outrider.ops.reference.scaled_linear import bf16_weight, fp8_weight, quantize_rows
from outrider.ops.triton.scaled_linear import scaled_linear, split_count
from outrider.platforms.architectures import Fp8Dialect
from outrider.platforms.tiles import LinearTiles

OCP, FNUZ = Fp8Dialect
SHAPES = {  # rows, width, groups
    "one split": (200, 384, 1),
    "four splits": (128, 2048, 1),
    "uneven splits": (64, 1408, 1),
    "grouped": (256, 128, 2),
    "grouped splits": (256, 1024, 2),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", FORMATS)
def test_kernel_equals_reference(name: str, shape: str, device: str) -> None:
    rows, width, groups = SHAPES[shape]
    if FORMATS[name].dialect == FNUZ and device == "cuda":
        pytest.skip("a CUDA GPU multiplies OCP alone")
    weight = random_weight(name, rows, width)
    for tokens in (1, 21):
        x = random_rows(name, tokens, groups * width)
        expected = reference.scaled_linear(x, weight, groups=groups, dtype=torch.float32)
        found = scaled_linear(moved(x, device), moved(weight, device), groups=groups, dtype=torch.float32).cpu()
        # FP8 instructions of sm_90 keep 14 bits of a sum
        bound = 2.0**-10 if device == "cuda" and FORMATS[name].fp8_rows else 2.0**-18
        assert float((found - expected).abs().max()) <= bound * float(expected.abs().max())
        rounded = scaled_linear(moved(x, device), moved(weight, device), groups=groups).cpu()
        assert torch.equal(rounded, found.bfloat16())


@pytest.mark.parametrize("name", ["bf16", "fp8 bf16", "fp8"])
def test_a_row_has_the_same_bits_in_every_batch(name: str, device: str) -> None:
    """Few tokens: a program a split; many: all splits in one. On the GPU tiles differ too."""
    rows, width = (128, 1024) if device == "cpu" else (1536, 4096)
    assert split_count(rows, width) > 1
    weight = moved(random_weight(name, rows, width), device)
    largest = 33 if device == "cpu" else 4096
    x = moved(random_rows(name, largest, width), device)
    together = scaled_linear(x, weight)
    for tokens in (1, 2, 15, 16, 17, 32) if device == "cpu" else (1, 2, 15, 16, 17, 33, 64, 65, 512):
        assert torch.equal(scaled_linear(_first(x, tokens), weight), together[:tokens])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("name", ["bf16", "fp8 bf16", "fp8"])
def test_bits_do_not_depend_on_the_tile(name: str) -> None:
    weight = moved(random_weight(name, 4096, 2048), "cuda")
    x = moved(random_rows(name, 200, 2048), "cuda")
    expected = scaled_linear(x, weight, dtype=torch.float32)
    for rows, tokens, warps, stages in ((64, 16, 4, 4), (64, 64, 4, 2), (128, 128, 8, 3), (128, 32, 8, 3)):
        tiles = LinearTiles(rows, tokens, warps, stages)
        for count in (1, tokens, 200):
            found = scaled_linear(_first(x, count), weight, dtype=torch.float32, tiles=tiles)
            assert torch.equal(found, expected[:count]), (tiles, count)


def test_repeats_are_equal_and_leave_no_tickets(device: str) -> None:
    rows, width = (128, 1024) if device == "cpu" else (4096, 8192)
    weight, x = moved(random_weight("fp8", rows, width), device), moved(random_rows("fp8", 3, width), device)
    expected = scaled_linear(x, weight)
    for _ in range(2 if device == "cpu" else 1000):
        assert torch.equal(scaled_linear(x, weight), expected)
    assert not bool(weight.tickets.any())


def test_every_byte_of_a_weight(device: str) -> None:
    """Column k of the weight is byte k: with unit rows the product reads the bytes out."""
    numbers = [byte for byte in range(256) if byte & 0x7F != 0x7F]
    codes = torch.zeros(128, 256, dtype=torch.uint8)
    codes[:, : len(numbers)] = torch.tensor(numbers, dtype=torch.uint8)
    weight = moved(fp8_weight(codes, torch.tensor([[127, 130]], dtype=torch.uint8)), device)
    out = scaled_linear(torch.eye(256, dtype=torch.bfloat16, device=device), weight, dtype=torch.float32)
    assert torch.equal(out.cpu()[:, 0], reference.weight_values(moved(weight, "cpu"))[0])


def test_dialects_hold_the_same_numbers() -> None:
    codes = torch.randint(0, 0x7F, (200, 256), dtype=torch.uint8) | torch.randint(0, 2, (200, 256)).to(torch.uint8) << 7
    scales = torch.randint(100, 140, (2, 2), dtype=torch.uint8)
    assert torch.equal(*(reference.weight_values(fp8_weight(codes, scales, dialect)) for dialect in (OCP, FNUZ)))
    x = torch.randn(5, 256).bfloat16()
    ocp, fnuz = (quantize_rows(x, dialect) for dialect in (OCP, FNUZ))
    assert torch.equal(reference.row_values(ocp), reference.row_values(fnuz))


def test_scales_of_a_base_checkpoint_are_not_rounded(device: str) -> None:
    codes = torch.randint(0, 0x7E, (64, 256), dtype=torch.uint8)
    weight = fp8_weight(codes, torch.tensor([[0.3, 1.7]]))
    x = torch.randn(2, 256).bfloat16()
    expected = reference.scaled_linear(x, weight, dtype=torch.float32)
    found = scaled_linear(x.to(device), moved(weight, device), dtype=torch.float32).cpu()
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


def test_nan_reaches_its_row_alone(device: str) -> None:
    weight = moved(random_weight("fp8", 64, 256), device)
    x = torch.randn(3, 256).bfloat16()
    x[1, 5] = torch.inf
    out = scaled_linear(moved(quantize_rows(x), device), weight).cpu()
    assert out.isnan().all(1).tolist() == [False, True, False]
    assert bool(out[[0, 2]].isfinite().all())


def test_the_split_follows_from_the_shape() -> None:
    """V4-Flash: wq_a + wkv, wq_b, wo_a, wo_b, gate_up, down, e_proj + h_proj, head."""
    shapes = ((1536, 4096), (32768, 1024), (8192, 4096), (4096, 8192), (4096, 4096), (4096, 2048), (4096, 8192))
    assert [split_count(n, k) for n, k in shapes] == [8, 1, 2, 4, 4, 4, 4]
    assert split_count(129280, 4096) == 1


def test_no_tokens(device: str) -> None:
    weight = moved(random_weight("fp8", 64, 128), device)
    assert scaled_linear(torch.zeros(0, 128, dtype=torch.bfloat16, device=device), weight).shape == (0, 64)


def test_what_does_not_fit_is_refused(device: str) -> None:
    weight = moved(random_weight("fp8", 256, 256), device)
    x = torch.zeros(2, 256, dtype=torch.bfloat16, device=device)
    with pytest.raises(ValueError, match=r"rows of 256 values, weight \[256, 256\] with 2 groups takes 512"):
        scaled_linear(x, weight, groups=2)
    with pytest.raises(ValueError, match=r"rows: torch\.float32, expected bfloat16 or FP8 rows"):
        scaled_linear(x.float(), weight)
    with pytest.raises(ValueError, match=r"FP8 rows of Fp8Dialect\.FNUZ with a weight of Fp8Dialect\.OCP"):
        scaled_linear(moved(quantize_rows(x.cpu(), FNUZ), device), weight)
    with pytest.raises(ValueError, match="each must be a multiple of 128"):
        scaled_linear(
            torch.zeros(2, 384, dtype=torch.bfloat16, device=device),
            moved(random_weight("fp8", 192, 128), device),
            groups=3,
        )
    with pytest.raises(ValueError, match="one is needed for each 128 x 128"):
        fp8_weight(torch.zeros(64, 256, dtype=torch.uint8), torch.zeros(1, 3, dtype=torch.uint8))
    with pytest.raises(ValueError, match="with K a multiple of 128"):
        bf16_weight(torch.zeros(64, 100, dtype=torch.bfloat16))


def _first(x: Tensor | reference.Fp8Rows, count: int) -> Tensor | reference.Fp8Rows:
    if isinstance(x, Tensor):
        return x[:count]
    return reference.Fp8Rows(x.codes[:count], x.scales[:count], x.dialect)
