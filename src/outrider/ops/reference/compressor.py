"""Pooling of a window of tokens into one compressed entry.

e = sum_t softmax_t(z_t) * a_t       softmax over the tokens, separately for every channel
"""

from __future__ import annotations

from torch import Tensor


def pool_windows(values: Tensor, gates: Tensor) -> Tensor:
    """values, gates: [C, n, D] float32 (a gate of -inf leaves its token out) -> [C, D]."""
    weights = (gates - gates.amax(1, keepdim=True)).exp_()
    return (weights * values).sum(1).div_(weights.sum(1))
