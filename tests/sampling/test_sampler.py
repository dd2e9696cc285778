"""Emitted tokens follow the model's distribution, with and without drafts, and the filters do what their names say."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2
from torch import Tensor

from outrider.config import ConfigError
from outrider.sampling.filters import filter_logits
from outrider.sampling.noise import gumbel
from outrider.sampling.params import SamplingParams
from outrider.sampling.sampler import LogitsError, Sampler

P = torch.tensor([1.2, -0.4, 0.3, 2.0, -3.0, 0.0, 0.9, -1.0])
Q = torch.tensor([0.2, 0.8, 0.3, 1.5, -1.0, 0.5, -0.6, -1.0])
DRAWS = 60_000


def draws(logits: Tensor, temperature: float, count: int = DRAWS) -> Tensor:
    """One token of each of `count` seeds' worth of positions, drawn as the sampler does."""
    params = SamplingParams(temperature=temperature)
    rows = logits.expand(count, -1)
    return torch.tensor(Sampler(params, 1234)._draw(rows, 0))


def chi_square(tokens: Tensor, probabilities: Tensor) -> float:
    """p-value of the counts against the probabilities."""
    counts = torch.bincount(tokens, minlength=len(probabilities)).double()
    expected = probabilities * len(tokens)
    statistic = ((counts - expected) ** 2 / expected).sum().item()
    return float(chi2.sf(statistic, len(probabilities) - 1))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_softmax(temperature: float) -> None:
    assert chi_square(draws(P, temperature), torch.softmax(P.double() / temperature, 0)) > 1e-3


def test_chi_square_notices_a_wrong_distribution() -> None:
    assert chi_square(draws(P, 1.0), torch.softmax(P.double() * 1.05, 0)) < 1e-6


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_drafts_leave_the_distribution_alone_and_are_accepted_as_theory_says(temperature: float) -> None:
    """Drafter and target share the noise; what is emitted is the target's draw. Coupled acceptance is
    sum_i 1 / sum_j max(p_j / p_i, q_j / q_i), which is less than the ratio test's sum_i min(p_i, q_i)."""
    target, draft = draws(P, temperature), draws(Q, temperature)
    accepted = (draft == target).double().mean().item()
    p, q = torch.softmax(P.double() / temperature, 0), torch.softmax(Q.double() / temperature, 0)
    ratio = torch.maximum(p[None] / p[:, None], q[None] / q[:, None])
    theory = (1 / ratio.sum(1)).sum().item()
    sigma = math.sqrt(theory * (1 - theory) / DRAWS)
    assert accepted == pytest.approx(theory, abs=4 * sigma)
    assert theory < torch.minimum(p, q).sum().item()
    assert chi_square(target, p) > 1e-3


def test_greedy_takes_the_lowest_of_equal_scores() -> None:
    logits = torch.tensor([[0.0, 3.0, 3.0, 1.0], [5.0, 5.0, 5.0, 5.0]])
    assert Sampler(SamplingParams(temperature=0.0), 0)._draw(logits, 4) == [1, 0]


def test_tiny_temperature_is_greedy() -> None:
    logits = torch.randn(50, 300)
    sampler = Sampler(SamplingParams(temperature=1e-4), 3)
    top = logits.topk(2).values
    clear = top[:, 0] - top[:, 1] > 0.01
    tokens = torch.tensor(sampler._draw(logits, 0))
    assert torch.equal(tokens[clear], logits.argmax(-1)[clear])


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
def test_logits_that_are_not_finite_fail_the_request_if_they_count(poison: float, temperature: float) -> None:
    logits = torch.randn(3, 8)
    sampler = Sampler(SamplingParams(temperature=temperature), 0)
    (right,) = sampler.verify(logits[:1], [0] * 7, [])
    logits[1] = poison
    assert sampler.verify(logits, [0] * 7, [right, 0]) == [right]  # plain decoding would publish it too, and fail next
    with pytest.raises(LogitsError, match="position 8"):
        sampler.verify(logits[1:], [0] * 7 + [right], [0])
    assert sampler.verify(logits, [0] * 7, [(right + 1) % 8, 0]) == [right]  # nobody reads behind a wrong draft


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_one_bad_logit_never_becomes_a_token(poison: float) -> None:
    logits = torch.randn(1, 8)
    logits[0, 5] = poison
    sampler = Sampler(SamplingParams(temperature=0.7), 0)
    with pytest.raises(LogitsError):
        sampler.verify(logits, [], [])
    assert sampler.draft(logits, [], []) is None  # a drafter has no guess then; the request lives on


