"""Gumbel noise keyed by position: the same numbers on every device, in every batch, at every draft depth.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) with

    key     = the request's 64-bit seed                     (low word, high word)
    counter = (token id, 0, position low, position high)    position: of the token being sampled

The first output word w gives u = ((w >> 9) + 0.5) * 2^-23, exact in float32 and never 0 or 1, and g = -log(-log u).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox_words(seeds: Tensor, positions: Tensor, token_ids: Tensor) -> Tensor:
    """First Philox4x32-10 word of each (row, token): seeds, positions [M] int64, token_ids [V] int64 -> [M, V] int64.

    Seeds are read as 64 unsigned bits.
    """
    key0, key1 = (seeds & _MASK)[:, None], (seeds >> 32 & _MASK)[:, None]
    zero = torch.zeros_like(key0)
    c0, c1 = token_ids[None, :], zero
    c2, c3 = (positions & _MASK)[:, None], (positions >> 32 & _MASK)[:, None]
    for _ in range(_ROUNDS):
        # int64 products wrap, and their bits are those of the unsigned product
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (product1 >> 32 & _MASK) ^ c1 ^ key0,
            product1 & _MASK,
            (product0 >> 32 & _MASK) ^ c3 ^ key1,
            product0 & _MASK,
        )
        key0, key1 = key0 + _KEY_STEPS[0] & _MASK, key1 + _KEY_STEPS[1] & _MASK
    return c0.expand(seeds.shape[0], token_ids.shape[0])


def words_to_uniform(words: Tensor) -> Tensor:
    """32-bit words -> float32 in (0, 1): the middle of one of 2^23 equal cells, so 0 and 1 cannot occur."""
    return ((words >> 9).to(torch.float32) + 0.5) * 2.0**-23


def gumbel(seeds: Tensor, positions: Tensor, vocab_size: int) -> Tensor:
    """Noise of every token of the vocabulary at each row's position: [M, V] float32."""
    words = philox_words(seeds, positions, torch.arange(vocab_size))
    return -torch.log(-torch.log(words_to_uniform(words)))


def derived_seed(seed: int, index: int) -> int:
    """Seed of the index-th of several samples of one request: a hash, since neighbouring seeds must not be shared."""
    digest = hashlib.blake2b(f"{seed}:{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def as_signed(seeds: Sequence[int]) -> Tensor:
    """64-bit seeds (0 <= seed < 2^64) -> int64 tensor of the same bits."""
    return torch.tensor([seed - (1 << 64) if seed >= 1 << 63 else seed for seed in seeds], dtype=torch.int64)
