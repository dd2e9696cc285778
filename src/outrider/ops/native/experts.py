"""The chosen experts of each token: y = sum_e w2_e @ (w_e * silu(min(w1_e x, L)) * clamp(w3_e x, -L, L)).

Tokens of one expert share its weights, tile by tile, which changes no sum: a token adds its experts in ascending order
of their ids. Floor: the bytes of the experts that anyone chose.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

import numpy as np
from torch import Tensor

from outrider.ops.native.compilation import kernel, part
from outrider.ops.native.linear import Linear, row_tile
from outrider.ops.native.rows import is_plain
from outrider.ops.native.threads import spread
from outrider.ops.native.vector import FLOAT_BYTES, exp, floats, integers
from outrider.ops.reference import experts as reference
from outrider.ops.reference.experts import ExpertWeights

_ONE, _ZERO = np.float32(1.0), np.float32(0.0)


@part
def _pairs_of(selected, count, expert, pairs):  # type: ignore[no-untyped-def]
    """Writes the places of `expert` in selected[:count] to `pairs`; returns how many."""
    chosen, found = integers(selected), 0
    for pair in range(count):
        if selected == 0 or chosen[pair] == expert:
            pairs[found] = pair
            found += 1
    return found


@kernel
def _gate_up(x, d, inner, selected, pairs_count, k, shares, experts, first, last, limit, hidden):  # type: ignore[no-untyped-def]
    """hidden[pair] = share * silu(min(gate, limit)) * clamp(up, -limit, limit); experts: [n, 3] (id, w1w3, w2)."""
    table = integers(experts)
    share = floats(shares)
    top = np.float32(limit)
    pairs = np.empty(pairs_count, np.int64)
    product = np.empty((4, 2 * inner), np.float32)  # read below by name: numba frees an array after its last mention
    y, pitch = product.ctypes.data, 2 * inner * FLOAT_BYTES
    for e in range(first, last):
        count = _pairs_of(selected, pairs_count, table[3 * e], pairs)
        for start in range(0, count, 4):
            rows = min(4, count - start)
            p0, p1 = pairs[start], pairs[min(start + 1, count - 1)]
            p2, p3 = pairs[min(start + 2, count - 1)], pairs[min(start + 3, count - 1)]
            row_tile(
                x + p0 // k * d * FLOAT_BYTES,
                x + p1 // k * d * FLOAT_BYTES,
                x + p2 // k * d * FLOAT_BYTES,
                x + p3 // k * d * FLOAT_BYTES,
                rows,
                table[3 * e + 1],
                0,
                2 * inner,
                d,
                y,
                y + pitch,
                y + 2 * pitch,
                y + 3 * pitch,
            )
            for row in range(rows):
                pair = pairs[start + row]
                h = floats(hidden + pair * inner * FLOAT_BYTES)
                weight = _ONE
                if shares != 0:
                    weight = share[pair]
                for i in range(inner):
                    gate, up = product[row, i], product[row, inner + i]
                    gate = top if gate > top else gate
                    up = top if up > top else up
                    up = -top if up < -top else up
                    h[i] = gate / (_ONE + exp(-gate)) * up * weight


@kernel
def _down(hidden, inner, d, first, last, selected, pairs_count, k, experts, expert_count, out):  # type: ignore[no-untyped-def]
    """out[t, first:last] = sum of w2_e @ hidden[pair] over the experts of the table, in its order."""
    table = integers(experts)
    for row in range(pairs_count // k):
        o = floats(out + row * d * FLOAT_BYTES)
        for i in range(first, last):
            o[i] = _ZERO
    pairs = np.empty(pairs_count, np.int64)
    product = np.empty((4, d), np.float32)  # read below by name, as above
    y, pitch, width = product.ctypes.data, d * FLOAT_BYTES, inner * FLOAT_BYTES
    for e in range(expert_count):
        count = _pairs_of(selected, pairs_count, table[3 * e], pairs)
        for start in range(0, count, 4):
            rows = min(4, count - start)
            p0, p1 = pairs[start], pairs[min(start + 1, count - 1)]
            p2, p3 = pairs[min(start + 2, count - 1)], pairs[min(start + 3, count - 1)]
            row_tile(
                hidden + p0 * width,
                hidden + p1 * width,
                hidden + p2 * width,
                hidden + p3 * width,
                rows,
                table[3 * e + 2],
                first,
                last,
                inner,
                y,
                y + pitch,
                y + 2 * pitch,
                y + 3 * pitch,
            )
            for row in range(rows):
                o = floats(out + pairs[start + row] // k * pitch)
                for i in range(first, last):
                    o[i] += product[row, i]


def _is_native(expert: ExpertWeights) -> bool:
    up, down = expert
    return isinstance(up, Linear) and isinstance(down, Linear) and up.is_native and down.is_native


def _run(
    x: Tensor,
    selected: Tensor | None,
    shares: Tensor | None,
    experts: Sequence[tuple[int, ExpertWeights]],
    k: int,
    limit: float,
    round_trip: Callable[[Tensor], Tensor],
) -> Tensor:
    """x: [T, d]; selected, shares: [T, k], None for everything with weight 1; experts: (id, weights), ascending."""
    x = x.contiguous()
    count = x.shape[0] * k
    chosen = 0 if selected is None else selected.data_ptr()
    share = 0 if shares is None else shares.data_ptr()
    table = array("q")
    for number, (gate_up, down) in experts:
        assert isinstance(gate_up, Linear) and isinstance(down, Linear)
        table.extend((number, gate_up.address, down.address))
    places, length = table.buffer_info()
    inner, d = experts[0][1].down.in_features, x.shape[1]
    hidden = x.new_empty(count, inner)
    source, target = x.data_ptr(), hidden.data_ptr()

    def fill_hidden(first: int, last: int) -> None:
        _gate_up(source, d, inner, chosen, count, k, share, places, first, last, limit, target)

    spread(fill_hidden, length // 3, 2 * count * d * inner)
    rounded = round_trip(hidden).contiguous()
    out = x.new_empty(x.shape[0], d)
    middle, result = rounded.data_ptr(), out.data_ptr()

    def add_outputs(first: int, last: int) -> None:
        _down(middle, inner, d, first, last, chosen, count, k, places, length // 3, result)

    spread(add_outputs, d, count * d * inner, 16)
    return out


def expert_mlp(
    x: Tensor,
    weights: ExpertWeights,
    limit: float,
    share: Tensor | None,
    round_trip: Callable[[Tensor], Tensor],
) -> Tensor:
    """One expert. x: [T, d], already as its linear takes it; share: [T, 1] or None; -> [T, d]."""
    if not (_is_native(weights) and is_plain(x) and (share is None or is_plain(share))):
        return reference.expert_mlp(x, weights, limit, share, round_trip)
    return _run(x, None, None if share is None else share.contiguous(), [(0, weights)], 1, limit, round_trip)


def routed_experts(
    x: Tensor,
    selected: Tensor,
    shares: Tensor,
    experts: Sequence[ExpertWeights],
    limit: float,
    round_trip: Callable[[Tensor], Tensor],
) -> Tensor:
    """Sum over each token's experts, in ascending order of expert id. x: [T, d], selected, shares: [T, k] -> [T, d]."""
    used = sorted(set(selected.flatten().tolist()))
    if not (used and is_plain(x) and is_plain(shares) and all(_is_native(experts[e]) for e in used)):
        return reference.routed_experts(x, selected, shares, experts, limit, round_trip)
    chosen = [(e, experts[e]) for e in used]
    return _run(x, selected.contiguous(), shares.contiguous(), chosen, selected.shape[1], limit, round_trip)
