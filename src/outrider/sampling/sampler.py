"""One function that turns logits into tokens, for plain decode, verification and drafting alike."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from outrider.sampling.filters import filter_logits
from outrider.sampling.noise import as_signed, gumbel
from outrider.sampling.params import SamplingParams


class LogitsError(RuntimeError):
    """The model gave logits from which no token can be drawn (NaN, or infinite)."""


@dataclass(frozen=True)
class Sampler:
    """The draw of one request. seed: the 64 bits that it keeps for its whole life."""

    params: SamplingParams
    seed: int

    def sample(self, logits: Tensor, positions: list[int]) -> list[int]:
        """logits: [M, V] float32 of rows whose next tokens stand at `positions` (absolute) -> M token ids.

        Raises LogitsError when a row holds no finite best score.
        """
        scores = self.scores(logits, positions)
        best = scores.amax(-1, keepdim=True)
        if not bool(torch.isfinite(best).all()):
            raise LogitsError(f"the logits at position {positions[0]} or after are not finite")
        ids = torch.arange(scores.shape[-1])
        # the lowest id among equals: argmax does not promise which one it returns
        return torch.where(scores == best, ids, scores.shape[-1]).amin(-1).tolist()

    def scores(self, logits: Tensor, positions: list[int]) -> Tensor:
        """What is maximised: [M, V] float32."""
        if self.params.temperature == 0.0:
            return logits
        scaled = filter_logits(logits / self.params.temperature, self.params)
        seeds = as_signed([self.seed] * len(positions))
        return scaled + gumbel(seeds, torch.tensor(positions), logits.shape[-1])
