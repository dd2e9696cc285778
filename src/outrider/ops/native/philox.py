"""Philox4x32-10, one word a token: see ops/reference/philox.py."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from outrider.ops.native.compilation import kernel
from outrider.ops.native.vector import integers
from outrider.ops.reference import philox as reference
from outrider.ops.reference.philox import KEY_STEPS, MULTIPLIERS, ROUNDS, WORD

_WORD, _HALF = np.uint64(WORD), np.uint64(32)
_MULTIPLIER0, _MULTIPLIER1 = (np.uint64(value) for value in MULTIPLIERS)
_STEP0, _STEP1 = (np.uint64(value) for value in KEY_STEPS)


@kernel
def _words(seeds, positions, rows, token_ids, tokens, out):  # type: ignore[no-untyped-def]
    keys, places, ids, words = integers(seeds), integers(positions), integers(token_ids), integers(out)
    for row in range(rows):
        seed, position = np.uint64(keys[row]), np.uint64(places[row])
        for j in range(tokens):
            key0, key1 = seed & _WORD, seed >> _HALF
            c0, c1 = np.uint64(ids[j]), np.uint64(0)
            c2, c3 = position & _WORD, position >> _HALF
            for _ in range(ROUNDS):
                product0, product1 = c0 * _MULTIPLIER0, c2 * _MULTIPLIER1
                c0 = (product1 >> _HALF) ^ c1 ^ key0
                c1 = product1 & _WORD
                c2 = (product0 >> _HALF) ^ c3 ^ key1
                c3 = product0 & _WORD
                key0, key1 = (key0 + _STEP0) & _WORD, (key1 + _STEP1) & _WORD
            words[row * tokens + j] = np.int64(c0)


def philox_words(seeds: Tensor, positions: Tensor, token_ids: Tensor) -> Tensor:
    """As the reference, word for word."""
    if not all(x.is_cpu and x.dtype is torch.int64 for x in (seeds, positions, token_ids)):
        return reference.philox_words(seeds, positions, token_ids)
    seeds, positions, token_ids = seeds.contiguous(), positions.contiguous(), token_ids.contiguous()
    rows, tokens = seeds.shape[0], token_ids.shape[0]
    out = seeds.new_empty(rows, tokens)
    _words(seeds.data_ptr(), positions.data_ptr(), rows, token_ids.data_ptr(), tokens, out.data_ptr())
    return out
