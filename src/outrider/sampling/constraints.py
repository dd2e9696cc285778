"""What changes a row's logits before the draw, as a function of the tokens in front of it.

Row i of a verification stands behind the committed tokens and the drafts before it, so its constraints are those that
plain decode would have at that place, computed in the same order: bans, bias, penalties.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from outrider.sampling.params import SamplingParams


class MaskError(RuntimeError):
    """A mask cannot say what may come next."""


class TokenMask(Protocol):
    """A grammar's view of one request: which tokens may come next."""

    def allowed(self, drafts: Sequence[int]) -> Tensor | None:
        """[V] bool: what may follow the accepted tokens and these drafts; None: anything.

        Asked only for drafts that were themselves allowed; must leave the state as it is. Raises MaskError.
        """

    def accept(self, token_ids: Sequence[int]) -> None:
        """These tokens were committed."""


class Constraints:
    """The constraints of one request. `ending_ids`: tokens that end the text, banned before `min_tokens`."""

    def __init__(
        self,
        params: SamplingParams,
        prompt_token_ids: Sequence[int],
        ending_ids: frozenset[int],
        mask: TokenMask | None = None,
    ) -> None:
        self._params = params
        self._prompt_length = len(prompt_token_ids)
        self._mask = mask
        self._ending = torch.tensor(sorted(ending_ids), dtype=torch.int64)
        self._bias_ids = torch.tensor(list(params.logit_bias), dtype=torch.int64)
        self._biases = torch.tensor(list(params.logit_bias.values()), dtype=torch.float32)
        self._penalised = (
            params.repetition_penalty != 1.0 or params.frequency_penalty != 0.0 or params.presence_penalty != 0.0
        )
        self._prompt_ids = set(prompt_token_ids) if self._penalised else set()
        self._counts: Counter[int] = Counter()  # of the output tokens seen so far
        self._counted = self._prompt_length

    @property
    def active(self) -> bool:
        """False: a row's logits are taken as they are."""
        p = self._params
        return bool(
            self._penalised
            or self._mask is not None
            or p.logit_bias
            or p.allowed_token_ids is not None
            or p.bad_words
            or p.min_tokens
        )

    def apply(self, logits: Tensor, token_ids: Sequence[int], drafts: Sequence[int]) -> Tensor:
        """logits: [V] float32 of the row behind token_ids (committed) and drafts. Returns a new row.

        Raises MaskError.
        """
        row = logits.clone()
        self._ban(row, token_ids, drafts)
        if self._bias_ids.numel():
            row[self._bias_ids] += self._biases
        if self._penalised:
            self._penalise(row, token_ids, drafts)
        return row

    def accept(self, token_ids: Sequence[int]) -> None:
        if self._mask is not None:
            self._mask.accept(token_ids)

    def _ban(self, row: Tensor, token_ids: Sequence[int], drafts: Sequence[int]) -> None:
        p = self._params
        if p.allowed_token_ids is not None:
            allowed = torch.tensor(p.allowed_token_ids, dtype=torch.int64)
            kept = row[allowed]
            row.fill_(float("-inf"))
            row[allowed] = kept
        if self._mask is not None:
            permitted = self._mask.allowed(drafts)
            if permitted is not None:
                row.masked_fill_(~permitted, float("-inf"))
        for word in p.bad_words:
            if _ends_with(token_ids, drafts, word[:-1], self._prompt_length):
                row[word[-1]] = float("-inf")
        if len(token_ids) + len(drafts) - self._prompt_length < p.min_tokens:
            row[self._ending] = float("-inf")

    def _penalise(self, row: Tensor, token_ids: Sequence[int], drafts: Sequence[int]) -> None:
        p = self._params
        self._counts.update(token_ids[self._counted :])
        self._counted = len(token_ids)
        counts = self._counts + Counter(drafts)
        if p.repetition_penalty != 1.0:
            seen = torch.tensor(sorted(self._prompt_ids | counts.keys()), dtype=torch.int64)
            scores = row[seen]
            row[seen] = torch.where(scores > 0, scores / p.repetition_penalty, scores * p.repetition_penalty)
        if counts:
            ids = torch.tensor(list(counts), dtype=torch.int64)
            times = torch.tensor(list(counts.values()), dtype=torch.float32)
            row[ids] -= p.frequency_penalty * times + p.presence_penalty


def _ends_with(token_ids: Sequence[int], drafts: Sequence[int], suffix: Sequence[int], start: int) -> bool:
    """Whether the output so far (from `start` on, then the drafts) ends with `suffix`."""
    if not suffix:
        return True
    if len(suffix) > len(token_ids) - start + len(drafts):
        return False
    tail = [*token_ids[-len(suffix) :], *drafts][-len(suffix) :]
    return list(tail) == list(suffix)
