"""Attention of each query over its own list of keys, with a sink; keys are the values.

    s_i = (q . k_i) * scale;   p_i = exp(s_i) / (sum_j exp(s_j) + exp(sink));   o = sum_i p_i k_i

Two passes over the keys of a query, entries before window, both in the order of their lists. A slot without a key is
never read, so that it may hold anything. Floor: the bytes of the keys, read once for all heads.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from outrider.ops.native.rows import is_plain
from outrider.ops.native.threads import spread
from outrider.ops.native.vector import FLOAT_BYTES, dot_1x1, dot_4x1, exp, floats, integers, kernel, part
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
        for i in range(count):
            a, b, c, e = dot_4x1(q0, q0 + pitch, q0 + 2 * pitch, q0 + 3 * pitch, keys[i], 0, d)
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
        for i in range(count):
            k = floats(keys[i])
            for head in range(heads):
                weight = scores[head, i]
                for j in range(d):
                    o[head * d + j] += weight * k[j]


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
    plain = is_plain(q) and is_plain(window_cache) and is_plain(sink) and window_cache.stride(1) == 1
    if entry_cache is not None and entries is not None:
        plain = plain and is_plain(entry_cache) and entry_cache.stride(1) == 1
        places = entry_cache, KeySlots(entries.slots.contiguous(), entries.bias.contiguous())
    else:
        places = window_cache, KeySlots(window.slots[:0, :0], window.bias[:0, :0])
    if not plain:
        return reference.sparse_attention(q, window_cache, window, entry_cache, entries, sink, scale)
    t, heads, d = q.shape
    q, sink = q.contiguous(), sink.contiguous()
    slots, bias = window.slots.contiguous(), window.bias.contiguous()
    others, other = places
    window_count, entry_count = slots.shape[1], other.slots.shape[1]
    out = q.new_empty(t, heads, d)

    def run(first: int, last: int) -> None:
        _attend(
            q.data_ptr(),
            first,
            last,
            heads,
            d,
            window_cache.data_ptr(),
            window_cache.stride(0) * FLOAT_BYTES,
            slots.data_ptr(),
            bias.data_ptr(),
            window_count,
            others.data_ptr(),
            others.stride(0) * FLOAT_BYTES,
            other.slots.data_ptr(),
            other.bias.data_ptr(),
            entry_count,
            sink.data_ptr(),
            scale,
            out.data_ptr(),
        )

    spread(run, t, 2 * t * heads * d * (window_count + entry_count))
    return out
