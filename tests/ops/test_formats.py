"""Number formats against their definitions, code by code, and the block quantisers against plain formulas."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import oracle
from torch import Tensor

from outrider.ops import formats as f


def e4m3_value(code: int) -> float:
    """The definition of E4M3 (OCP, finite only), one code at a time."""
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = (code >> 3) & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    if exponent == 0:
        return sign * mantissa * 2.0**-9
    return sign * (1 + mantissa / 8) * 2.0 ** (exponent - 7)


E2M1_VALUES = [0, 0.5, 1, 1.5, 2, 3, 4, 6]


def same_bits(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.view(torch.int32), b.view(torch.int32))


def test_all_256_fp8_codes_decode_and_encode() -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    values = f.decode_e4m3(codes)
    expected = torch.tensor([e4m3_value(c) for c in range(256)])
    assert torch.equal(values.nan_to_num(-1e9), expected.nan_to_num(-1e9))
    assert torch.equal(values.signbit()[:127], torch.zeros(127, dtype=torch.bool))
    assert values[0x80].signbit()  # -0 keeps its sign
    finite = (codes & 0x7F) != 0x7F
    assert torch.equal(f.encode_e4m3(values)[finite], codes[finite])
    assert int(f.encode_e4m3(torch.tensor([math.nan]))) & 0x7F == 0x7F


def test_fp8_halfway_points_go_to_even_and_neighbours_to_the_nearest() -> None:
    values = torch.tensor([e4m3_value(c) for c in range(0x7F)], dtype=torch.float64)
    middle = ((values[:-1] + values[1:]) / 2).float()
    lower = torch.arange(0x7E, dtype=torch.uint8)
    even = torch.where(lower % 2 == 0, lower, lower + 1)
    below = torch.nextafter(middle, torch.tensor(0.0))
    above = torch.nextafter(middle, torch.tensor(1e9))
    for sign, bit in ((1, 0), (-1, 0x80)):
        assert torch.equal(f.encode_e4m3(sign * middle), even | bit)
        assert torch.equal(f.encode_e4m3(sign * below), lower | bit)
        assert torch.equal(f.encode_e4m3(sign * above), (lower + 1) | bit)


def test_fp8_saturates() -> None:
    x = torch.tensor([448.0, 449.0, 464.0, 480.0, 1e9, 3.4e38, math.inf])
    assert f.encode_e4m3(x).tolist() == [0x7E] * 7
    assert f.encode_e4m3(-x).tolist() == [0xFE] * 7
    assert f.encode_e4m3(torch.tensor([1e-45, -1e-45, 2.0**-10, 2.0**-10 * 1.0001])).tolist() == [0, 0x80, 0, 1]


def test_fp8_encoding_equals_the_native_cast_in_range() -> None:
    x = torch.randn(200_000) * torch.logspace(-4, 2, 200_000)
    assert torch.equal(f.encode_e4m3(x), x.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8))


def test_all_16_fp4_codes_halfway_points_and_saturation() -> None:
    codes = torch.arange(16, dtype=torch.uint8)
    values = f.decode_e2m1(codes)
    assert values.tolist() == [*E2M1_VALUES, *(-v for v in E2M1_VALUES)]
    assert torch.equal(f.encode_e2m1(values), codes)
    assert values[8].signbit()
    middle = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    assert f.encode_e2m1(middle).tolist() == [0, 2, 2, 4, 4, 6, 6]
    assert f.encode_e2m1(torch.nextafter(middle, torch.tensor(0.0))).tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert f.encode_e2m1(torch.nextafter(middle, torch.tensor(9.0))).tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert f.encode_e2m1(torch.tensor([6.0, 7.0, 1e30, math.inf, -1e30])).tolist() == [7, 7, 7, 7, 15]


def test_fp4_packing_puts_even_k_into_the_low_nibble() -> None:
    codes = torch.randint(0, 16, (5, 64), dtype=torch.uint8)
    packed = f.pack_e2m1(codes)
    assert packed.shape == (5, 32)
    assert torch.equal(packed & 15, codes[:, 0::2])
    assert torch.equal(f.unpack_e2m1(packed), codes)
    assert torch.equal(f.unpack_e2m1(packed.view(torch.int8)), codes)


def test_e8m0_bytes_are_exact_powers_of_two() -> None:
    values = f.decode_e8m0(torch.arange(256, dtype=torch.uint8))
    assert values[:255].double().tolist() == [2.0 ** (b - 127) for b in range(255)]
    assert values[255].isnan()
    assert values[0].item() == 2.0**-127  # subnormal in float32, and not flushed
    assert torch.equal(f.encode_e8m0_ceil(values), torch.arange(256, dtype=torch.uint8))
    edge = torch.tensor([0, 1, 126, 127, 128, 253], dtype=torch.uint8)
    assert torch.equal(2 * f.decode_e8m0(edge), f.decode_e8m0(edge + 1))  # doubling is byte + 1


def test_e8m0_ceil_is_exact_beside_powers_of_two() -> None:
    for byte in (1, 2, 100, 126, 127, 128, 200, 253):
        power = torch.tensor([2.0 ** (byte - 127)])
        assert f.encode_e8m0_ceil(power).item() == byte
        assert f.encode_e8m0_ceil(torch.nextafter(power, torch.tensor([math.inf]))).item() == byte + 1
        assert f.encode_e8m0_ceil(torch.nextafter(power, torch.tensor([0.0]))).item() == byte
    special = torch.tensor([0.0, 1e-45, 2.0**-127, 1.5 * 2.0**-127, 3.4e38, math.inf, math.nan])
    assert f.encode_e8m0_ceil(special).tolist() == [0, 0, 0, 1, 254, 255, 255]


@pytest.mark.parametrize("shape", [(128, 128), (256, 384), (1, 1), (129, 127), (40, 64), (130, 300)])
@pytest.mark.parametrize("float32_scale", [False, True])
def test_fp8_blocks_equal_the_formula(shape: tuple[int, int], float32_scale: bool) -> None:
    w = torch.randn(shape) * 0.02
    codes, scale = f.quantize_fp8_block(w, float32_scale=float32_scale)
    assert codes.dtype == torch.uint8 and codes.shape == shape
    assert scale.shape == (-(-shape[0] // 128), -(-shape[1] // 128))
    assert scale.dtype == (torch.float32 if float32_scale else torch.uint8)
    out = f.dequantize_fp8_block(codes, scale)
    for i in range(scale.shape[0]):
        for j in range(scale.shape[1]):
            rows, cols = slice(128 * i, 128 * i + 128), slice(128 * j, 128 * j + 128)
            block = w[rows, cols]
            s = block.abs().max().item() / 448
            s = s if float32_scale else 2.0 ** math.ceil(math.log2(s))
            expected = (block / s).clamp(-448, 448).to(torch.float8_e4m3fn).float() * s
            assert torch.allclose(out[rows, cols], expected, rtol=1e-6 if float32_scale else 0, atol=0)
    assert torch.equal(f.dequantize_fp8_block(codes.view(torch.float8_e4m3fn), scale), out)


@pytest.mark.parametrize("shape", [(1, 32), (3, 64), (5, 2), (7, 34), (128, 96)])
def test_fp4_blocks_equal_the_formula(shape: tuple[int, int]) -> None:
    w = torch.randn(shape)
    packed, scale = f.quantize_fp4_block(w)
    assert packed.shape == (shape[0], shape[1] // 2) and scale.shape == (shape[0], -(-shape[1] // 32))
    out = f.dequantize_fp4_block(packed, scale)
    grid = torch.tensor(E2M1_VALUES)
    for i in range(shape[0]):
        for j in range(0, shape[1], 32):
            block = w[i, j : j + 32]
            s = 2.0 ** math.ceil(math.log2(block.abs().max().item() / 6))
            nearest = grid[((block / s).abs()[:, None] - grid).abs().argmin(-1)]
            assert torch.equal(out[i, j : j + 32], nearest * block.sign() * s)
    assert torch.equal(f.dequantize_fp4_block(packed.view(torch.int8), scale), out)


def test_block_scale_is_the_smallest_that_fits() -> None:
    for largest, quantise in ((448.0, f.quantize_fp8_block), (6.0, f.quantize_fp4_block)):
        w = torch.zeros(1, 32)
        w[0, 3] = largest * 2.0**-20
        assert quantise(w)[1].item() == 127 - 20
        w[0, 3] = torch.nextafter(w[0, 3], torch.tensor(1.0))
        assert quantise(w)[1].item() == 127 - 19


def test_zero_tiny_and_huge_blocks() -> None:
    codes, scale = f.quantize_fp8_block(torch.zeros(4, 4))
    assert codes.sum() == 0 and scale.item() == 127
    for value in (1e-45, 1e-38, 2.0**-126, 2.0**126):
        w = torch.full((2, 32), value)
        assert torch.allclose(f.dequantize_fp8_block(*f.quantize_fp8_block(w)), w, rtol=0.07, atol=2.0**-136)
        assert torch.allclose(f.dequantize_fp4_block(*f.quantize_fp4_block(w)), w, rtol=0.26, atol=2.0**-128)
        assert f.dequantize_fp8_block(*f.quantize_fp8_block(w, float32_scale=True)).isfinite().all()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_quantisers_refuse_what_they_cannot_hold(bad: float) -> None:
    w = torch.zeros(4, 32)
    w[1, 2] = bad
    with pytest.raises(ValueError, match="NaN or infinity"):
        f.quantize_fp8_block(w)
    with pytest.raises(ValueError, match="NaN or infinity"):
        f.quantize_fp4_block(w)
    with pytest.raises(ValueError, match="even"):
        f.quantize_fp4_block(torch.zeros(4, 33))


FLOATS = st.floats(-(2.0**100), 2.0**100, width=32)


@settings(max_examples=60)
@given(st.integers(1, 5), st.integers(1, 40), st.data())
def test_quantising_twice_changes_nothing(rows: int, half: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(FLOATS, min_size=4, max_size=12))
    w = torch.tensor(values).repeat(rows * 2 * half)[: rows * 2 * half].view(rows, 2 * half)
    once = f.dequantize_fp8_block(*f.quantize_fp8_block(w))
    assert torch.equal(f.dequantize_fp8_block(*f.quantize_fp8_block(once)), once)
    once = f.dequantize_fp4_block(*f.quantize_fp4_block(w))
    assert torch.equal(f.dequantize_fp4_block(*f.quantize_fp4_block(once)), once)


# ------------------------------------------------------------------------------------------------ activations


def plain_round_trip(x: Tensor, block: int, largest: float, floor: float) -> Tensor:
    """The formula in float64, value by value on the format's grid, ties to the even code."""
    codes = [e4m3_value(c) for c in range(0x7F)] if largest == 448 else [float(v) for v in E2M1_VALUES]
    grid = torch.tensor(codes, dtype=torch.float64)
    b = x.double().unflatten(-1, (-1, block))
    s = torch.exp2(torch.ceil(torch.log2(b.abs().amax(-1, keepdim=True).clamp_min(floor) / largest)))
    v = (b / s).abs()
    upper = torch.searchsorted(grid, v.contiguous()).clamp(max=len(codes) - 1)
    lower = (upper - 1).clamp(min=0)
    to_lower, to_upper = v - grid[lower], grid[upper] - v
    pick_lower = (to_lower < to_upper) | ((to_lower == to_upper) & (lower % 2 == 0))
    return (torch.where(pick_lower, grid[lower], grid[upper]) * b.sign() * s).flatten(-2).float()


