"""Attention of each query over its own list of keys, with a sink; keys are the values.

    s_i = (q . k_i) * scale;   p_i = exp(s_i) / (sum_j exp(s_j) + exp(sink));   o = sum_i p_i k_i

Two passes over the keys of a query, entries before window, both in the order of their lists. A slot without a key is
never read, so that it may hold anything. Floor: the bytes of the keys, read once for all heads.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from outrider.ops.native.compilation import kernel, part
from outrider.ops.native.rows import is_plain
from outrider.ops.native.threads import spread
from outrider.ops.native.vector import (
    FLOAT_BYTES,
    add_scaled_1,
    add_scaled_8,
    dot_1x1,
    dot_4x1,
    dot_4x2,
    exp,
    floats,
    integers,
)
from outrider.ops.reference import attention as reference
from outrider.ops.reference.attention import KeySlots

_ZERO = np.float32(0.0)
_INDEX_BYTES = 8


@part
def _collect(cache, pitch, slots, bias, n, keys, count):  # type: ignore[no-untyped-def]
    """Appends the addresses of the keys that exist; returns how many there are now."""
    s, b = integers(slots), floats(bias)
    for i in range(n):
        if b[i] == _ZERO:
            keys[count] = cache + s[i] * pitch
            count += 1
    return count


@part
def _scores(q, heads, d, keys, count, scale, scores):  # type: ignore[no-untyped-def]
    """scores[h, i] = (q_h . k_i) * scale for the first `count` keys."""
    pitch = d * FLOAT_BYTES
    head = 0
    while head + 4 <= heads:
        q0 = q + head * pitch
        q1, q2, q3 = q0 + pitch, q0 + 2 * pitch, q0 + 3 * pitch
        i = 0
        while i + 2 <= count:  # two keys share the loads of the queries
            a, a2, b, b2, c, c2, e, e2 = dot_4x2(q0, q1, q2, q3, keys[i], keys[i + 1] - keys[i], d)
            scores[head, i], scores[head, i + 1] = a * scale, a2 * scale
            scores[head + 1, i], scores[head + 1, i + 1] = b * scale, b2 * scale
            scores[head + 2, i], scores[head + 2, i + 1] = c * scale, c2 * scale
            scores[head + 3, i], scores[head + 3, i + 1] = e * scale, e2 * scale
            i += 2
        if i < count:
            a, b, c, e = dot_4x1(q0, q1, q2, q3, keys[i], 0, d)
            scores[head, i], scores[head + 1, i] = a * scale, b * scale
            scores[head + 2, i], scores[head + 3, i] = c * scale, e * scale
        head += 4
    while head < heads:
        for i in range(count):
            (a,) = dot_1x1(q + head * pitch, keys[i], 0, d)
            scores[head, i] = a * scale
        head += 1


@part
def _softmax(scores, count, sink):  # type: ignore[no-untyped-def]
    """In place over the first `count` scores, with one more that has no value."""
    top = sink
    for i in range(count):
        top = max(top, scores[i])
    for i in range(count):
        scores[i] = exp(scores[i] - top)
    total = _ZERO
    for i in range(count):
        total += scores[i]
    total += exp(sink - top)
    for i in range(count):
        scores[i] /= total


@kernel
def _attend(  # type: ignore[no-untyped-def]
    q,
    first,
    last,
    heads,
    d,
    window,
    window_pitch,
    window_slots,
    window_bias,
    window_count,
    entries,
    entry_pitch,
    entry_slots,
    entry_bias,
    entry_count,
    sink,
    scale,
    out,
):
    keys = np.empty(entry_count + window_count, np.int64)
    scores = np.empty((heads, entry_count + window_count), np.float32)
    key_base, weight_base = keys.ctypes.data, scores.ctypes.data
    size, sinks = heads * d * FLOAT_BYTES, floats(sink)
    for row in range(first, last):
        e, w = row * entry_count, row * window_count
        count = _collect(
            entries, entry_pitch, entry_slots + e * _INDEX_BYTES, entry_bias + e * FLOAT_BYTES, entry_count, keys, 0
        )
        count = _collect(
            window,
            window_pitch,
            window_slots + w * _INDEX_BYTES,
            window_bias + w * FLOAT_BYTES,
            window_count,
            keys,
            count,
        )
        _scores(q + row * size, heads, d, keys, count, np.float32(scale), scores)
        o = floats(out + row * size)
        for i in range(heads * d):
            o[i] = _ZERO
        for head in range(heads):
            _softmax(scores[head], count, sinks[head])
        i = 0
        while i < count:  # the same order either way: eight keys share the loads and stores of the sum
            step = 8 if i + 8 <= count else 1
            for head in range(heads):
                sums = out + row * size + head * d * FLOAT_BYTES
                weights = weight_base + (head * (entry_count + window_count) + i) * FLOAT_BYTES
                if step == 8:
                    add_scaled_8(sums, weights, key_base + i * _INDEX_BYTES, d)
                else:
                    add_scaled_1(sums, weights, key_base + i * _INDEX_BYTES, d)
            i += step


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
    slots, bias = window.slots.contiguous(), window.bias.contiguous()
    if entry_cache is None or entries is None:
        entry_cache, entry_slots, entry_bias, entry_count = window_cache, slots, bias, 0
    else:
        entry_slots, entry_bias = entries.slots.contiguous(), entries.bias.contiguous()
        entry_count = entry_slots.shape[1]
    if not (is_plain(q) and _is_cache(window_cache) and _is_cache(entry_cache) and is_plain(sink)):
        return reference.sparse_attention(q, window_cache, window, entry_cache, entries, sink, scale)
    q, sink = q.contiguous(), sink.contiguous()
    t, heads, d = q.shape
    window_count = slots.shape[1]
    out = torch.empty_like(q)
    window_rows = window_cache.data_ptr(), window_cache.stride(0) * FLOAT_BYTES
    entry_rows = entry_cache.data_ptr(), entry_cache.stride(0) * FLOAT_BYTES
    window_list = slots.data_ptr(), bias.data_ptr(), window_count
    entry_list = entry_slots.data_ptr(), entry_bias.data_ptr(), entry_count
    lists = (*window_rows, *window_list, *entry_rows, *entry_list)
    source, sinks, target = q.data_ptr(), sink.data_ptr(), out.data_ptr()

    def run(first: int, last: int) -> None:
        _attend(source, first, last, heads, d, *lists, sinks, scale, target)

    spread(run, t, 2 * t * heads * d * (window_count + entry_count))
    return out


def _is_cache(rows: Tensor) -> bool:
    return is_plain(rows) and rows.stride(1) == 1