@settings(max_examples=60)
@given(drafts=st.lists(st.integers(0, 3), max_size=6), seed=st.integers(0, 50))
def test_verify_emits_the_drafts_that_were_drawn_and_one_more(drafts: list[int], seed: int) -> None:
    logits = torch.randn(len(drafts) + 1, 4, generator=torch.Generator().manual_seed(seed))
    sampler = Sampler(SamplingParams(temperature=1.0), seed)
    drawn = sampler._draw(logits, 11)
    emitted = sampler.verify(logits, [0] * 11, drafts)
    assert emitted == drawn[: len(emitted)]
    assert emitted[:-1] == drafts[: len(emitted) - 1]
    assert len(emitted) == len(drafts) + 1 or emitted[-1] != drafts[len(emitted) - 1]


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 7, 33])
def test_a_row_is_drawn_alike_in_every_batch(rows: int) -> None:
    logits = torch.randn(rows, 1023)
    sampler = Sampler(SamplingParams(temperature=0.9, top_k=200, top_p=0.95, min_p=0.001), 77)
    together = sampler.scores(logits, 0)
    for row in range(rows):
        assert torch.equal(sampler.scores(logits[row : row + 1], row)[0], together[row])


@settings(max_examples=60)
@given(
    values=st.lists(st.integers(-8, 8).map(lambda v: v / 4), min_size=2, max_size=12),
    top_k=st.integers(0, 14),
    top_p=st.sampled_from([1.0, 0.9, 0.5, 0.05]),
    min_p=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)
def test_filters_equal_a_naive_reading(values: list[float], top_k: int, top_p: float, min_p: float) -> None:
    """Quarter steps make many ties, which go to the lowest ids."""
    kept = list(range(len(values)))
    best_first = sorted(kept, key=lambda i: (-values[i], i))
    if top_k:
        kept = best_first = best_first[:top_k]
    total = sum(math.exp(values[i]) for i in kept)
    if top_p < 1.0:
        mass = 0.0
        nucleus: list[int] = []
        for i in best_first:
            if nucleus and mass >= top_p - 1e-6:
                break
            nucleus.append(i)
            mass += math.exp(values[i]) / total
        kept = nucleus
    if min_p:
        kept = [i for i in kept if math.exp(values[i] - values[best_first[0]]) >= min_p * (1 - 1e-6)]
    found = filter_logits(
        torch.tensor([values]), SamplingParams(temperature=1.0, top_k=top_k, top_p=top_p, min_p=min_p)
    )
    assert torch.isfinite(found[0]).nonzero()[:, 0].tolist() == sorted(kept)
    assert found[0, kept].tolist() == torch.tensor(values)[kept].tolist()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1), ("temperature", float("nan")), ("temperature", float("inf")), ("top_p", 0.0),
        ("top_p", 1.1), ("min_p", -1.0), ("top_k", -1), ("max_tokens", 0), ("seed", -1), ("seed", 2**64),
    ],
)  # fmt: skip
def test_values_out_of_range_are_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=field):
        SamplingParams(**{field: value})  # type: ignore[arg-type]


def test_noise_of_a_long_context_is_still_distinct() -> None:
    far = torch.tensor([2**31 - 1, 2**31, 2**32 - 1, 2**32])
    rows = gumbel(torch.zeros(4, dtype=torch.int64), far, 64)
    assert len({tuple(row.tolist()) for row in rows}) == 4
