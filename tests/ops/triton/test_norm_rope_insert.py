"""Norm, rope and insertion, and rows gathered back: kernels against the reference."""

from __future__ import annotations

import mmap
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from outrider.ops.kv_rows import KvRows, empty_fp8_rows
from outrider.ops.reference import norm_rope_insert as reference
from outrider.ops.reference.rope import Rotation, inverse_frequencies, rotation
from outrider.ops.triton import gather_rows, norm_rope_insert
from outrider.platforms.architectures import Fp8Dialect

OCP, FNUZ = Fp8Dialect
SLOTS = 9
WRITTEN = [5, -1, 2, SLOTS, 8]  # the second and fourth row are padded

FORMATS: dict[str, tuple[torch.dtype, Fp8Dialect | None, bool]] = {
    "bfloat16": (torch.bfloat16, None, False),
    "bfloat16 rounded": (torch.bfloat16, None, True),
    "float32 rounded": (torch.float32, None, True),
    "ocp": (torch.bfloat16, OCP, True),
    "fnuz": (torch.bfloat16, FNUZ, True),
}
SIZES = {"tiny": (5, 64, 16, 16), "flash": (64, 512, 64, 64)}  # heads, D, rope, block


def empty_cache(dtype: torch.dtype, dialect: Fp8Dialect | None, head_dim: int, rope: int, block: int) -> KvRows:
    """Rows that hold something already: it must stay where nothing is written."""
    if dialect is None:
        return KvRows(torch.full((SLOTS, head_dim), 7.0, dtype=dtype))
    rows = empty_fp8_rows(SLOTS, head_dim - rope, rope, block, dialect)
    assert rows.scales is not None
    rows.data.fill_(0x31)
    rows.scales.fill_(0x7B)
    return rows


def moved(x: Any, device: str) -> Any:
    """A copy of a tensor or of a tuple of some, elsewhere."""
    if isinstance(x, Tensor):
        return x.to(device, copy=True)
    if isinstance(x, tuple):
        values = [moved(value, device) for value in x]
        return type(x)(*values) if hasattr(x, "_fields") else tuple(values)
    return x


def inputs(dtype: torch.dtype, heads: int, head_dim: int, rope: int) -> tuple[Tensor, Tensor, Tensor, Rotation, Tensor]:
    positions = torch.tensor([0, 5, 127, 65_537, 1_000_000])
    kv = (torch.randn(5, head_dim) * torch.rand(5, head_dim) ** 4).to(dtype)
    kv[2, :16] = 0
    q = torch.randn(5, heads, head_dim).to(dtype)
    return (
        q,
        kv,
        torch.rand(head_dim) + 0.5,
        rotation(positions, inverse_frequencies(rope, 10000.0)),
        torch.tensor(WRITTEN),
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FORMATS)
def test_kernel_equals_reference(name: str, size: str, device: str) -> None:
    dtype, dialect, round_trip = FORMATS[name]
    heads, head_dim, rope, block = SIZES[size]
    arguments = inputs(dtype, heads, head_dim, rope)
    cache = empty_cache(dtype, dialect, head_dim, rope, block)
    found_cache = moved(cache, device)
    q, kv, weight, angles, slots = moved(arguments, device)
    found = norm_rope_insert.norm_rope_insert(
        q, kv, weight, angles, slots, found_cache, 1e-6, block, round_trip=round_trip
    )
    expected = reference.norm_rope_insert(*arguments, cache, 1e-6, block, round_trip=round_trip)
    step = 2.0**-8 if dtype == torch.bfloat16 else 2.0**-20
    assert found.dtype == dtype
    assert torch.allclose(found.cpu().float(), expected.float(), rtol=2 * step, atol=2 * step)
    differ = (found.cpu() != expected).float().mean()
    assert dtype == torch.float32 or float(differ) < 0.001  # a root in another last place rarely rounds otherwise
    rows = torch.arange(SLOTS)
    written = reference.gather_rows(cache, rows, head_dim).float()
    found_rows = reference.gather_rows(moved(found_cache, "cpu"), rows, head_dim).float()
    assert bool(torch.isfinite(written).all())
    # the neighbouring FP8 value, where a root in another last place tips a rounding
    far = (found_rows - written).abs() > (0.13 if round_trip else 2 * step) * written.abs() + 1e-3
    assert not bool(far.any())
    assert float((found_rows != written).float().mean()) < (0.001 if dtype == torch.bfloat16 else 0.3)
    untouched = [slot for slot in range(SLOTS) if slot not in WRITTEN]
    assert torch.equal(found_cache.data.cpu()[untouched], cache.data[untouched])


@pytest.mark.parametrize("name", ["bfloat16 rounded", "ocp", "fnuz"])
def test_a_block_that_is_not_finite_is_nan_and_no_other(name: str, device: str) -> None:
    dtype, dialect, _ = FORMATS[name]
    heads, head_dim, rope, block = SIZES["tiny"]
    q, kv, weight, angles, slots = inputs(dtype, heads, head_dim, rope)
    weight[block + 3] = torch.nan
    cache = moved(empty_cache(dtype, dialect, head_dim, rope, block), device)
    q, kv, weight, angles, slots = moved((q, kv, weight, angles, slots), device)
    norm_rope_insert.norm_rope_insert(q, kv, weight, angles, slots, cache, 1e-6, block, round_trip=True)
    row = gather_rows.gather_rows(cache, torch.tensor([5], device=device), head_dim)[0].cpu()
    assert row.isnan().nonzero()[:, 0].tolist() == list(range(block, 2 * block))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("size", ["tiny", "flash"])
