"""Attention of each query over its own list of keys, with a sink; keys are the values.

    s_i = (q . k_i) * scale;   p_i = exp(s_i) / (sum_j exp(s_j) + exp(sink));   o = sum_i p_i k_i

Two passes over the keys of a query, entries before window, both in the order of their lists. A slot without a key is
never read, so that it may hold anything. Floor: the bytes of the keys, read once for all heads.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from outrider.ops.native.compilation import kernel
from outrider.ops.native.dot_tiles import dot_tile
from outrider.ops.native.row_functions import softmax_row
from outrider.ops.native.rows import is_plain
from outrider.ops.native.threads import spread
from outrider.ops.native.vector import FLOAT_BYTES, add_scaled_1, add_scaled_8, clear, floats, integers
from outrider.ops.reference import attention as reference
from outrider.ops.reference.attention import KeySlots

_ZERO = np.float32(0.0)
_INDEX_BYTES = 8

_tile_4x2 = dot_tile(4, 2)
_tile_1x1 = dot_tile(1, 1)


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
    places,
    scores,
    out,
):
    """places: [keys] int64 and scores: [heads, keys] floats of scratch, keys = entry_count + window_count."""
    pitch, score_pitch = d * FLOAT_BYTES, (entry_count + window_count) * FLOAT_BYTES
    keys, sinks = integers(places), floats(sink)
    for row in range(first, last):
        count = 0
        for kind in range(2):
            if kind == 0:
                cache, rows, n, slots, bias = entries, entry_pitch, entry_count, entry_slots, entry_bias
            else:
                cache, rows, n, slots, bias = window, window_pitch, window_count, window_slots, window_bias
            own_slots, own_bias = integers(slots), floats(bias)
            for i in range(row * n, row * n + n):
                if own_bias[i] == _ZERO:
                    keys[count] = cache + own_slots[i] * rows
                    count += 1
        for head in range(heads):
            query, own = q + (row * heads + head) * pitch, scores + head * score_pitch
            shared = head // 4 * 4 + 4 <= heads  # four heads and two keys share their loads
            done = count // 2 * 2 if shared else 0
            if shared and head % 4 == 0:
                for i in range(0, done, 2):
                    _tile_4x2(query, pitch, keys[i], keys[i + 1] - keys[i], d, own + i * FLOAT_BYTES, score_pitch)
            for i in range(done, count):
                _tile_1x1(query, 0, keys[i], 0, d, own + i * FLOAT_BYTES, 0)
        for head in range(heads):
            softmax_row(scores + head * score_pitch, count, np.float32(scale), sinks[head])
        clear(out + row * heads * pitch, heads * d)
        i = 0
        while i < count:  # the same order either way: eight keys share the loads and stores of the sum
            step = 8 if i + 8 <= count else 1
            for head in range(heads):
                sums = out + (row * heads + head) * pitch
                weights = scores + head * score_pitch + i * FLOAT_BYTES
                if step == 8:
                    add_scaled_8(sums, weights, places + i * _INDEX_BYTES, d)
                else:
                    add_scaled_1(sums, weights, places + i * _INDEX_BYTES, d)
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
        keys = q.new_empty(window_count + entry_count, dtype=torch.int64)
        scores = q.new_empty(heads, window_count + entry_count)
        scratch = keys.data_ptr(), scores.data_ptr()
        _attend(source, first, last, heads, d, *lists, sinks, scale, *scratch, target)

    spread(run, t, 2 * t * heads * d * (window_count + entry_count))
    return out


def _is_cache(rows: Tensor) -> bool:
    return is_plain(rows) and rows.stride(1) == 1
