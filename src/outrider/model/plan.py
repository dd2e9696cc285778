"""What all layers of one forward pass share: the batch, the angles, and who reads which compressed entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from outrider import ops
from outrider.cache.batch import (
    Batch,
    CompressionPlan,
    RequestRows,
    build_batch,
    compression_plan,
    entry_groups,
    visible_entries,
)
from outrider.config import LayerKind, ModelConfig


@dataclass(frozen=True)
class EntryReads:
    """Queries that read equally many compressed entries.

    rows:     [t] into the query rows; `all_rows` when they are all of them, in order
    entries:  [t, n] entry indices, -1 where there is none; rows that the indexer must decide hold a placeholder
    slots:    the same as cache slots
    scored:   [s] into `rows`: queries that see more than index_topk entries
    """

    rows: Tensor
    all_rows: bool
    entries: Tensor
    slots: ops.KeySlots
    scored: Tensor


@dataclass(frozen=True)
class KindPlan:
    """What the layers of one kind share."""

    rotation: ops.Rotation  # of the rows
    query_rotation: ops.Rotation  # of the query rows
    compression: CompressionPlan | None
    entry_rotation: ops.Rotation | None  # of the entries that are completed
    visible: Tensor | None  # [Q] entries that a query may see
    reads: tuple[EntryReads, ...]


@dataclass(frozen=True)
class ForwardPlan:
    """Everything that is a function of positions alone."""

    batch: Batch
    kinds: dict[LayerKind, KindPlan]


class Planner:
    """Builds the plan of each step for one model."""

    def __init__(self, config: ModelConfig, kinds: Sequence[LayerKind]) -> None:
        self._config = config
        self._kinds = sorted(set(kinds))
        self._main_freqs = ops.inverse_frequencies(config.qk_rope_head_dim, config.rope_theta)
        scaling = config.rope_scaling
        self._compress_freqs = ops.inverse_frequencies(
            config.qk_rope_head_dim,
            config.compress_rope_theta,
            **({} if scaling is None else scaling.model_dump(exclude={"type"})),
        )

    def plan(self, rows: Sequence[RequestRows], *, query_rows: Sequence[int] | None = None) -> ForwardPlan:
        """`query_rows`: rows whose output is wanted (None: all)."""
        batch = build_batch(rows, self._config, query_rows=query_rows)
        main = ops.rotation(batch.positions, self._main_freqs)
        kinds = {}
        compressed = any(kind != LayerKind.WINDOW for kind in self._kinds)
        compress = ops.rotation(batch.positions, self._compress_freqs) if compressed else main
        for kind in self._kinds:
            angles = main if kind == LayerKind.WINDOW else compress
            kinds[kind] = self._kind_plan(batch, rows, kind, angles)
        return ForwardPlan(batch, kinds)

    def _kind_plan(self, batch: Batch, rows: Sequence[RequestRows], kind: LayerKind, angles: ops.Rotation) -> KindPlan:
        query_angles = angles if batch.query_rows is None else angles.select(batch.query_rows)
        if kind == LayerKind.WINDOW:
            return KindPlan(angles, query_angles, None, None, None, ())
        compression = compression_plan(batch, rows, kind)
        visible = (batch.query_positions + 1) // int(kind)
        limit = self._config.index_topk if kind == LayerKind.CSA else None
        return KindPlan(
            rotation=angles,
            query_rotation=query_angles,
            compression=compression,
            entry_rotation=ops.rotation(compression.entry_positions, self._compress_freqs),
            visible=visible,
            reads=tuple(_entry_reads(batch, visible, kind, limit)),
        )


def _entry_reads(batch: Batch, visible: Tensor, kind: LayerKind, limit: int | None) -> list[EntryReads]:
    groups = entry_groups(visible, limit)
    reads = []
    for group in groups:
        seen = visible[group.rows]
        entries = visible_entries(seen, group.count)
        slots = batch.entry_slots(batch.query_requests[group.rows], entries, int(kind))
        scored = (seen > group.count).nonzero()[:, 0]
        reads.append(EntryReads(group.rows, len(groups) == 1, entries, ops.key_slots(slots), scored))
    return reads
