"""Attention of each query over its own list of keys, with a sink; keys are the values.

s_i = (q . k_i) * scale;   p_i = exp(s_i) / (sum_j exp(s_j) + exp(sink));   o = sum_i p_i k_i
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from outrider.ops.reference.linear import matrix_product


class KeySlots(NamedTuple):
    """Which rows of a cache each query reads, in the order they are summed.

    slots: [T, N] int64 into the cache, 0 (a row of zeros) where there is no key;
    bias:  [T, 1, N] float32, 0 for a key and -inf where there is none.
    N follows from the query's own position, so a query's arithmetic is the same in every batch.
    """

    slots: Tensor
    bias: Tensor

    def select(self, rows: Tensor) -> KeySlots:
        return KeySlots(self.slots[rows], self.bias[rows])


def key_slots(slots: Tensor) -> KeySlots:
    """slots: [T, N] int64 with -1 where there is no key."""
    missing = slots < 0
    bias = torch.zeros(slots.shape, dtype=torch.float32).masked_fill_(missing, float("-inf"))
    return KeySlots(slots.clamp_min(0), bias[:, None, :])


# Bounds the gathered keys to tens of MB; has no influence on any result.
_QUERIES_AT_ONCE = 64


def sparse_attention(
    q: Tensor,
    window_cache: Tensor,
    window: KeySlots,
    entry_cache: Tensor | None,
    entries: KeySlots | None,
    sink: Tensor,
    scale: float,
) -> Tensor:
    """Attends compressed entries first, then the window, in one softmax.

    q: [T, H, D]; caches: [slots, D]; entries: N = 0 keys when None; sink: [H]. Returns [T, H, D] float32.
    A query without any key gives 0.
    """
    out = torch.empty_like(q)
    for start in range(0, q.shape[0], _QUERIES_AT_ONCE):
        part = slice(start, start + _QUERIES_AT_ONCE)
        keys = window_cache[window.slots[part]]
        bias = window.bias[part]
        if entries is not None and entry_cache is not None:
            keys = torch.cat([entry_cache[entries.slots[part]], keys], dim=1)
            bias = torch.cat([entries.bias[part], bias], dim=2)
        attend(q[part], keys, bias, sink, scale, out[part])
    return out


def attend(q: Tensor, keys: Tensor, bias: Tensor, sink: Tensor, scale: float, out: Tensor) -> None:
    """q: [T, H, D]; keys: [T, N, D]; bias: [T, 1, N]; writes out [T, H, D]. All float32."""
    scores = q.new_empty(q.shape[0], q.shape[1], keys.shape[1])
    for row in range(q.shape[0]):  # one product a query: a batched one would choose its kernel by the batch
        matrix_product(q[row], keys[row].t(), out=scores[row])
    scores.mul_(scale).add_(bias)
    sink = sink[:, None]
    top = torch.maximum(scores.amax(-1, keepdim=True), sink)
    weights = scores.sub_(top).exp_()
    weights.div_(weights.sum(-1, keepdim=True).add_(torch.exp(sink - top)))
    for row in range(q.shape[0]):
        matrix_product(weights[row], keys[row], out=out[row])
