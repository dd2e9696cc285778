"""Draws: noise bit by bit, tokens against the reference and against the sampler that the CPU engine uses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("triton")

from tests.ops.triton.linear_cases import moved

from outrider.ops.reference import sampling as reference
from outrider.ops.reference.philox import philox_words as reference_words
from outrider.ops.reference.sampling import Draws
from outrider.ops.triton.noise import gumbel, philox_words
from outrider.ops.triton.sampling import sample_tokens
from outrider.sampling.noise import as_signed
from outrider.sampling.noise import gumbel as sampler_gumbel
from outrider.sampling.params import SamplingParams
from outrider.sampling.sampler import Sampler

NAMES: dict[str, Any] = {"plain": {}, "top_k": {"top_k": 7}, "top_p": {"top_p": 0.6}, "min_p": {"min_p": 0.05}}
NAMES["all"] = {"top_k": 40, "top_p": 0.9, "min_p": 0.01}
NAMES["top_k of ties"] = {"top_k": 3}


@triton.jit
def noise_kernel(seeds, positions, words, noise, count, N: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    ids = tl.program_id(1) * N + tl.arange(0, N)
    drawn = philox_words(tl.load(seeds + row), tl.load(positions + row), ids)
    tl.store(words + row * count + ids, drawn.to(tl.int64), mask=ids < count)
    tl.store(noise + row * count + ids, gumbel(drawn), mask=ids < count)


def draws(rows: int, device: str = "cpu", allowed: Tensor | None = None, **changes: Any) -> Draws:
    """Rows of one request's parameters, at their own seeds and positions."""
    p = SamplingParams(**{"temperature": 0.8} | changes)
    seeds = torch.randint(-(1 << 62), 1 << 62, (rows,))
    positions = torch.randint(0, 1 << 20, (rows,))
    asked: list[Any] = [seeds, positions, torch.full((rows,), p.temperature)]
    asked += [torch.full((rows,), p.top_k, dtype=torch.int32), torch.full((rows,), p.top_p)]
    asked += [torch.full((rows,), p.min_p), bool(p.top_k or p.top_p < 1.0 or p.min_p), allowed]
    drawn: Draws = moved(Draws(*asked), device)
    return drawn


def test_words_are_the_reference_s_and_noise_is_within_1e_6(device: str) -> None:
    seeds = as_signed([0, 1, (1 << 64) - 1, 0x0123456789ABCDEF, 1 << 63])
    positions = torch.tensor([0, 1, 1 << 20, (1 << 40) + 5, 7])
    count = 1000
    words = torch.empty(5, count, dtype=torch.int64, device=device)
    noise = torch.empty(5, count, device=device)
    noise_kernel[(5, 8)](seeds.to(device), positions.to(device), words, noise, count, N=128, enable_fp_fusion=False)
    assert torch.equal(words.cpu(), reference_words(seeds, positions, torch.arange(count)))
    expected = sampler_gumbel(seeds, positions, count)
    assert bool(((noise.cpu() - expected).abs() <= 1e-6 * expected.abs().clamp_min(1.0)).all())


