"""Drives a tiny model by hand: builds it from a config, feeds requests, and reads back what they left in the cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tests import oracle
from tests.tiny import random_tensors, tiny_config
from torch import Tensor

from outrider.cache.batch import RequestRows
from outrider.cache.layout import BLOCK_TOKENS
from outrider.cache.paged_cache import LayerCache, PagedCache
from outrider.config import ModelConfig, Numerics, parse_model_config
from outrider.model.mtp import MultiTokenPredictor
from outrider.model.transformer import Transformer

ORACLE_TINY = oracle.TINY_CONFIG
"""5 layers, window 24, top-k 9 of the indexer, 8 experts top-3."""
TINY = tiny_config(quantization_config=None, expert_dtype=None)
"""6 layers that start with two of ratio 0, window 16, top-k 8."""
TINY_CONFIGS = {"oracle_tiny": ORACLE_TINY, "tiny": TINY}


@dataclass(frozen=True)
class TinyModel:
    """A model in both forms: the engine's, and the fields and weights that an oracle takes."""

    fields: dict[str, Any]
    weights: Mapping[str, Tensor]
    config: ModelConfig
    trunk: Transformer
    mtp: MultiTokenPredictor

    @property
    def oracle_config(self) -> oracle.OracleConfig:
        return oracle.make_cfg(self.fields)


def tiny_model(fields: dict[str, Any], numerics: Numerics | None = None, seed: int = 0) -> TinyModel:
    """Random weights; round trips off unless `numerics` says otherwise."""
    config = parse_model_config(fields)
    weights = random_tensors(config, seed)
    trunk = Transformer(config, weights, numerics or Numerics.plain())
    mtp = MultiTokenPredictor(trunk, weights, numerics or Numerics.plain())
    return TinyModel(fields, weights, config, trunk, mtp)


def random_ids(config: ModelConfig, count: int, seed: int = 7) -> Tensor:
    return torch.randint(0, config.vocab_size, (count,), generator=torch.Generator().manual_seed(seed))


def new_cache(config: ModelConfig, pages: int = 6) -> PagedCache:
    return PagedCache(config, window_pages=pages, entry_pages=pages, with_drafter=True)


class Session:
    """One request in a cache: every call continues where the last one ended."""

    def __init__(self, model: TinyModel, cache: PagedCache | None = None) -> None:
        self.model = model
        self.cache = new_cache(model.config) if cache is None else cache
        self.pages = self.cache.new_request()
        self.length = 0

    def rows(self, count: int) -> RequestRows:
        """Reserves the next `count` positions and counts them as done."""
        self.pages.reserve(self.length + count)
        rows = RequestRows(self.pages, self.length, count)
        self.length += count
        return rows

    def feed(self, token_ids: Tensor) -> Tensor:
        """The next tokens through the trunk in one pass -> streams [T, n, d]."""
        return self.model.trunk.forward(token_ids, [self.rows(len(token_ids))], self.cache)

    def logits(self, token_ids: Tensor) -> Tensor:
        return self.model.trunk.logits(self.feed(token_ids))


def feed_in_chunks(session: Session, token_ids: Tensor, sizes: Sequence[int]) -> Tensor:
    assert sum(sizes) == len(token_ids)
    return torch.cat([session.feed(chunk) for chunk in token_ids.split(list(sizes))])


def cached_rows(session: Session, length: int | None = None) -> dict[str, Tensor]:
    """Every row that positions 0 .. length-1 have written, layer by layer, in the order of positions."""
    length = session.length if length is None else length
    found: dict[str, Tensor] = {}
    positions = torch.arange(length)
    window_pages, entry_pages = torch.tensor(session.pages.window), torch.tensor(session.pages.entries)
    slots = window_pages[positions // BLOCK_TOKENS] * BLOCK_TOKENS + positions % BLOCK_TOKENS
    for layer, (kind, cache) in enumerate(zip(session.model.config.layer_kinds, session.cache.layers, strict=True)):
        found |= _rows(f"layer {layer}", cache, slots)
        if kind:
            per_block = BLOCK_TOKENS // kind
            entries = torch.arange(length // kind)
            entry_slots = entry_pages[entries // per_block] * per_block + entries % per_block
            for name in ("entries", "index_keys"):
                tensor = getattr(cache, name)
                if tensor is not None:
                    found[f"layer {layer} {name}"] = tensor[entry_slots]
    return found


def _rows(name: str, cache: LayerCache, slots: Tensor) -> dict[str, Tensor]:
    kinds = {"window": cache.window, "partial": cache.partial, "index_partial": cache.index_partial}
    return {f"{name} {kind}": tensor[slots] for kind, tensor in kinds.items() if tensor is not None}


def drafter_rows(session: Session, first: int, last: int) -> Tensor:
    """Rows of the MTP layer at positions first .. last."""
    assert session.cache.drafter is not None
    positions = torch.arange(first, last + 1)
    pages = torch.tensor(session.pages.window)[positions // BLOCK_TOKENS]
    return session.cache.drafter.window[pages * BLOCK_TOKENS + positions % BLOCK_TOKENS]
