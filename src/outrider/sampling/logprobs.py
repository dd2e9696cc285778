"""Log-probabilities of the model's own distribution."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

TokenLogprobs = dict[int, float]


def token_logprobs(logits: Tensor, chosen: Sequence[int], count: int) -> list[TokenLogprobs]:
    """For each row the chosen token's log-probability, first, and those of the `count` best tokens.

    logits: [M, V] float32, untouched by temperature, penalties and masks.
    """
    logprobs = torch.log_softmax(logits, dim=-1)
    best = logprobs.sort(dim=-1, descending=True, stable=True)
    rows = []
    for row, token in enumerate(chosen):
        top = zip(best.indices[row, :count].tolist(), best.values[row, :count].tolist(), strict=True)
        rows.append({token: float(logprobs[row, token]), **dict(top)})
    return rows
