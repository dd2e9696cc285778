"""The chosen experts of each token: y = sum_e w2_e @ (w_e * silu(min(w1_e x, L)) * clamp(w3_e x, -L, L)).

Tokens of one expert share its weights, tile by tile, which changes no sum: a token adds its experts in ascending order
of their ids. Floor: the bytes of the experts that anyone chose.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from outrider.ops.native.compilation import kernel, part
from outrider.ops.native.linear import Linear, product, product_address
from outrider.ops.native.row_functions import swiglu_row
from outrider.ops.native.rows import is_plain
from outrider.ops.native.threads import spread
from outrider.ops.native.vector import FLOAT_BYTES, add_row, clear, copy, floats, integers
from outrider.ops.reference import experts as reference
from outrider.ops.reference.experts import ExpertWeights

_ONE = np.float32(1.0)
_COLUMNS = 5  # of the table of experts: id, address and bytes a weight of w1w3, the same of w2


@part
def _gather(rows, pitch, k, selected, pairs_count, expert, pairs, gathered, width):  # type: ignore[no-untyped-def]
    """Copies row pair // k of every pair that chose `expert`; `pairs` gets their numbers. Returns how many.

    selected: address of the chosen ids, 0: every pair chose it.
    """
    chosen, own, count = integers(selected), integers(pairs), 0
    for pair in range(pairs_count):
        if selected == 0 or chosen[pair] == expert:
            own[count] = pair
            copy(rows + pair // k * pitch, gathered + count * pitch, width)
            count += 1
    return count


@kernel
def _gate_up(  # type: ignore[no-untyped-def]
    address, x, d, inner, selected, pairs_count, k, shares, experts, first, last, limit, pairs, scratch, hidden
):
    """hidden[pair] = share * silu(min(gate, limit)) * clamp(up, -limit, limit) of the experts first .. last - 1.

    pairs: [pairs_count] int64; scratch: [pairs_count, d + 2 inner] floats.
    """
    table, share, own = integers(experts), floats(shares), integers(pairs)
    pitch, y, y_pitch = d * FLOAT_BYTES, scratch + pairs_count * d * FLOAT_BYTES, 2 * inner * FLOAT_BYTES
    for e in range(first * _COLUMNS, last * _COLUMNS, _COLUMNS):
        count = _gather(x, pitch, k, selected, pairs_count, table[e], pairs, scratch, d)
        product(address, scratch, pitch, count, table[e + 1], table[e + 2], 0, 2 * inner, d, y, y_pitch)
        for row in range(count):
            pair = own[row]
            weight = _ONE if shares == 0 else share[pair]
            gates = y + row * y_pitch
            swiglu_row(gates, gates + y_pitch // 2, inner, np.float32(limit), weight, hidden + pair * y_pitch // 2)


@kernel
def _down(  # type: ignore[no-untyped-def]
    address, hidden, inner, d, first, last, selected, pairs_count, k, experts, expert_count, pairs, scratch, out
):
    """out[t, first:last] = sum of w2_e @ hidden[pair] over the experts of the table, in its order.

    pairs: [pairs_count] int64; scratch: [pairs_count, inner + d] floats.
    """
    table, own = integers(experts), integers(pairs)
    pitch, width = d * FLOAT_BYTES, inner * FLOAT_BYTES
    y, begin = scratch + pairs_count * width, first * FLOAT_BYTES
    for row in range(pairs_count // k):
        clear(out + row * pitch + begin, last - first)
    for e in range(0, expert_count * _COLUMNS, _COLUMNS):
        count = _gather(hidden, width, 1, selected, pairs_count, table[e], pairs, scratch, inner)
        product(address, scratch, width, count, table[e + 3], table[e + 4], first, last, inner, y, pitch)
        for row in range(count):
            add_row(out + own[row] // k * pitch + begin, _ONE, y + row * pitch + begin, last - first)


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
        table.extend((number, gate_up.address, gate_up.weight_bytes, down.address, down.weight_bytes))
    places, chosen_count = table.buffer_info()[0], len(experts)
    products = product_address()
    inner, d = experts[0][1].down.in_features, x.shape[1]
    hidden = x.new_empty(count, inner)
    source, target = x.data_ptr(), hidden.data_ptr()

    def fill_hidden(first: int, last: int) -> None:
        pairs, scratch = x.new_empty(count, dtype=torch.int64), x.new_empty(count * (d + 2 * inner))
        own, work = pairs.data_ptr(), scratch.data_ptr()
        _gate_up(products, source, d, inner, chosen, count, k, share, places, first, last, limit, own, work, target)

    spread(fill_hidden, chosen_count, 2 * count * d * inner)
    rounded = round_trip(hidden).contiguous()
    out = x.new_empty(x.shape[0], d)
    middle, result = rounded.data_ptr(), out.data_ptr()

    def add_outputs(first: int, last: int) -> None:
        pairs, scratch = x.new_empty(count, dtype=torch.int64), x.new_empty(count * (inner + d))
        own, work = pairs.data_ptr(), scratch.data_ptr()
        _down(products, middle, inner, d, first, last, chosen, count, k, places, chosen_count, own, work, result)

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
