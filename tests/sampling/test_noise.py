"""The noise is Philox by its published definition, and its uniforms never reach 0 or 1."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outrider import ops
from outrider.ops.reference import philox as reference
from outrider.sampling.noise import as_signed, derived_seed, gumbel, words_to_uniform

MASK = 0xFFFFFFFF


def philox4x32_10(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    """Scalar Philox4x32-10 in Python integers."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & MASK, (p0 >> 32) ^ c3 ^ k1, p0 & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c0, c1, c2, c3


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((MASK,) * 4, (MASK,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_scalar_philox_gives_the_published_answers(
    counter: tuple[int, ...], key: tuple[int, ...], words: tuple[int, ...]
) -> None:
    assert philox4x32_10(counter, key) == words


@given(
    seeds=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4),
    position=st.integers(0, 2**63 - 1),
    tokens=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5),
)
def test_words_equal_scalar_philox(seeds: list[int], position: int, tokens: list[int]) -> None:
    positions = torch.full((len(seeds),), position)
    for philox_words in (ops.philox_words, reference.philox_words):
        found = philox_words(as_signed(seeds), positions, torch.tensor(tokens))
        for row, seed in enumerate(seeds):
            for column, token in enumerate(tokens):
                counter = (token, 0, position & MASK, position >> 32)
                assert found[row, column] == philox4x32_10(counter, (seed & MASK, seed >> 32))[0]


def test_extreme_words_give_finite_noise() -> None:
    words = torch.tensor([0, 1, 511, 512, 2**31 - 1, 2**31, MASK - 512, MASK - 511, MASK])
    uniform = words_to_uniform(words)
    assert uniform.dtype == torch.float32
    assert uniform.tolist() == [((w >> 9) + 0.5) / 2**23 for w in words.tolist()]  # exact in float32
    assert uniform.min() > 0.0
    assert uniform.max() < 1.0
    noise = -torch.log(-torch.log(uniform))
    assert torch.isfinite(noise).all()
    # a token of probability 1e-22 must not win by the noise's reach alone (a uniform of 1.0 would make it infinite)
    assert noise.max() - noise.min() < -math.log(1e-22)


def test_noise_depends_on_seed_position_and_token_alone() -> None:
    seeds, positions = as_signed([5, 6, 5, 2**64 - 1]), torch.tensor([9, 9, 10, 9])
    rows = gumbel(seeds, positions, 301)
    for row in range(4):
        assert torch.equal(gumbel(seeds[row : row + 1], positions[row : row + 1], 301)[0], rows[row])
        assert torch.equal(gumbel(seeds[row : row + 1], positions[row : row + 1], 1000)[0, :301], rows[row])
    assert len({tuple(row.tolist()) for row in rows}) == 4


def test_noise_has_the_gumbel_distribution() -> None:
    noise = gumbel(as_signed(list(range(40))), torch.arange(40), 2000).double().flatten()
    assert noise.mean().item() == pytest.approx(0.5772, abs=0.02)
    assert noise.var().item() == pytest.approx(math.pi**2 / 6, rel=0.03)


def test_derived_seeds_are_not_neighbours() -> None:
    derived = {derived_seed(seed, index) for seed in range(20) for index in range(20)}
    assert len(derived) == 400
    assert derived.isdisjoint(range(100))
