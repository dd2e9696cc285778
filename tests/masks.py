"""Token masks for tests: grammars whose answer depends on every token before, and that check how they are asked."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_MODULUS = 10_007


class HashMask:
    """Allows about `share` eighths of the vocabulary, chosen by a hash of all tokens so far; sometimes anything.

    The state is a running hash, so that a token accepted twice, or not at all, or a draft that was kept after its
    rejection, changes everything that follows.
    """

    def __init__(self, vocab_size: int, salt: int, share: int = 4) -> None:
        self._vocab_size = vocab_size
        self._salt = salt
        self._share = share
        self._state = salt % _MODULUS
        self.accepted: list[int] = []

    def allowed(self, drafts: Sequence[int]) -> Tensor | None:
        state = self._state
        for draft in drafts:
            permitted = self._permitted(state)
            assert permitted is None or bool(permitted[draft]), "asked behind a draft that was refused"
            state = _next(state, draft)
        return self._permitted(state)

    def accept(self, token_ids: Sequence[int]) -> None:
        for token in token_ids:
            permitted = self._permitted(self._state)
            assert permitted is None or bool(permitted[token]), "a refused token was committed"
            self._state = _next(self._state, token)
        self.accepted += token_ids

    def _permitted(self, state: int) -> Tensor | None:
        if state % 5 == 0:
            return None
        keys = torch.arange(self._vocab_size) * 2654435761 + state * 40503 + self._salt
        permitted = (keys >> 7) % 8 < self._share
        permitted[state % self._vocab_size] = True  # never nothing
        return permitted


def _next(state: int, token: int) -> int:
    return (state * 31 + token * 7 + 1) % _MODULUS
