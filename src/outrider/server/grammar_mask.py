"""A grammar at work in one request: which tokens may follow the committed ones, and any drafts behind them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from llguidance import LLMatcher
from torch import Tensor

from outrider.sampling.constraints import MaskError
from outrider.server.grammar_compiler import error_line


class GrammarMask:
    """An `outrider.sampling.constraints.TokenMask`.

    The matcher stands behind the committed tokens and some drafts; it is moved to the drafts that are asked about and
    back, so that what was refused leaves nothing. The masks of a step are kept: the drafter and the verifier ask for
    the same ones.
    """

    def __init__(self, matcher: LLMatcher, vocab_size: int, eos_token_id: int) -> None:
        """matcher: at its start, and nobody else's."""
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._eos_token_id = eos_token_id
        self._ahead: list[int] = []  # drafts that the matcher has taken
        self._masks: dict[tuple[int, ...], Tensor] = {}  # by the drafts before it

    def allowed(self, drafts: Sequence[int]) -> Tensor | None:
        """[V] bool. None behind a drafted end token: what follows is dropped. Raises MaskError."""
        if self._eos_token_id in drafts:
            return None
        key = tuple(drafts)
        if key not in self._masks:
            self._move(drafts)
            self._masks[key] = self._mask()
        return self._masks[key]

    def accept(self, token_ids: Sequence[int]) -> None:
        """An error shows when the next mask is asked for."""
        self._masks.clear()
        if self._eos_token_id not in token_ids:  # nothing comes after it
            self._move(token_ids)
            self._ahead = []

    def _move(self, token_ids: Sequence[int]) -> None:
        """To these tokens behind the committed ones."""
        common = 0
        while common < min(len(self._ahead), len(token_ids)) and self._ahead[common] == token_ids[common]:
            common += 1
        if common < len(self._ahead):
            self._matcher.rollback(len(self._ahead) - common)
        self._matcher.consume_tokens(list(token_ids[common:]))
        self._ahead = list(token_ids)

    def _mask(self) -> Tensor:
        bits = self._matcher.compute_bitmask()
        if self._matcher.is_error():
            raise MaskError(f"the grammar cannot go on: {error_line(self._matcher)}")
        bytes_ = np.unpackbits(np.frombuffer(bits, np.uint8), count=self._vocab_size, bitorder="little")
        return torch.from_numpy(bytes_).view(torch.bool)
