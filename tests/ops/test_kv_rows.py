"""Latent rows in FP8: both dialects, by their bytes."""

from __future__ import annotations

import pytest
import torch

from outrider.ops.formats import round_trip_fp8
from outrider.ops.kv_rows import decode_fp8, empty_fp8_rows, encode_fp8, fp8_shape, read_rows, write_rows
from outrider.platforms.architectures import ARCHITECTURES, Fp8Dialect, architecture

DIALECTS = list(Fp8Dialect)
NAN = float("nan")


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(a[~a.isnan()], b[~b.isnan()])


@pytest.mark.parametrize(
    ("byte", "ocp", "fnuz"), [(0x40, 2.0, 1.0), (0x80, -0.0, NAN), (0x7E, 448.0, 224.0), (0x7F, NAN, 240.0)]
)
def test_a_byte_is_another_number_in_the_other_dialect(byte: int, ocp: float, fnuz: float) -> None:
    codes, one = torch.tensor([[byte]], dtype=torch.uint8), torch.tensor([[127]], dtype=torch.uint8)
    assert same(decode_fp8(codes, one, Fp8Dialect.OCP), torch.tensor([[ocp]]))
    assert same(decode_fp8(codes, one, Fp8Dialect.FNUZ), torch.tensor([[fnuz]]))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_rows_come_back_as_the_round_trip(dialect: Fp8Dialect) -> None:
    x = torch.randn(300, 64) * torch.logspace(-6, 6, 300)[:, None]
    x[0] = 0
    x[1, 5], x[2, 40], x[3, 17] = torch.inf, NAN, -1e-30
    codes, scales = encode_fp8(x, 16, dialect)
    assert same(decode_fp8(codes, scales, dialect), round_trip_fp8(x, 16))
    assert int(decode_fp8(codes, scales, dialect).isnan().sum()) == 32
    if dialect is Fp8Dialect.FNUZ:
        assert not bool((codes == 0x80).any())


def test_reading_the_other_dialect_is_wrong() -> None:
    x = torch.randn(8, 64)
    codes, scales = encode_fp8(x, 16, Fp8Dialect.FNUZ)
    assert not torch.allclose(decode_fp8(codes, scales, Fp8Dialect.OCP).nan_to_num(), x, rtol=0.3)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_write_and_read(dialect: Fp8Dialect) -> None:
    rows = empty_fp8_rows(6, 48, 16, 16, dialect)
    assert fp8_shape(rows, 64) == (48, 16, 16)
    values = torch.randn(4, 64)
    write_rows(rows, torch.tensor([3, -1, 0, 6]), values, nope=48, block=16, round_trip=True)
    found = read_rows(rows, torch.tensor([3, 0, 1, -1, 6]), 64)
    expected = torch.cat([round_trip_fp8(values[:, :48], 16), values[:, 48:].bfloat16().float()], dim=-1)
    assert torch.equal(found[:2], expected[[0, 2]])
    assert not bool(found[2:].any())


def test_widths_that_do_not_fit_are_refused() -> None:
    rows = empty_fp8_rows(6, 48, 16, 16, Fp8Dialect.OCP)
    with pytest.raises(ValueError, match="80 bytes with 3 scales do not hold 128 dims"):
        fp8_shape(rows, 128)
    with pytest.raises(ValueError, match="uint8 data with scales"):
        fp8_shape(rows._replace(scales=None), 64)


def test_the_dialect_follows_the_architecture_string() -> None:
    assert {name: item.fp8 for name, item in ARCHITECTURES.items()} == {
        "gfx942": Fp8Dialect.FNUZ,
        "gfx950": Fp8Dialect.OCP,
        "sm_90": Fp8Dialect.OCP,
    }
    assert architecture("gfx942:sramecc+:xnack-").name == "gfx942"
    assert architecture("sm_90").compile_target == 90
    with pytest.raises(ValueError, match="no kernels for GPU architecture 'gfx1100'"):
        architecture("gfx1100")
