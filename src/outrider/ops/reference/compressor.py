"""Compressor: windows of tokens pooled into entries, from rows that are stored per token.

    z = gate + ape[t mod r]                    [a | z] is stored at position t, for every token
    e = sum_t softmax_t(z_t) * a_t             softmax over the window's tokens, separately for every channel
    entry w = rope(e / rms(e) * weight)        at the position of the window's first token, rounded, stored at w

With overlap (ratio 4) a row has two halves, and an entry pools the left halves of the window before it and the right
halves of its own (spec 2.5). Nothing is accumulated, so a token that is rejected is simply written over. e is rounded
to the rows' dtype before the norm, after it and after the rope, and entries are quantised from rounded values
(spec 5.4), as the reference inference does.
"""

from __future__ import annotations

import torch
from torch import Tensor

from outrider.ops.index_rows import write_index_rows
from outrider.ops.kv_rows import write_rows
from outrider.ops.reference.indexer import hadamard
from outrider.ops.reference.norms import rms_norm
from outrider.ops.reference.paged_attention import PagedRows, Queries, paged_slots
from outrider.ops.reference.rope import Rotation, apply_rope


def pool_windows(values: Tensor, gates: Tensor) -> Tensor:
    """values, gates: [C, n, D] float32 (a gate of -inf leaves its token out) -> [C, D]."""
    weights = (gates - gates.amax(1, keepdim=True)).exp_()
    return (weights * values).sum(1).div_(weights.sum(1))


def compress_insert(
    values_gates: Tensor,
    ape: Tensor,
    norm_weight: Tensor,
    queries: Queries,
    rotation: Rotation,
    partial: PagedRows,
    entries: PagedRows,
    ratio: int,
    eps: float,
    block: int,
    *,
    round_trip: bool,
) -> None:
    """Stores the partial row of every token, and the entries of the windows that these tokens close.

    values_gates: [T, 2 c D] float32, [a | gate] as projected, c = 2 where windows overlap, else 1; ape: [ratio, c D]
    float32; norm_weight: [D]; queries: which token each row is, the tokens of a request in ascending order without a
    gap; rotation: of the T rows, each at position + 1 - ratio (a row that closes no window may hold anything);
    partial: float32 rows [a | z], a page in tokens; entries: FP8 rows, or plain ones (with `round_trip` rounded as FP8
    would, blocks of `block`), a page in entries.

    A padded row and a row whose page lies outside the cache store nothing. A window with a token whose page lies
    outside the cache, or with a gate that is NaN, gives an entry of NaN.
    """
    rows, slots = _closed_entries(values_gates, ape, norm_weight, queries, rotation, partial, entries, ratio, eps)
    nope = rows.shape[1] - 2 * rotation.cos.shape[1]
    write_rows(entries.rows, slots, rows, nope=nope, block=block, round_trip=round_trip)


def compress_index_keys(
    values_gates: Tensor,
    ape: Tensor,
    norm_weight: Tensor,
    queries: Queries,
    rotation: Rotation,
    partial: PagedRows,
    keys: PagedRows,
    ratio: int,
    eps: float,
) -> None:
    """The same for the indexer's compressor: its entries are keys (`index_rows`), stored in FP4 or FP8 after Hadamard
    over all dims (rounded to bfloat16 between the two), plain ones as they are: on both sides Hadamard cancels."""
    rows, slots = _closed_entries(values_gates, ape, norm_weight, queries, rotation, partial, keys, ratio, eps)
    if keys.rows.scales is not None:
        rows = hadamard(rows).to(torch.bfloat16).float()
    write_index_rows(keys.rows, slots, rows)


def _closed_entries(
    values_gates: Tensor,
    ape: Tensor,
    norm_weight: Tensor,
    queries: Queries,
    rotation: Rotation,
    partial: PagedRows,
    entries: PagedRows,
    ratio: int,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """Stores the partial rows -> (entries that are complete now, normed, roped and not yet quantised [C, D] float32,
    their slots [C])."""
    positions, requests = queries.positions.long(), queries.requests.long()
    live = (positions >= 0) & (requests >= 0)
    positions, requests, rows = positions[live], requests[live], values_gates[live]
    values, gates = rows.chunk(2, dim=-1)
    rows = torch.cat([values, gates + ape[positions % ratio]], dim=-1)
    own_slots = paged_slots(partial, requests, positions)
    stored = own_slots >= 0
    partial.rows.data[own_slots[stored]] = rows[stored]

    closing = (positions + 1) % ratio == 0
    positions, requests = positions[closing], requests[closing]
    angles = rotation.select(live.nonzero()[:, 0][closing])
    pooled = _pool(partial, requests, positions, ratio, overlap=ape.shape[1] != norm_weight.shape[0])
    dtype = torch.bfloat16 if entries.rows.scales is not None else entries.rows.data.dtype
    normed = rms_norm(pooled.to(dtype).float(), norm_weight.float(), eps).to(dtype).float()
    turned = apply_rope(normed, angles).to(dtype).float()
    return turned, paged_slots(entries, requests, positions // ratio)


def _pool(partial: PagedRows, requests: Tensor, last: Tensor, ratio: int, *, overlap: bool) -> Tensor:
    """Windows that end at positions last [C] of requests [C] -> [C, D] float32."""
    span = 2 * ratio if overlap else ratio
    sources = last[:, None] + torch.arange(1 - span, 1, device=last.device)
    slots = paged_slots(partial, requests[:, None], sources)
    values, gates = partial.rows.data[slots.clamp_min(0)].chunk(2, dim=-1)
    if overlap:
        values, gates = (
            torch.cat([x[:, :ratio].chunk(2, dim=-1)[0], x[:, ratio:].chunk(2, dim=-1)[1]], dim=1)
            for x in (values, gates)
        )
    gates = torch.where((slots < 0)[..., None], torch.nan, gates)
    before_the_first = (sources < 0)[..., None]
    gates = gates.masked_fill(before_the_first, float("-inf"))
    return pool_windows(values.masked_fill((slots < 0)[..., None], 0.0), gates)
