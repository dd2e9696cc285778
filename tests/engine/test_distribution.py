"""Text from the whole engine follows the model's own distribution, whatever the drafter guesses.

A model with 8 tokens, thousands of seeds, MTP on. The distribution of each emitted token, given those before it, comes
from plain forward passes over every prefix. The same test refuses acceptance rules that look harmless.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import pytest
import torch
from scipy.stats import chi2
from tests.histories import tiny_model
from torch import Tensor

from outrider.cache.batch import RequestRows
from outrider.cache.paged_cache import PagedCache
from outrider.config import EngineConfig, SpeculativeConfig
from outrider.engine.engine import Engine
from outrider.sampling import sampler as sampler_module
from outrider.sampling.noise import gumbel
from outrider.sampling.params import SamplingParams
from outrider.sampling.sampler import Sampler

VOCAB = 8
PROMPT = (3, 1, 4, 1, 5, 2, 6)
OUTPUT = 4  # the second step verifies two drafts
TESTED = 3  # positions: of the fourth there would be 512 distributions
SEEDS = 800
FEWER_SEEDS = 400  # enough to find a bias
OPTIONS = EngineConfig(max_model_len=64, max_num_seqs=128, max_num_batched_tokens=1024, enable_prefix_caching=False)

Verify = Callable[[Sampler, Tensor, Sequence[int], Sequence[int]], list[int]]


class Texts(NamedTuple):
    tokens: list[tuple[int, ...]]
    accepted: int
    refused: int


@cache
def logits_by_prefix() -> dict[tuple[int, ...], Tensor]:
    """What the trunk says after the prompt and each possible output of fewer than TESTED tokens: [V] float64."""
    trunk = tiny_model(vocab_size=VOCAB).trunk
    outputs = list(itertools.product(range(VOCAB), repeat=TESTED - 1))
    cache = PagedCache(trunk.config, window_pages=len(outputs) + 1, entry_pages=len(outputs) + 1, with_drafter=False)
    length = len(PROMPT) + TESTED - 1
    rows = []
    for _ in outputs:
        pages = cache.new_request()
        pages.reserve(length)
        rows.append(RequestRows(pages, 0, length))
    with torch.inference_mode():
        ids = torch.tensor([(*PROMPT, *output) for output in outputs]).flatten()
        logits = trunk.logits(trunk.forward(ids, rows, cache)).double().unflatten(0, (len(outputs), length))
    ends = range(len(PROMPT) - 1, length)
    return {output[:i]: logits[row, end] for row, output in enumerate(outputs) for i, end in enumerate(ends)}


def texts(temperature: float, seeds: int) -> Texts:
    """What the engine emits for each seed, with real MTP drafts."""
    speculative = SpeculativeConfig(method="mtp", num_speculative_tokens=3, adaptive=False)
    engine = Engine(*tiny_model(vocab_size=VOCAB), speculative, OPTIONS)
    requests = [
        engine.add_request(
            PROMPT, SamplingParams(temperature=temperature, seed=seed, max_tokens=OUTPUT, ignore_eos=True)
        )
        for seed in range(seeds)
    ]
    while engine.has_unfinished:
        engine.step()
    accepted = sum(request.statistics.num_accepted_tokens for request in requests)
    drafted = sum(request.statistics.num_draft_tokens for request in requests)
    return Texts([tuple(request.output_token_ids) for request in requests], accepted, drafted - accepted)


def p_values(found: Texts, temperature: float) -> list[float]:
    """Of each position: counts of its tokens against the distributions that belong to the prefixes before it."""
    values = []
    for position in range(TESTED):
        statistic, freedom = 0.0, 0
        prefixes = Counter(tokens[:position] for tokens in found.tokens)
        counts = Counter(tokens[: position + 1] for tokens in found.tokens)
        for prefix, times in prefixes.items():
            expected = (times * torch.softmax(logits_by_prefix()[prefix] / temperature, 0)).tolist()
            seen = [counts[*prefix, token] for token in range(VOCAB)]
            cells = merged_cells(expected, seen)
            statistic += sum((s - e) ** 2 / e for e, s in cells)
            freedom += len(cells) - 1
        values.append(float(chi2.sf(statistic, freedom)))
    return values


def merged_cells(expected: Sequence[float], seen: Sequence[int], least: float = 5.0) -> list[tuple[float, int]]:
    """(expected, seen) with rare tokens put together until each cell expects at least `least`."""
    cells: list[tuple[float, int]] = []
    rare, rare_seen = 0.0, 0
    for e, s in sorted(zip(expected, seen, strict=True)):
        rare, rare_seen = rare + e, rare_seen + s
        if rare >= least:
            cells.append((rare, rare_seen))
            rare, rare_seen = 0.0, 0
    if rare and cells:
        cells[-1] = cells[-1][0] + rare, cells[-1][1] + rare_seen
    return cells or [(rare, rare_seen)]


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_emitted_tokens_follow_the_model(temperature: float) -> None:
    found = texts(temperature, SEEDS)
    assert min(found.accepted, found.refused) > SEEDS / 10
    assert min(p_values(found, temperature)) > 1e-3


def keep_every_draft(sampler: Sampler, logits: Tensor, token_ids: Sequence[int], drafts: Sequence[int]) -> list[int]:
    (last,) = sampler._draw(logits[-1:], len(token_ids) + len(drafts))
    return [*drafts, last]


def keep_likely_drafts(sampler: Sampler, logits: Tensor, token_ids: Sequence[int], drafts: Sequence[int]) -> list[int]:
    """A draft stands when the target finds it likely, although it would have drawn another token."""
    probabilities = torch.softmax(logits / sampler.params.temperature, -1)
    emitted: list[int] = []
    for row, (draft, drawn) in enumerate(zip([*drafts, -1], sampler._draw(logits, len(token_ids)), strict=True)):
        likely = draft >= 0 and float(probabilities[row, draft]) > 0.1
        emitted.append(draft if likely else drawn)
        if not likely and draft != drawn:
            break
    return emitted


def ratio_test_with_shared_noise(
    sampler: Sampler, logits: Tensor, token_ids: Sequence[int], drafts: Sequence[int]
) -> list[int]:
    """A refused draft is replaced by the best of the others under the noise that had chosen the draft."""
    emitted: list[int] = []
    for row, draft in enumerate([*drafts, -1]):
        (drawn,) = sampler._draw(logits[row : row + 1], len(token_ids) + row)
        if draft == drawn or draft < 0:
            emitted.append(drawn)
            continue
        others = logits[row : row + 1].clone()
        others[0, drawn] = float("-inf")
        return [*emitted, *sampler._draw(others, len(token_ids) + row)]
    return emitted


@pytest.mark.parametrize("rule", [keep_every_draft, keep_likely_drafts, ratio_test_with_shared_noise])
def test_other_acceptance_rules_are_found_out(rule: Verify, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sampler, "verify", rule)
    assert min(p_values(texts(1.0, FEWER_SEEDS), 1.0)) < 1e-5


def test_noise_that_repeats_at_the_next_position_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each token by itself would be right; given the one before it, it is not."""

    def without_position(seeds: Tensor, positions: Tensor, vocab_size: int) -> Tensor:
        return gumbel(seeds, torch.zeros_like(positions), vocab_size)

    monkeypatch.setattr(sampler_module, "gumbel", without_position)
    values = p_values(texts(1.0, FEWER_SEEDS), 1.0)
    assert values[0] > 1e-3
    assert values[1] < 1e-5