def test_rows_gathered(name: str, size: str, device: str) -> None:
    dtype, dialect, _ = FORMATS[name]
    _, head_dim, rope, block = SIZES[size]
    cache = empty_cache(dtype, dialect, head_dim, rope, block)
    values = cache.data.view(torch.uint8)
    values.copy_(torch.randint(0, 0x7E, values.shape, dtype=torch.uint8))
    slots = torch.tensor([3, -1, 0, 8, SLOTS, 8, 2**40] + [1] * 12)
    found = gather_rows.gather_rows(moved(cache, device), slots.to(device), head_dim)
    expected = reference.gather_rows(cache, slots, head_dim)
    assert found.dtype == expected.dtype
    assert torch.equal(found.cpu(), expected)
    assert not bool(found[[1, 4, 6]].any())


def test_a_row_does_not_know_of_its_neighbours(device: str) -> None:
    q, kv, weight, angles, slots = moved(inputs(torch.bfloat16, 64, 512, 64), device)

    def run(rows: list[int]) -> tuple[Tensor, Tensor]:
        cache = moved(empty_cache(torch.bfloat16, FNUZ, 512, 64, 64), device)
        part = (q[rows], kv[rows], weight, angles.select(torch.tensor(rows, device=device)), slots[rows])
        return norm_rope_insert.norm_rope_insert(*part, cache, 1e-6, 64, round_trip=True), cache.data

    together, cache = run([0, 1, 2, 3, 4])
    for row in (0, 2, 4):
        alone, own = run([row])
        assert torch.equal(alone[0], together[row])
        assert torch.equal(own[WRITTEN[row]], cache[WRITTEN[row]])


def test_no_rows(device: str) -> None:
    q, kv, weight, angles, slots = moved(inputs(torch.bfloat16, 4, 64, 16), device)
    cache = moved(empty_cache(torch.bfloat16, OCP, 64, 16, 16), device)
    none = torch.tensor([], dtype=torch.int64, device=device)
    part = (q[none], kv[none], weight, angles.select(none), slots[none])
    assert norm_rope_insert.norm_rope_insert(*part, cache, 1e-6, 16, round_trip=True).shape == (0, 4, 64)
    assert gather_rows.gather_rows(cache, none, 64).shape == (0, 64)


def test_what_is_not_served_is_refused(device: str) -> None:
    q, kv, weight, angles, slots = moved(inputs(torch.bfloat16, 4, 64, 16), device)
    cache = moved(empty_cache(torch.bfloat16, OCP, 64, 16, 16), device)
    with pytest.raises(ValueError, match="48 quantised dims in blocks of 16, the rotation leaves 48 and blocks of 8"):
        norm_rope_insert.norm_rope_insert(q, kv, weight, angles, slots, cache, 1e-6, 8, round_trip=True)
    with pytest.raises(ValueError, match=r"kv: torch\.float32, expected contiguous rows of q's"):
        norm_rope_insert.norm_rope_insert(q, kv.float(), weight, angles, slots, cache, 1e-6, 16, round_trip=True)
    with pytest.raises(ValueError, match="FP8 cache rows are served with bfloat16 queries"):
        norm_rope_insert.norm_rope_insert(
            q.float(), kv.float(), weight, angles, slots, cache, 1e-6, 16, round_trip=True
        )


@pytest.mark.parametrize("dialect", [None, OCP], ids=["plain", "ocp"])
def test_slots_on_both_sides_of_2_gib_and_of_4(dialect: Fp8Dialect | None, device: str) -> None:
    """Stored and gathered there as at the start of the cache: offsets in bytes and in elements pass 2^31 and 2^32."""
    heads, head_dim, rope, block = SIZES["flash"]
    q, kv, weight, angles, _ = moved(inputs(torch.bfloat16, heads, head_dim, rope), device)
    near = moved(empty_cache(torch.bfloat16, dialect, head_dim, rope, block), device)
    row_bytes = near.data[0].nbytes
    far_slots = [2**31 // row_bytes - 1, 2**31 // row_bytes + 1, 2**32 // row_bytes - 1, 2**32 // row_bytes + 1]
    count = far_slots[-1] + 1

    def wide(x: Tensor) -> Tensor:
        size = count * x.shape[1]
        if device == "cuda":
            return torch.zeros(size, dtype=x.dtype, device=device).view(count, -1)
        memory = mmap.mmap(-1, size * x.element_size())  # address space of which few pages are touched
        return torch.frombuffer(memory, dtype=x.dtype).view(count, -1)

    far = KvRows(wide(near.data), None if near.scales is None else wide(near.scales), dialect)
    rows = []
    for cache, slots in ((near, [0, 3, 5, 7, 8]), (far, [*far_slots, 2])):
        where = torch.tensor(slots, device=device)
        norm_rope_insert.norm_rope_insert(q, kv, weight, angles, where, cache, 1e-6, block, round_trip=True)
        rows.append(gather_rows.gather_rows(cache, where, head_dim))
    assert bool(rows[0].any(1).all())
    assert torch.equal(*rows)
