"""Experts of quantised weights: values against the reference, bits of a token through every batch, what is not read."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from tests.ops.triton.expert_cases import Problem, build, build_bank

from outrider.ops.expert_bank import ExpertBank, in_fnuz, read_expert
from outrider.ops.formats import round_trip_fp8
from outrider.ops.reference import grouped_experts as reference
from outrider.ops.reference.expert_routing import Routes
from outrider.ops.triton.grouped_experts import grouped_experts, stage_inputs
from outrider.ops.triton.launching import expert_tiles_for
from outrider.platforms.tiles import INTERPRETER_EXPERT_TILES, ExpertTiles

FORMS = ["fp4", "ocp", "fnuz"]
LIMIT = 10.0


def run(problem: Problem, *, round_trip: bool = True, **options: Any) -> Tensor:
    p = problem
    return grouped_experts(p.x, p.routes, p.bank, LIMIT, p.shared, round_trip=round_trip, **options).cpu()


def expected(problem: Problem, *, round_trip: bool = True) -> Tensor:
    p = problem.on_cpu()
    return reference.grouped_experts(p.x, p.routes, p.bank, LIMIT, p.shared, round_trip=round_trip)


def close(found: Tensor, wanted: Tensor, tolerance: float = 1e-3) -> None:
    """A hidden value near the middle between two FP8 or bfloat16 values may fall on either side."""
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    error = (found.float() - wanted.float()).norm(dim=-1)
    assert bool((error <= tolerance * wanted.float().norm(dim=-1)).all()), error


def tiles_of(device: str) -> ExpertTiles:
    return INTERPRETER_EXPERT_TILES if device == "cpu" else expert_tiles_for(torch.device("cuda"), 1, 1)


# -------- inputs


@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_staged_inputs_have_the_bits_of_the_reference(parts: int, dtype: torch.dtype, device: str) -> None:
    """Magnitudes from below the scales' floor to large, blocks of zeros, with NaN and with infinity; two columns of
    programs, the second one not full."""
    x = torch.randn(5, 1152, generator=torch.Generator().manual_seed(0))
    x *= torch.exp2(torch.arange(45) * 1.5 - 40).view(5, 9, 1).expand(5, 9, 128).reshape(5, 1152)
    x[0, :128], x[1, 130], x[2, 300] = 0.0, float("nan"), float("inf")
    x = x.to(dtype)
    for round_trip in (True, False):
        found = stage_inputs(x.to(device), parts, round_trip=round_trip).cpu()
        plain = x.bfloat16().float()
        wanted = (round_trip_fp8(plain, 128) if round_trip else plain).bfloat16()
        wanted = wanted.view(5, -1, parts).transpose(1, 2).reshape(5, 1152)
        assert torch.equal(found.isnan(), wanted.isnan())
        assert torch.equal(found.nan_to_num(7.0), wanted.nan_to_num(7.0))


# -------- values


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("round_trip", [True, False])
def test_values(form: str, round_trip: bool, device: str) -> None:
    problem = build(form, 6, device, padded=(2,), shared=True)
    found = run(problem, round_trip=round_trip)
    close(found, expected(problem, round_trip=round_trip))
    assert problem.shared is not None and torch.equal(found[2], problem.shared[2].cpu())


@pytest.mark.parametrize("form", ["fp4", "ocp"])
def test_bfloat16_in_and_out(form: str, device: str) -> None:
    problem = build(form, 4, device, padded=(0,), dtype=torch.bfloat16)
    found = run(problem)
    close(found, expected(problem), 4e-3)
    assert found[0].tolist() == [0.0] * 256


@pytest.mark.parametrize("form", ["fp4", "ocp"])
def test_against_float64(form: str, device: str) -> None:
    """Not by way of the reference: the formula, with hidden values that only bfloat16 rounds."""
    problem = build(form, 3, device, dtype=torch.bfloat16)
    problem = replace(problem, x=problem.x * 4)
    host = problem.on_cpu()
    total = torch.zeros(3, 256, dtype=torch.float64)
    beyond = False
    for token in range(3):
        for expert, share in zip(host.routes.selected[token], host.routes.shares[token], strict=True):
            gate_up, down = (w.double() for w in read_expert(host.bank, int(expert)))
            gate, up = (gate_up @ host.x[token].double()).chunk(2)
            beyond |= bool((gate > LIMIT).any()) and bool((up.abs() > LIMIT).any())
            hidden = gate.clamp_max(LIMIT) * torch.sigmoid(gate.clamp_max(LIMIT)) * up.clamp(-LIMIT, LIMIT)
            total[token] += down @ (hidden * share)
    assert beyond
    found = run(replace(problem, x=problem.x.float()), round_trip=False).double()
    assert float((found - total).norm() / total.norm()) < 2e-3


@pytest.mark.parametrize("form", FORMS)
def test_gate_50_up_minus_50(form: str, device: str) -> None:
    """The gate is cut at 10, the up at -10, before anything else: silu(10) * -10. A gate of -50 is not cut."""
    bank = build_bank(form, 1, 128, 128, "cpu")
    one = {"fp4": 2, "ocp": 0x38, "fnuz": 0x40}[form]  # code of 1, scales of 1
    for codes, scales in ((bank.gate_up, bank.gate_up_scales), (bank.down, bank.down_scales)):
        codes.zero_()
        scales.fill_(127)
    # hidden value 0: gate = x[0], up = x[1]; output 5 = hidden value 0
    low, high = (one, one << 4) if form == "fp4" else (one, one)
    bank.gate_up[0, 0, 0] = low
    bank.gate_up[0, 128, 0 if form == "fp4" else 1] = high
    bank.down[0, 5, 0] = low
    bank = ExpertBank(*(x.to(device) if isinstance(x, Tensor) else x for x in bank))  # type: ignore[arg-type]
    routes = Routes(torch.zeros(2, 1, dtype=torch.int32, device=device), torch.ones(2, 1, device=device))
    x = torch.zeros(2, 128, device=device)
    x[0, 0], x[0, 1], x[1, 0], x[1, 1] = 50.0, -50.0, -50.0, 50.0
    found = run(Problem(x, routes, bank), round_trip=False)
    silu = [10 / (1 + math.exp(-10)), -50 / (1 + math.exp(50))]
    wanted = torch.tensor([silu[0] * -10, silu[1] * 10]).bfloat16().float()
    assert torch.equal(found[:, 5], wanted)
    assert float(found.abs().sum(1)[0]) == float(wanted[0].abs())


# -------- bits


@pytest.mark.parametrize("form", ["fp4", "ocp"])
def test_a_token_alone_and_in_any_company(form: str, device: str) -> None:
    """In a batch, in another order, alone, beside 40 tokens of its experts, in blocks of any size: the same bits."""
    problem = build(form, 41, device, experts=2, topk=1, d=128, padded=(7,), shared=True)
    problem.routes.selected[:, 0] = torch.tensor([-1 if i == 7 else int(i > 36) for i in range(41)])
    together = run(problem)
    for token_tile in (32, 64):
        assert torch.equal(run(problem, tiles=replace(tiles_of(device), token_tile=token_tile)), together)
    order = torch.tensor([40, 7, 3, 38])
    assert torch.equal(run(problem.select(order.to(device))), together[order])
    assert torch.equal(run(problem.select(torch.tensor([20], device=device)))[0], together[20])


def test_both_dialects_of_fp8_have_the_same_bits(device: str) -> None:
    problem = build("ocp", 3, device)
    found = run(replace(problem, bank=in_fnuz(problem.bank)))
    assert torch.equal(found, run(problem))
    wrong = problem.bank._replace(dialect=in_fnuz(problem.bank).dialect)
    with pytest.raises(AssertionError):
        close(run(replace(problem, bank=wrong)), expected(problem))


def test_experts_are_added_in_order_of_their_ids(device: str) -> None:
    """Outputs of 2^24, 1 and -2^24: their sum in float32 depends on who comes first."""
    bank = build_bank("ocp", 3, 128, 128, "cpu")
    for codes, scales in ((bank.gate_up, bank.gate_up_scales), (bank.down, bank.down_scales)):
        codes.zero_()
        scales.fill_(127)
    bank.gate_up[:, 0, 0], bank.gate_up[:, 128, 0] = 0x38, 0x38
    bank.down[0, 0, 0], bank.down[1, 0, 0], bank.down[2, 0, 0] = 0x38, 0x38, 0xB8
    bank.down_scales[0], bank.down_scales[2] = 127 + 24, 127 + 24
    bank = ExpertBank(*(x.to(device) if isinstance(x, Tensor) else x for x in bank))  # type: ignore[arg-type]
    x = torch.zeros(1, 128, device=device)
    x[0, 0] = 40.0  # silu(10) * 10 rounds to 100 in bfloat16
    routes = Routes(torch.tensor([[0, 1, 2]], dtype=torch.int32, device=device), torch.ones(1, 3, device=device) / 100)
    assert float(run(Problem(x, routes, bank), round_trip=False)[0, 0]) in (0.0, 2.0)  # (2^24 + 1) - 2^24, not 1


# -------- what is not there is not read


@pytest.mark.parametrize("form", ["fp4", "ocp"])
def test_nan_goes_to_those_who_chose_it(form: str, device: str) -> None:
    """An expert without values, a token with NaN and padded rows of NaN: nobody else sees any of them."""
    problem = build(form, 8, device, topk=1, padded=(3, 4))
    problem.routes.selected[:, 0] = torch.tensor([0, 1, 2, -1, -1, 0, 4, 2])
    clean = run(problem)
    problem.bank.down_scales[2] = 255
    problem.bank.gate_up_scales[3] = 255  # nobody chose it
    problem.x[5, 17] = float("nan")
    found = run(problem)
    bad = [2, 5, 7]
    rest = [0, 1, 3, 4, 6]
    assert torch.equal(found[rest], clean[rest])
    assert not bool(torch.isfinite(found[bad]).any())


def test_no_token_and_none_that_lives(device: str) -> None:
    problem = build("fp4", 3, device, padded=(0, 1, 2))
    assert run(problem).tolist() == [[0.0] * 256] * 3
    assert run(problem.select(torch.tensor([], dtype=torch.int64, device=device))).shape == (0, 256)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"x": torch.zeros(2, 128)}, r"x: \[2, 128\] torch.float32, expected \[T, 256\]"),
        ({"x": torch.zeros(2, 256).half()}, r"x: \[2, 256\] torch.float16"),
        ({"selected": torch.zeros(3, 2, dtype=torch.int32)}, r"selected \[3, 2\], shares \[2, 2\], .* for 2 tokens"),
        ({"selected": torch.zeros(2, 2, dtype=torch.int64)}, "selected torch.int64, .* expected int32"),
        ({"shared": torch.zeros(1, 256)}, r"shared: \[1, 256\] torch.float32, expected \[2, 256\]"),
        ({"down_scales": torch.zeros(5, 256, 4)}, r"down_scales: .* torch.float32, .* float32 ones are not served"),
        ({"gate_up": torch.zeros(5, 256, 64, dtype=torch.uint8)}, r"gate_up: \[5, 256, 64\] .* \[5, 256, 128\] uint8"),
        ({"gate_up": torch.zeros(5, 192, 128, dtype=torch.uint8)}, "experts of 256 x 96; .* multiples of 128"),
    ],
)
def test_what_is_not_served_is_refused(change: dict[str, Tensor], complaint: str, device: str) -> None:
    problem = build("fp4", 2, device)
    routes = problem.routes._replace(**{k: v for k, v in change.items() if k in Routes._fields})
    bank = problem.bank._replace(**{k: v for k, v in change.items() if k in ExpertBank._fields})  # type: ignore[arg-type]
    rest = {k: v for k, v in change.items() if k in ("x", "shared")}
    with pytest.raises(ValueError, match=complaint):
        run(replace(problem, routes=routes, bank=bank, **rest))


def test_only_ocp_becomes_fnuz() -> None:
    with pytest.raises(ValueError, match="experts of dialect None, expected FP8"):
        in_fnuz(build_bank("fp4", 1, 128, 128, "cpu"))


# -------- full shape


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("form", FORMS)
def test_batch_sizes_at_full_shape(form: str) -> None:
    """V4-Flash: a token's bits alone, in a decode batch of any size, in a prefill chunk, in each block size."""
    problem = build(form, 1024, "cuda", experts=32, topk=6, d=4096, width=2048, dtype=torch.bfloat16)
    whole = run(problem)
    close(whole[:8], expected(problem.select(torch.arange(8, device="cuda"))), 8e-3)
    for rows in (1, 2, 3, 4, 8, 16, 17, 64, 257):
        part = problem.select(torch.arange(1024 - rows, 1024, device="cuda"))
        for _ in range(20 if rows <= 64 else 2):
            assert torch.equal(run(part), whole[1024 - rows :])
    for token_tile in (16, 32, 64, 128):
        tiles = replace(expert_tiles_for(torch.device("cuda"), 1024 * 6, 32), token_tile=token_tile)
        assert torch.equal(run(problem, tiles=tiles), whole)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("form", ["fp4", "ocp"])
def test_1000_times_the_same(form: str) -> None:
    problem = build(form, 24, "cuda", experts=32, topk=6, d=1024, width=512, dtype=torch.bfloat16, padded=(5, 23))
    first = run(problem)
    for _ in range(1000):
        assert torch.equal(run(problem), first)
