"""Gumbel noise keyed by position: the same numbers on every device, in every batch, at every draft depth.

The word w of Philox4x32-10 whose key is the request's 64-bit seed, and whose counter is the token id and the position
of the token being sampled (ops/reference/philox.py), gives u = ((w >> 9) + 0.5) * 2^-23, exact in float32 and never 0
or 1, and g = -log(-log u).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from outrider import ops


def words_to_uniform(words: Tensor) -> Tensor:
    """32-bit words -> float32 in (0, 1): the middle of one of 2^23 equal cells, so 0 and 1 cannot occur."""
    return (words >> 9).to(torch.float32).add_(0.5).mul_(2.0**-23)


def gumbel(seeds: Tensor, positions: Tensor, vocab_size: int) -> Tensor:
    """Noise of every token of the vocabulary at each row's position: [M, V] float32."""
    words = ops.philox_words(seeds, positions, torch.arange(vocab_size))
    return words_to_uniform(words).log_().neg_().log_().neg_()


def derived_seed(seed: int, index: int) -> int:
    """Seed of the index-th of several samples of one request: a hash, since neighbouring seeds must not be shared."""
    digest = hashlib.blake2b(f"{seed}:{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def as_signed(seeds: Sequence[int]) -> Tensor:
    """64-bit seeds (0 <= seed < 2^64) -> int64 tensor of the same bits."""
    return torch.tensor([seed - (1 << 64) if seed >= 1 << 63 else seed for seed in seeds], dtype=torch.int64)
