"""The tensors behind the pages."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from outrider.cache.layout import BLOCK_TOKENS, LayerLayout, cache_layout
from outrider.cache.pages import PagePool, RequestPages
from outrider.cache.prefix import PrefixIndex
from outrider.config import ModelConfig


@dataclass(frozen=True)
class LayerCache:
    """Rows of one layer. A window slot is page * BLOCK_TOKENS + position % BLOCK_TOKENS; an entry slot is
    page * entries_per_block + entry % entries_per_block. Page 0 stays zero."""

    window: Tensor  # [window slots, head_dim]
    partial: Tensor | None  # [window slots, partial_width]
    index_partial: Tensor | None
    entries: Tensor | None  # [entry slots, head_dim]
    index_keys: Tensor | None  # [entry slots, index_head_dim]


class PagedCache:
    """Every layer's rows, in float32, and the two pools that own them.

    Beside each window page lie the residual streams of its last token (the drafter's row of the token after it is built
    from them) and whether the drafter's rows in it are all there.
    """

    def __init__(self, config: ModelConfig, *, window_pages: int, entry_pages: int, with_drafter: bool) -> None:
        self.window_pool = PagePool("window", window_pages)
        self.entry_pool = PagePool("entry", entry_pages)
        layouts = cache_layout(config, with_drafter=with_drafter)
        self.layers = [_layer_cache(layout, window_pages, entry_pages) for layout in layouts]
        self.drafter = self.layers.pop() if with_drafter else None
        self.prefixes = PrefixIndex(self.window_pool, self.entry_pool, sliding_window=config.sliding_window)
        self.last_streams = torch.zeros(window_pages if with_drafter else 0, config.hc_mult, config.hidden_size)
        self.has_drafter_rows = [False] * window_pages

    def new_request(self) -> RequestPages:
        return RequestPages(self.window_pool, self.entry_pool)


def _layer_cache(layout: LayerLayout, window_pages: int, entry_pages: int) -> LayerCache:
    window_slots = window_pages * BLOCK_TOKENS
    entry_slots = entry_pages * layout.entries_per_block

    def rows(slots: int, width: int) -> Tensor | None:
        return torch.zeros(slots, width) if width else None

    return LayerCache(
        window=torch.zeros(window_slots, layout.window_width),
        partial=rows(window_slots, layout.partial_width),
        index_partial=rows(window_slots, layout.index_partial_width),
        entries=rows(entry_slots, layout.entry_width),
        index_keys=rows(entry_slots, layout.index_width),
    )
