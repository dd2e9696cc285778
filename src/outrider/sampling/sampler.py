"""One function that turns logits into tokens, for plain decode, verification and drafting alike."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from outrider.sampling.constraints import Constraints, MaskError, TokenMask
from outrider.sampling.filters import filter_logits
from outrider.sampling.noise import as_signed, gumbel
from outrider.sampling.params import SamplingParams


class LogitsError(RuntimeError):
    """No token can be drawn: the logits are NaN or infinite, or nobody knows which tokens are allowed."""


class Sampler:
    """The draws of one request. seed: the 64 bits that it keeps for its whole life."""

    def __init__(
        self,
        params: SamplingParams,
        seed: int,
        prompt_token_ids: Sequence[int] = (),
        ending_ids: frozenset[int] = frozenset(),
        mask: TokenMask | None = None,
    ) -> None:
        self.params = params
        self.seed = seed
        self._constraints = Constraints(params, prompt_token_ids, ending_ids, mask)

    def verify(self, logits: Tensor, token_ids: Sequence[int], drafts: Sequence[int]) -> list[int]:
        """The target's tokens behind token_ids: each draft that it would have drawn itself, then its own next one.

        logits: [len(drafts) + 1, V] float32, of the rows behind token_ids and drafts[:0], drafts[:1], ... Rows behind
        a draft that was not drawn are never looked at. Raises LogitsError when nothing can be drawn behind token_ids.
        """
        if not self._constraints.active:
            drawn = self._draw(logits, len(token_ids))
        else:
            drawn = []
            for row in range(len(drafts) + 1):
                try:
                    constrained = self._constrained(logits[row], token_ids, drafts[:row])
                except MaskError as error:
                    if row == 0:
                        raise LogitsError(str(error)) from None
                    break  # what stands is published, as plain decoding would; the next step will fail
                drawn += self._draw(constrained, len(token_ids) + row)
                if row < len(drafts) and drawn[row] != drafts[row]:
                    break
        accepted = 0
        while accepted < min(len(drafts), len(drawn) - 1) and drawn[accepted] == drafts[accepted]:
            accepted += 1
        if drawn[accepted] < logits.shape[-1]:
            return drawn[: accepted + 1]
        if accepted == 0:
            raise LogitsError(f"no token can be drawn at position {len(token_ids)}: no allowed one has a finite logit")
        return drawn[:accepted]  # what stands is published, as plain decoding would; the next step will fail

    def draft(self, logits: Tensor, token_ids: Sequence[int], drafts: Sequence[int]) -> int | None:
        """A drafter's guess behind token_ids and drafts: drawn exactly as the target will draw. logits: [1, V].

        None when nothing can be drawn: then nothing is guessed.
        """
        try:
            row = self._constrained(logits[0], token_ids, drafts) if self._constraints.active else logits
        except MaskError:
            return None
        (token,) = self._draw(row, len(token_ids) + len(drafts))
        return token if token < logits.shape[-1] else None

    def accept(self, token_ids: Sequence[int]) -> None:
        """These tokens were committed."""
        self._constraints.accept(token_ids)

    def _constrained(self, logits: Tensor, token_ids: Sequence[int], drafts: Sequence[int]) -> Tensor:
        return self._constraints.apply(logits, token_ids, drafts)[None]

    def _draw(self, logits: Tensor, position: int) -> list[int]:
        """[M, V] rows whose tokens stand at position, position + 1, ... -> ids, V where no best score is finite."""
        scores = self.scores(logits, position)
        best = scores.amax(-1, keepdim=True)
        ids = torch.arange(scores.shape[-1])
        # the lowest id among equals: argmax does not promise which one it returns
        found = torch.where((scores == best) & torch.isfinite(best), ids, scores.shape[-1])
        return found.amin(-1).tolist()

    def scores(self, logits: Tensor, position: int) -> Tensor:
        """What is maximised: [M, V] float32."""
        if self.params.temperature == 0.0:
            return logits
        rows, vocab_size = logits.shape
        scaled = filter_logits(logits / self.params.temperature, self.params)
        seeds = as_signed([self.seed] * rows)
        return scaled + gumbel(seeds, torch.arange(position, position + rows), vocab_size)
