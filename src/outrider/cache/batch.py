"""One flat ragged batch: which rows a step computes, where each row writes, and what each may read.

Prefill chunks, decode rows, verify rows and drafter rows are all *query tokens of requests*. They are described by one
type, built once a step, from absolute positions alone; every layer of a kind shares the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from outrider.cache.layout import BLOCK_TOKENS
from outrider.cache.pages import RequestPages
from outrider.config import LayerKind, ModelConfig
from outrider.ops import KeySlots, key_slots

# Entry lists are padded to a multiple of this, by the query's own count of visible entries: two queries at the same
# position always do the same arithmetic.
ENTRY_TILE = 64


@dataclass(frozen=True)
class RequestRows:
    """The consecutive query tokens of one request in a step: positions start .. start + count - 1.

    `first_position` is the lowest position that holds a row: the drafter has none at 0, since its row for a token is
    built from the token and the state before it, and none of the tokens before it was switched on.
    """

    pages: RequestPages
    start: int
    count: int
    first_position: int = 0


@dataclass(frozen=True)
class CompressionPlan:
    """The entries that a step's tokens complete (spec: an entry exists once its last token is there).

    closing_rows:    [C] rows of the batch whose token ends a window
    source_slots:    [C, n] window slots of the tokens that are pooled (n = 8 with overlap, else the ratio)
    source_bias:     [C, n, 1] 0, or -inf for the window before the first
    entry_slots:     [C] where the entry is written
    entry_positions: [C] position that the entry is rotated to: the first token of its window
    """

    closing_rows: Tensor
    source_slots: Tensor
    source_bias: Tensor
    entry_slots: Tensor
    entry_positions: Tensor


@dataclass(frozen=True)
class EntryGroup:
    """Queries that read the same number of entry slots. rows: [t] into the query rows; count: slots a query reads."""

    rows: Tensor
    count: int


@dataclass(frozen=True)
class Batch:
    """Metadata of one step. T rows in all; Q of them are queries (all, unless `query_rows` names fewer).

    query_start_loc: [R + 1], seq_lens: [R] (tokens of a request up to the end of its rows)
    """

    query_start_loc: tuple[int, ...]
    seq_lens: tuple[int, ...]
    positions: Tensor  # [T] int64
    write_slots: Tensor  # [T] window slots
    query_rows: Tensor | None  # [Q] rows whose output is wanted; None: every row
    query_positions: Tensor  # [Q]
    query_requests: Tensor  # [Q] index of the request
    window: KeySlots  # [Q, sliding_window], ascending positions
    entry_table: Tensor  # [R, blocks] entry pages

    def entry_slots(self, requests: Tensor, entries: Tensor, ratio: int) -> Tensor:
        """Entry indices of requests ([t] and [t, N], -1 for none) -> cache slots, -1 for none. int64."""
        per_block = BLOCK_TOKENS // ratio
        pages = self.entry_table[requests[:, None], entries.clamp_min(0) // per_block]
        return torch.where(entries < 0, -1, pages * per_block + entries % per_block)


def build_batch(
    rows: Sequence[RequestRows],
    config: ModelConfig,
    *,
    query_rows: Sequence[int] | None = None,
) -> Batch:
    """Metadata of a step over `rows` (at least one row in all; pages already reserved)."""
    starts = [0]
    for item in rows:
        starts.append(starts[-1] + item.count)
    positions = torch.cat([torch.arange(item.start, item.start + item.count) for item in rows])
    requests = torch.repeat_interleave(torch.arange(len(rows)), torch.tensor([item.count for item in rows]))
    window_table = _table([item.pages.window for item in rows])
    write_slots = _token_slots(window_table, requests, positions)
    assert bool((write_slots >= BLOCK_TOKENS).all()), "a row has no page: it would be written into the null page"
    wanted = None if query_rows is None else torch.tensor(query_rows, dtype=torch.int64)
    query_positions = positions if wanted is None else positions[wanted]
    query_requests = requests if wanted is None else requests[wanted]
    return Batch(
        query_start_loc=tuple(starts),
        seq_lens=tuple(item.start + item.count for item in rows),
        positions=positions,
        write_slots=write_slots,
        query_rows=wanted,
        query_positions=query_positions,
        query_requests=query_requests,
        window=_window_slots(
            window_table,
            query_requests,
            query_positions,
            torch.tensor([item.first_position for item in rows]),
            config.sliding_window,
        ),
        entry_table=_table([item.pages.entries for item in rows]),
    )


def compression_plan(batch: Batch, rows: Sequence[RequestRows], kind: LayerKind) -> CompressionPlan:
    """Entries that the rows of the batch complete, for layers of `kind` (CSA or HCA)."""
    ratio = int(kind)
    closing = ((batch.positions + 1) % ratio == 0).nonzero()[:, 0]
    last = batch.positions[closing]
    owners = torch.bucketize(closing, torch.tensor(batch.query_start_loc[1:]), right=True)
    span = 2 * ratio if kind == LayerKind.CSA else ratio  # overlap: the window before is pooled too
    sources = last[:, None] + torch.arange(1 - span, 1)
    window_table = _table([item.pages.window for item in rows])
    slots = _token_slots(window_table, owners[:, None], sources.clamp_min(0))
    missing = sources < 0
    entry = last // ratio
    bias = torch.zeros(missing.shape).masked_fill_(missing, float("-inf"))
    return CompressionPlan(
        closing_rows=closing,
        source_slots=slots.masked_fill(missing, 0),
        source_bias=bias[..., None],
        entry_slots=batch.entry_slots(owners, entry[:, None], ratio)[:, 0],
        entry_positions=entry * ratio,
    )


def entry_groups(visible: Tensor, limit: int | None) -> list[EntryGroup]:
    """Groups queries by the number of entry slots they read: visible entries, rounded up to tiles, at most `limit`.

    visible: [Q] int64. A query that sees no entry is in a group of count 0.
    """
    counts = (visible + ENTRY_TILE - 1) // ENTRY_TILE * ENTRY_TILE
    if limit is not None:
        counts = counts.clamp_max(limit)
    return [EntryGroup((counts == c).nonzero()[:, 0], int(c)) for c in torch.unique(counts).tolist()]


def visible_entries(visible: Tensor, count: int) -> Tensor:
    """visible: [t] -> [t, count] entry indices 0, 1, ..., with -1 from the first one that is not visible."""
    entries = torch.arange(count).expand(visible.shape[0], count)
    return torch.where(entries < visible[:, None], entries, -1)


def _window_slots(table: Tensor, requests: Tensor, positions: Tensor, first_positions: Tensor, window: int) -> KeySlots:
    keys = positions[:, None] + torch.arange(1 - window, 1)
    slots = _token_slots(table, requests[:, None], keys.clamp_min(0))
    return key_slots(slots.masked_fill(keys < first_positions[requests][:, None], -1))


def _token_slots(table: Tensor, requests: Tensor, positions: Tensor) -> Tensor:
    return table[requests, positions // BLOCK_TOKENS] * BLOCK_TOKENS + positions % BLOCK_TOKENS


def _table(pages: Sequence[Sequence[int]]) -> Tensor:
    width = max(len(p) for p in pages)
    return torch.tensor([[*p, *[0] * (width - len(p))] for p in pages], dtype=torch.int64)
