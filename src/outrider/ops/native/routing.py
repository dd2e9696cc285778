"""Routing of a mixture of experts: scores, the choice, the shares; formulas in the reference."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from outrider.ops.native.compilation import kernel
from outrider.ops.native.rows import is_plain
from outrider.ops.native.vector import FLOAT_BYTES, exp, floats, integers
from outrider.ops.reference import experts as reference

_ZERO = np.float32(0.0)
_TERMS = 10  # of log(1 + e) = 2 atanh(e / (2 + e)); the ratio of two terms is 1/9 at most


@kernel
def _scores(x, count, out):  # type: ignore[no-untyped-def]
    source, target = floats(x), floats(out)
    for i in range(count):
        v = source[i]
        e = np.float64(exp(-abs(v)))
        s = e / (2.0 + e)
        total = 0.0
        for k in range(_TERMS - 1, -1, -1):
            total = total * (s * s) + 1.0 / (2 * k + 1)
        log = np.float32(2.0 * s * total)
        target[i] = np.float32(math.sqrt(log + max(v, _ZERO)))


@kernel
def _select(scores, bias, t, experts, k, totals, taken_flags, out):  # type: ignore[no-untyped-def]
    """totals: [experts] floats and taken_flags: [experts] int64 of scratch."""
    b, total, taken = floats(bias), floats(totals), integers(taken_flags)
    for row in range(t):
        s, o = floats(scores + row * experts * FLOAT_BYTES), integers(out + row * k * 8)
        for e in range(experts):
            total[e] = s[e] + b[e]
            taken[e] = 0
        for _ in range(k):
            best = -1
            for e in range(experts):
                if taken[e] == 0 and (best < 0 or total[e] > total[best]):
                    best = e
            taken[best] = 1
        place = 0
        for e in range(experts):
            if taken[e] != 0:
                o[place] = e
                place += 1


@kernel
def _shares(scores, selected, t, experts, k, scaling, out):  # type: ignore[no-untyped-def]
    for row in range(t):
        s, chosen = floats(scores + row * experts * FLOAT_BYTES), integers(selected + row * k * 8)
        o = floats(out + row * k * FLOAT_BYTES)
        total = _ZERO
        for i in range(k):
            total += s[chosen[i]]
        for i in range(k):
            o[i] = s[chosen[i]] / total * np.float32(scaling)


def routing_scores(router_logits: Tensor) -> Tensor:
    """sqrt(softplus(x)), float32 [T, E]."""
    if not is_plain(router_logits):
        return reference.routing_scores(router_logits)
    x = router_logits.contiguous()
    out = x.new_empty(x.shape)
    _scores(x.data_ptr(), x.numel(), out.data_ptr())
    return out


def select_experts(scores: Tensor, bias: Tensor, topk: int) -> Tensor:
    """Ids of the `topk` experts of largest scores + bias, ascending; ties go to the lowest id. [T, topk] int64."""
    if not (is_plain(scores) and is_plain(bias)):
        return reference.select_experts(scores, bias, topk)
    scores, bias = scores.contiguous(), bias.contiguous()
    t, experts = scores.shape
    out = torch.empty(t, topk, dtype=torch.int64)
    totals, taken = scores.new_empty(experts), torch.empty(experts, dtype=torch.int64)
    scratch = totals.data_ptr(), taken.data_ptr()
    _select(scores.data_ptr(), bias.data_ptr(), t, experts, topk, *scratch, out.data_ptr())
    return out


def expert_weights(scores: Tensor, selected: Tensor, scaling: float) -> Tensor:
    """Share of each selected expert: its score over the sum of the selected ones, times `scaling`. [T, topk]."""
    if not is_plain(scores):
        return reference.expert_weights(scores, selected, scaling)
    scores, selected = scores.contiguous(), selected.contiguous()
    t, experts = scores.shape
    k = selected.shape[1]
    out = scores.new_empty(t, k)
    _shares(scores.data_ptr(), selected.data_ptr(), t, experts, k, scaling, out.data_ptr())
    return out
