"""What kv_cache_dtype and indexer_dtype do to rows, against arithmetic written out here; the default is training's."""

from __future__ import annotations

import pytest
import torch
from tests.tiny import tiny_config
from torch import Tensor

from outrider import ops
from outrider.config import ModelConfig, Numerics, parse_model_config
from outrider.model.rounding import Rounding

CONFIG: ModelConfig = parse_model_config(tiny_config())
NOPE, BLOCK = CONFIG.nope_head_dim, CONFIG.kv_quant_block


def rounding(**options: str) -> Rounding:
    return Rounding(CONFIG, Numerics.model_validate(options))


def rows(width: int, seed: int = 0) -> Tensor:
    """Rows of sizes from 1e-3 to 1e3."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(12, width, generator=generator) * 10.0 ** torch.linspace(-3, 3, 12)[:, None]


def e4m3(x: Tensor, block: int) -> Tensor:
    """Blocks along the last dim, each with the smallest power-of-two scale under which its largest value is <= 448."""
    blocks = x.unflatten(-1, (-1, block)).double()
    scale = torch.exp2(torch.ceil(torch.log2(blocks.abs().amax(-1, keepdim=True).clamp_min(1e-4) / 448)))
    return ((blocks / scale).float().to(torch.float8_e4m3fn).double() * scale).flatten(-2).float()


def bf16(x: Tensor) -> Tensor:
    return x.bfloat16().float()


def kv(dtype: str) -> Tensor:
    return rounding(kv_cache_dtype=dtype).kv(rows(CONFIG.head_dim))


def test_kv_rows() -> None:
    given = rows(CONFIG.head_dim)
    trained = torch.cat([e4m3(given[:, :NOPE], BLOCK), given[:, NOPE:]], -1)
    assert torch.equal(kv("float32"), given)
    assert torch.equal(kv("auto"), trained)
    assert torch.equal(kv("fp8"), torch.cat([trained[:, :NOPE], bf16(given[:, NOPE:])], -1))
    assert torch.equal(kv("bf16"), bf16(given))


def test_what_is_rounded_stays() -> None:
    """A row taken out of a cache and put back is the same row."""
    for dtype in ("auto", "fp8", "bf16", "float32"):
        once = kv(dtype)
        assert torch.equal(rounding(kv_cache_dtype=dtype).kv(once.clone()), once)


def test_an_fp8_row_fits_into_bf16() -> None:
    """So that "apply even when caches are bf16" (spec 5.2) and an FP8 cache are one arithmetic."""
    assert torch.equal(bf16(kv("fp8")), kv("fp8"))


def test_indexer_rows() -> None:
    given = rows(CONFIG.index_head_dim, seed=1)
    rotated = ops.hadamard(given)
    assert torch.equal(rounding(indexer_dtype="float32").indexer(given), given)
    assert torch.equal(rounding(indexer_dtype="bf16").indexer(given), bf16(given))
    assert torch.equal(rounding(indexer_dtype="fp8").indexer(given), e4m3(rotated, CONFIG.index_head_dim))
    assert torch.equal(rounding(indexer_dtype="fp4").indexer(given), ops.round_trip_fp4(rotated, 32))


def test_products_of_rounded_rows_are_near_the_true_ones() -> None:
    """Keys and queries go through the same rotation, so their products survive; fewer bits, larger error."""
    q, k = rows(CONFIG.index_head_dim, seed=2), rows(CONFIG.index_head_dim, seed=3)
    true = q @ k.T
    size = q.norm(dim=-1)[:, None] * k.norm(dim=-1)
    errors = {}
    for dtype in ("fp4", "fp8", "bf16", "float32"):
        found = rounding(indexer_dtype=dtype)
        errors[dtype] = float(((found.indexer(q.clone()) @ found.indexer(k.clone()).T - true).abs() / size).max())
    assert 0 == errors["float32"] < errors["bf16"] < 0.003 < 0.2 > errors["fp4"] > errors["fp8"] > errors["bf16"]


@pytest.mark.parametrize("field", ["kv_cache_dtype", "indexer_dtype"])
def test_the_other_kind_of_row_is_not_touched(field: str) -> None:
    default, changed = rounding(), rounding(**{field: "bf16"})
    for name, given in (("kv", rows(CONFIG.head_dim)), ("indexer", rows(CONFIG.index_head_dim))):
        same = torch.equal(getattr(default, name)(given.clone()), getattr(changed, name)(given.clone()))
        assert same == (name not in field)
