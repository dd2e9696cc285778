"""Which rows each layer keeps, how wide they are and how long they live.

A logical block is BLOCK_TOKENS positions of a request, the least common multiple of the compression ratios. Two kinds
of page hold a block's rows:

- a *window page*: per token, the latent KV row of every layer (the drafter's included) and the compressor's partial
  rows (a, z). It is given back when no row that may still be read lies in it.
- an *entry page*: the compressed entries that the block's tokens complete, and the indexer's keys. It is kept for the
  whole request.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.config import LayerKind, ModelConfig

BLOCK_TOKENS = 128


@dataclass(frozen=True)
class LayerLayout:
    """Row widths of one layer, in elements; 0 where the layer has no such row."""

    kind: LayerKind
    window_width: int  # latent KV of a token
    partial_width: int  # compressor: values and gates of a token, [a | z]
    index_partial_width: int  # the same for the indexer's compressor
    entry_width: int  # a compressed entry
    index_width: int  # an indexer key, one an entry

    @property
    def entries_per_block(self) -> int:
        return BLOCK_TOKENS // self.kind if self.kind else 0

    @property
    def window_page_elements(self) -> int:
        return BLOCK_TOKENS * (self.window_width + self.partial_width + self.index_partial_width)

    @property
    def entry_page_elements(self) -> int:
        return self.entries_per_block * (self.entry_width + self.index_width)


def layer_layout(config: ModelConfig, kind: LayerKind) -> LayerLayout:
    """Rows of a layer of this kind. Overlapping windows (1:4) pool two halves: their partial rows are twice as wide."""
    halves = 2 if kind == LayerKind.CSA else 1
    compressed = kind != LayerKind.WINDOW
    indexed = kind == LayerKind.CSA
    return LayerLayout(
        kind=kind,
        window_width=config.head_dim,
        partial_width=2 * halves * config.head_dim if compressed else 0,
        index_partial_width=2 * halves * config.index_head_dim if indexed else 0,
        entry_width=config.head_dim if compressed else 0,
        index_width=config.index_head_dim if indexed else 0,
    )


def cache_layout(config: ModelConfig, *, with_drafter: bool) -> tuple[LayerLayout, ...]:
    """Layouts of the trunk's layers in order, then the drafter's (a window layer) if it is used."""
    kinds = [*config.layer_kinds, *([LayerKind.WINDOW] if with_drafter else [])]
    return tuple(layer_layout(config, kind) for kind in kinds)
