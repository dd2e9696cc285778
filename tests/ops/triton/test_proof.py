"""What every kernel owes, from one table of cases: values of float64, the same bits every time and in every batch.

Small cases run wherever kernels do, V4-Flash's shapes (marked gpu) on a GPU.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from tests.ops.triton.proof_cases import Case
from tests.ops.triton.proof_table import FULL, SMALL

from outrider import ops

HAVE_GPU = torch.cuda.is_available()
REPEATS = 50 if HAVE_GPU else 3
BATCHES = (1, 2, 4, 8, 64, 256, 4096)
COMPARED_ROWS = 24  # of a full shape: float64 is slow

FULL_ONLY_ON_GPU = [pytest.mark.gpu, pytest.mark.skipif(not HAVE_GPU, reason="no GPU")]


@pytest.fixture(
    scope="module",
    params=[
        *(pytest.param((SMALL, name), id=f"{name} small") for name in SMALL),
        *(pytest.param((FULL, name), id=f"{name} full", marks=FULL_ONLY_ON_GPU) for name in FULL),
    ],
)
def case(request: pytest.FixtureRequest) -> Case:
    table, name = request.param
    torch.manual_seed(0)
    built: Case = table[name]("cuda" if HAVE_GPU else "cpu")
    return built


def same(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_values_are_those_of_float64(case: Case) -> None:
    rows = torch.linspace(0, case.rows - 1, min(case.rows, COMPARED_ROWS)).long()
    compared = 0
    for found, expected, allowed in case.exact(rows, tuple(out[rows.to(out.device)] for out in case.whole)):
        assert found.shape == torch.broadcast_shapes(found.shape, expected.shape)
        assert bool(torch.isfinite(found).all())
        assert bool(((found - expected).abs() <= allowed).all()), float(((found - expected).abs() - allowed).max())
        compared += found.numel()
    assert compared >= rows.numel()


def test_every_time_the_same_bits(case: Case) -> None:
    assert all(out.shape[0] == case.rows for out in case.whole)
    for _ in range(REPEATS - 1):
        assert same(case.run(torch.arange(case.rows)), case.whole)


def test_batches_of_any_size(case: Case) -> None:
    """Rows that lie next to each other (a chunk, a verify block) and rows drawn at random (decodes): the bits that they
    have in the whole."""
    sizes = [size for size in BATCHES if size <= case.rows]
    assert len(sizes) >= 3
    for size in sizes:
        drawn = torch.randperm(case.rows, generator=torch.Generator().manual_seed(size))[:size]
        for rows in (torch.arange(case.rows - size, case.rows), drawn):
            if size < case.rows or rows is drawn:
                expected = tuple(out[rows.to(out.device)] for out in case.whole)
                assert same(case.run(rows), expected), (size, rows[:8].tolist())


def test_the_proofs_notice() -> None:
    """An error of one part in a hundred; a sum over the batch; a result that depends on how often it was asked for."""
    calls: list[int] = []

    def run(rows: Tensor) -> tuple[Tensor, ...]:
        calls.append(1)
        return (rows.double() + 1.0 + 1e-9 * rows.numel() + 1e-12 * len(calls),)

    bad = Case(9, run, lambda rows, outputs: iter([(outputs[0] * 1.01, rows.double() + 1.0, 1e-3)]))
    for proof in (test_values_are_those_of_float64, test_every_time_the_same_bits, test_batches_of_any_size):
        with pytest.raises(AssertionError):
            proof(bad)


PROVEN_BESIDE_THEIR_TESTS = {
    "test_expert_routing": {"route_tokens", "route_by_table", "order_by_expert"},
    "test_grouped_experts": {"grouped_experts"},
    "test_mhc_site": {"mhc_site", "mhc_head"},
    "test_row_norms": {"norm_rows", "quantize_rows", "swiglu_rows", "mtp_rows"},
    "test_sampling": {"sample_tokens"},
    "test_greedy_head": {"greedy_tokens"},
    "test_scaled_linear": {"scaled_linear"},
}
"""Ops of other modules, whose own tests compare with float64, repeat and batch."""


def test_every_op_with_kernels_has_a_case() -> None:
    source = Path(ops.__file__).read_text(encoding="utf-8")
    lines = re.findall(r"from outrider\.ops\.triton\.\w+ import (.+)", source)
    kernels = {name for line in lines for name in line.split(", ")}
    assert SMALL.keys() == FULL.keys()
    beside = set().union(*PROVEN_BESIDE_THEIR_TESTS.values())
    assert kernels == {name.split()[0] for name in SMALL} | beside
    for module, names in PROVEN_BESIDE_THEIR_TESTS.items():
        tests = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
        assert all(name in tests for name in names), module
