"""Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), one word a token.

    key     = a 64-bit seed                                 (low word, high word)
    counter = (token id, 0, position low, position high)

Integers only, so every device and backend gives the same words.
"""

from __future__ import annotations

import torch
from torch import Tensor

WORD = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


def philox_words(seeds: Tensor, positions: Tensor, token_ids: Tensor) -> Tensor:
    """First output word of each (row, token): seeds, positions [M] int64, token_ids [V] int64 -> [M, V] int64.

    Seeds are read as 64 unsigned bits.
    """
    key0, key1 = (seeds & WORD)[:, None], (seeds >> 32 & WORD)[:, None]
    zero = torch.zeros_like(key0)
    c0, c1 = token_ids[None, :], zero
    c2, c3 = (positions & WORD)[:, None], (positions >> 32 & WORD)[:, None]
    for _ in range(ROUNDS):
        # int64 products wrap, and their bits are those of the unsigned product
        product0, product1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (product1 >> 32 & WORD) ^ c1 ^ key0,
            product1 & WORD,
            (product0 >> 32 & WORD) ^ c3 ^ key1,
            product0 & WORD,
        )
        key0, key1 = key0 + KEY_STEPS[0] & WORD, key1 + KEY_STEPS[1] & WORD
    return c0.expand(seeds.shape[0], token_ids.shape[0])