@pytest.mark.parametrize("magnitude", [1e-7, 1e-3, 1.0, 300.0, 1e5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_activation_round_trips_equal_the_formula(magnitude: float, dtype: torch.dtype) -> None:
    x = (torch.randn(3, 5, 192) * magnitude).to(dtype)
    for block in (32, 64):
        fp8 = f.round_trip_fp8(x, block)
        assert fp8.dtype == torch.float32
        assert torch.equal(fp8, plain_round_trip(x, block, 448.0, 1e-4))
        assert torch.equal(f.round_trip_fp4(x, block), plain_round_trip(x, block, 6.0, 6 * 2.0**-126))


def test_activation_ties_and_code_points() -> None:
    ties = torch.tensor([6.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    assert f.round_trip_fp4(ties, 8).tolist() == [6.0, 0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0]
    assert f.round_trip_fp4(-ties, 8).tolist() == [-6.0, 0.0, -1.0, -1.0, -2.0, -2.0, -4.0, -4.0]
    every = torch.tensor([e4m3_value(c) for c in range(256) if c & 0x7F != 0x7F])
    assert torch.equal(f.round_trip_fp8(every, 254), every)


def test_activation_floors() -> None:
    tiny = torch.full((1, 32), 1e-6)
    scale = 2.0 ** math.ceil(math.log2(1e-4 / 448))
    assert torch.equal(f.round_trip_fp8(tiny, 32), (tiny / scale).to(torch.float8_e4m3fn).float() * scale)
    assert f.round_trip_fp8(torch.zeros(2, 32), 32).abs().sum() == 0
    assert f.round_trip_fp4(torch.zeros(2, 32), 32).abs().sum() == 0


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 7, 33, 64])
def test_a_row_alone_gives_the_same_bits(rows: int) -> None:
    x = torch.randn(64, 7 * 32)
    for function in (f.round_trip_fp8, f.round_trip_fp4):
        assert same_bits(function(x[:rows], 32), function(x, 32)[:rows])
        assert same_bits(function(x[rows - 1], 32), function(x, 32)[rows - 1])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_poison_their_block_only(bad: float) -> None:
    x = torch.randn(2, 64)
    x[0, 40] = bad
    for function in (f.round_trip_fp8, f.round_trip_fp4):
        out = function(x, 32)
        assert out[0, 32:].isnan().all()
        assert out[0, :32].isfinite().all() and out[1].isfinite().all()


def test_views_and_wrong_sizes() -> None:
    x = torch.randn(4, 128)
    for function in (f.round_trip_fp8, f.round_trip_fp4):
        assert torch.equal(function(x[:, 32:96], 32), function(x[:, 32:96].contiguous(), 32))
        assert torch.equal(function(x.t(), 4), function(x.t().contiguous(), 4))
        with pytest.raises(ValueError, match="multiple of the block"):
            function(x, 48)


@pytest.mark.parametrize("magnitude", [1e-6, 1.0, 1e4])
def test_activation_round_trips_equal_the_oracle(magnitude: float) -> None:
    x = torch.randn(200, 192) * magnitude
    for block in (16, 32, 64):
        assert torch.equal(f.round_trip_fp8(x, block), oracle.q_fp8_ue8m0(x, block))
        assert torch.equal(f.round_trip_fp4(x, block), oracle.q_fp4_ue8m0(x, block))