@triton.jit
def gumbel_kernel(words, noise, N: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(noise + place, gumbel(tl.load(words + place).to(tl.uint32)))


def test_noise_of_extreme_words(device: str) -> None:
    """Against float64: the relative precision near u = 1 decides large noise."""
    few = torch.arange(512)
    words = torch.cat([few << 9, ((1 << 23) - 1 - few) << 9, torch.randint(0, 1 << 32, (1024,))]).to(device)
    noise = torch.empty(words.shape[0], device=device)
    gumbel_kernel[(words.shape[0] // 128,)](words, noise, N=128, enable_fp_fusion=False)
    u = ((words.cpu() >> 9).double() + 0.5) * 2.0**-23
    expected = -torch.log(-torch.log(u))
    assert bool(((noise.cpu().double() - expected).abs() <= 3e-7 * expected.abs().clamp_min(1.0)).all())
    assert 16.6 < float(noise.max()) < 16.7 and -2.9 < float(noise.min()) < -2.7


@pytest.mark.parametrize("name", NAMES)
def test_tokens_are_the_sampler_s(name: str, device: str) -> None:
    rows, vocab_size = 8, 5000 if device == "cpu" else 129280
    logits = 3 * torch.randn(rows, vocab_size)
    if name == "top_k of ties":
        logits = logits.round()
    asked = draws(rows, device, **NAMES[name])
    found = sample_tokens(logits.to(device), asked).cpu()
    host = moved(asked, "cpu")
    assert torch.equal(found, reference.sample_tokens(logits, host))
    params = SamplingParams(temperature=0.8, **NAMES[name])
    for row in range(rows):
        sampler = Sampler(params, int(host.seeds[row]) % (1 << 64))
        scores = sampler.scores(logits[row : row + 1], int(host.positions[row]))[0]
        best = scores.topk(2).values
        assert int(found[row]) == int(scores.argmax()) or float(best[0] - best[1]) < 1e-5


@settings(max_examples=15, phases=[Phase.explicit, Phase.generate])
@given(
    st.integers(1, 70),
    st.integers(1, 6),
    st.integers(0, 70),
    st.sampled_from([1.0, 0.999, 0.5, 0.01]),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from([0.0, 0.7, 5.0]),
    st.integers(0, 99),
)
def test_any_filter(vocab: int, values: int, k: int, p: float, low: float, temperature: float, seed: int) -> None:
    """Few distinct scores, so that cuts fall among equal ones; a mask."""
    if torch.cuda.is_available():
        pytest.skip("kernels of this process are compiled")
    torch.manual_seed(seed)
    logits = torch.randint(0, values, (3, vocab)).float() * 0.7
    allowed = torch.rand(3, vocab) < 0.8
    asked = draws(3, "cpu", allowed, top_k=k, top_p=p, min_p=low, temperature=temperature)
    assert torch.equal(sample_tokens(logits, asked), reference.sample_tokens(logits, asked))


def test_rows_of_different_requests(device: str) -> None:
    """Each row as if it were alone, whatever the others ask for."""
    logits = torch.randn(5, 3000, device=device) * 2
    parts = [draws(1, device, temperature=0.0, top_k=3), draws(1, device, top_k=2), draws(1, device, top_p=0.3)]
    parts += [draws(1, device, temperature=1.7), draws(1, device, min_p=0.5)]
    fields: list[Any] = [torch.cat(list(field)) for field in list(zip(*parts, strict=True))[:6]]
    fields.append(True)  # some are filtered
    together = Draws(*fields)
    found = sample_tokens(logits, together)
    alone = [sample_tokens(logits[i : i + 1], part) for i, part in enumerate(parts)]
    assert found.tolist() == [int(token) for token in alone]
    assert int(found[0]) == int(logits[0].argmax())


def test_greedy_takes_the_lowest_of_equals(device: str) -> None:
    logits = torch.zeros(3, 5000, device=device)
    logits[0, [2047, 2048, 4999]] = 1.0
    logits[1, 4999] = 1.0
    assert sample_tokens(logits, draws(3, device, temperature=0.0)).tolist() == [2047, 4999, 0]


@pytest.mark.parametrize("changes", [{"temperature": 0.0}, {}, {"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.5}])
def test_what_cannot_be_drawn_says_so(changes: dict[str, Any], device: str) -> None:
    logits = torch.randn(5, 2100)
    logits[0, 2099] = torch.nan
    logits[1, 3] = torch.inf
    logits[2] = -torch.inf
    logits[3, 5:] = -torch.inf
    asked = draws(5, device, **changes)
    found = sample_tokens(logits.to(device), asked).cpu()
    assert found[:3].tolist() == [2100] * 3
    assert torch.equal(found, reference.sample_tokens(logits, moved(asked, "cpu")))


def test_a_mask(device: str) -> None:
    logits = torch.randn(4, 2500)
    allowed = torch.zeros(4, 2500, dtype=torch.bool)
    allowed[0, 77] = allowed[1, [5, 2499]] = True
    allowed[3] = True
    logits[1, 5] = logits[1, 2499]
    asked = draws(4, device, allowed, temperature=0.0)
    found = sample_tokens(logits.to(device), asked).cpu()
    assert found.tolist() == [77, 5, 2500, int(logits[3].argmax())]


def test_no_rows_and_what_is_refused(device: str) -> None:
    logits = torch.zeros(2, 9, device=device)
    assert sample_tokens(logits[:0], draws(0, device)).shape == (0,)
    with pytest.raises(ValueError, match="expected float32"):
        sample_tokens(logits.bfloat16(), draws(2, device))
    with pytest.raises(ValueError, match=r"allowed: \[2, 8\], the logits are \[2, 9\]"):
        sample_tokens(logits, draws(2, device, torch.ones(2, 8, dtype=torch.bool)))
