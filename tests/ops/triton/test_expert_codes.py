"""Weights of experts decoded to bfloat16: every code under scales of every size, and the assembly, instruction by
instruction, where there is no GPU to run it."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

import triton
import triton.language as tl

from outrider.ops.formats import decode_e2m1, decode_e8m0
from outrider.ops.triton import expert_codes
from outrider.ops.triton.expert_codes import UNSCALE, code_multiplier, fp4_operands, fp8_operands

FORMATS = ["fp4", "ocp", "fnuz"]
SCALES = [50, 100, 119, 126, 127, 128, 140, 160]


@triton.jit
def decode_kernel(words, scales, out, FORMAT: tl.constexpr, PTX: tl.constexpr):  # type: ignore[no-untyped-def]
    """words: int16 [32, 32], scales: [32] -> out [parts, 32, 32] bfloat16."""
    rows, columns = tl.arange(0, 32), tl.arange(0, 32)
    place = rows[:, None] * 32 + columns[None, :]
    multiplier = tl.broadcast_to(code_multiplier(tl.load(scales + rows), FORMAT, PTX)[:, None], (32, 32))
    word = tl.load(words + place)
    if FORMAT == "fp4":
        a, b, c, d = fp4_operands(word, multiplier, PTX)
        tl.store(out + 2 * 1024 + place, c)
        tl.store(out + 3 * 1024 + place, d)
    else:
        a, b = fp8_operands(word, multiplier, PTX)
    tl.store(out + place, a)
    tl.store(out + 1024 + place, b)


def expected(words: Tensor, scale: Tensor, form: str) -> Tensor:
    """[parts, ...] float32 of int16 words, one scale byte each row."""
    unsigned = words.to(torch.int32) & 0xFFFF
    if form == "fp4":
        values = torch.stack([decode_e2m1(unsigned >> 4 * i & 0xF) for i in range(4)])
    else:
        native = torch.float8_e4m3fn if form == "ocp" else torch.float8_e4m3fnuz
        codes = torch.stack([unsigned >> 8 * i & 0xFF for i in range(2)]).to(torch.uint8)
        values = codes.view(native).float()
    return values * decode_e8m0(scale)[:, None]


def random_words(form: str) -> Tensor:
    """Every pair of FP8 codes is too many; every code is in every place. Codes that are NaN are left out."""
    words = torch.randint(-(1 << 15), 1 << 15, (32, 32), generator=torch.Generator().manual_seed(0))
    words[0, :16] = torch.arange(16) * 0x1111
    words[1:9] = (torch.arange(256) * 0x0101).view(8, 32)
    if form != "fp4":
        bad = (0x7F, 0xFF) if form == "ocp" else (0x80,)
        for part in (0, 8):
            for code in bad:
                words[(words >> part & 0xFF) == code] ^= 1 << part
    return words.to(torch.int16)


@pytest.mark.parametrize("form", FORMATS)
def test_codes_are_their_values(form: str, device: str) -> None:
    words = random_words(form)
    scales = torch.tensor(SCALES * 4, dtype=torch.uint8)
    out = torch.empty(4 if form == "fp4" else 2, 32, 32, dtype=torch.bfloat16, device=device)
    decode_kernel[(1,)](words.to(device), scales.to(device), out, FORMAT=form, PTX=device == "cuda")
    assert torch.equal(out.cpu().float() * UNSCALE.value, expected(words, scales, form))


@pytest.mark.parametrize("form", FORMATS)
def test_a_scale_without_a_value_is_not_finite(form: str, device: str) -> None:
    words = random_words(form)
    scales = torch.full((32,), 255, dtype=torch.uint8, device=device)
    out = torch.empty(4 if form == "fp4" else 2, 32, 32, dtype=torch.bfloat16, device=device)
    decode_kernel[(1,)](words.to(device), scales, out, FORMAT=form, PTX=device == "cuda")
    assert not bool(torch.isfinite(out.float()).any())


def halves(register: Tensor) -> Tensor:
    """int64 registers [...] -> the two bfloat16 in each, [..., 2] float32."""
    bits = torch.stack([register & 0xFFFF, register >> 16 & 0xFFFF], -1)
    return (bits << 16).to(torch.int32).view(torch.float32)


def run(assembly: str, registers: dict[str, Tensor]) -> dict[str, Tensor]:
    """The instructions that `expert_codes` uses, on 32-bit registers held as int64."""

    def value(name: str) -> Tensor:
        return registers[name] if name in registers else torch.tensor(int(name, 0))

    for line in assembly.replace("{", "").replace("}", "").split(";"):
        name, _, rest = line.strip().partition(" ")
        if not name or name == ".reg":
            continue
        target, *operands = re.split(r",\s*", rest)
        a, b, *more = map(value, operands)
        if name == "shl.b32":
            found = a << b & 0xFFFFFFFF
        elif name == "shr.u32":
            found = a >> b
        elif name == "and.b32":
            found = a & b
        elif name == "lop3.b32":
            assert int(more[1]) == 0xEA  # (a & b) | c
            found = a & b | more[0]
        else:
            assert name == "mul.bf16x2"
            product = (halves(a) * halves(b)).bfloat16().view(torch.int16).to(torch.int64) & 0xFFFF
            found = product[..., 0] | product[..., 1] << 16
        registers[target] = found
    return registers


@pytest.mark.parametrize("form", FORMATS)
def test_the_assembly_gives_the_same_values(form: str) -> None:
    words = random_words(form)
    for scale in SCALES:
        pairs = words.to(torch.int64).view(-1, 2) & 0xFFFF
        field = scale + {"fp4": 86, "ocp": 80, "fnuz": 79}[form]
        inputs = [pairs[:, 0] | pairs[:, 1] << 16, torch.tensor(field * 0x00800080)]
        parts = 4 if form == "fp4" else 2
        registers = {f"${parts + i}": x for i, x in enumerate(inputs)}
        text = (expert_codes._FP4_PTX if form == "fp4" else expert_codes._FP8_PTX).value
        registers = run(text, registers)
        found = torch.stack([halves(registers[f"${i}"]).view(32, 32) for i in range(parts)]) * UNSCALE.value
        assert torch.equal(found, expected(words, torch.full((32,), scale, dtype=torch.uint8), form))
