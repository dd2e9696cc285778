"""What a later row of a request can still read in the cache; everything else may be poisoned."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from outrider.cache.layout import BLOCK_TOKENS
from outrider.cache.paged_cache import LayerCache
from outrider.config import LayerKind
from outrider.engine.engine import Engine
from outrider.engine.request import Request

Key = tuple[str, int, int]  # (name of the rows, layer, position or entry index)


def visible_rows(engine: Engine, request: Request) -> Iterator[tuple[Key, Tensor, int]]:
    """Yields (key, cache tensor, slot) of each row that the query at request.num_computed, or a later one, may read."""
    position, config = request.num_computed, engine.config
    window = range(max(0, position - config.sliding_window + 1), position)
    for layer, (kind, cache) in enumerate(zip(config.layer_kinds, engine.cache.layers, strict=True)):
        for at in window:
            yield ("window", layer, at), cache.window, token_slot(request, at)
        if kind != LayerKind.WINDOW:
            yield from _compressor_rows(request, kind, layer, cache, position)
    if engine.cache.drafter is not None and request.depth > 0:
        # the row of a token holds the token after the one that the trunk computed last
        newest = min(position, len(request.token_ids) - 1, request.drafter_next - 1)
        oldest = max(request.drafter_first, newest - config.sliding_window + 1)
        for at in range(oldest, newest + 1):
            yield ("drafter", 0, at), engine.cache.drafter.window, token_slot(request, at)


def _compressor_rows(
    request: Request, kind: LayerKind, layer: int, cache: LayerCache, position: int
) -> Iterator[tuple[Key, Tensor, int]]:
    ratio = int(kind)
    opened = position // ratio * ratio - (ratio if kind == LayerKind.CSA else 0)
    rows = (("partial", cache.partial), ("index partial", cache.index_partial))
    for name, tensor in rows:
        if tensor is not None:
            for at in range(max(0, opened), position):
                yield (name, layer, at), tensor, token_slot(request, at)
    for name, tensor in (("entry", cache.entries), ("index key", cache.index_keys)):
        if tensor is not None:
            for entry in range(position // ratio):
                yield (name, layer, entry), tensor, entry_slot(request, entry, ratio)


def token_slot(request: Request, position: int) -> int:
    page = request.pages.window[position // BLOCK_TOKENS]
    assert page != 0, f"the page of position {position} was given back while it can still be read"
    return page * BLOCK_TOKENS + position % BLOCK_TOKENS


def entry_slot(request: Request, entry: int, ratio: int) -> int:
    per_block = BLOCK_TOKENS // ratio
    return request.pages.entries[entry // per_block] * per_block + entry % per_block


def snapshot(engine: Engine, request: Request) -> dict[Key, Tensor]:
    return {key: tensor[slot].clone() for key, tensor, slot in visible_rows(engine, request)}


def poison_the_rest(engine: Engine, request: Request) -> None:
    """Fills every row that cannot be read any more, or not yet, with NaN (the null page of zeros apart)."""
    keep: dict[int, list[int]] = {}
    for _, rows, slot in visible_rows(engine, request):
        keep.setdefault(id(rows), []).append(slot)
    layers = [*engine.cache.layers, *([engine.cache.drafter] if engine.cache.drafter else [])]
    for cache in layers:
        for tensor, pool in (
            (cache.window, engine.cache.window_pool),
            (cache.partial, engine.cache.window_pool),
            (cache.index_partial, engine.cache.window_pool),
            (cache.entries, engine.cache.entry_pool),
            (cache.index_keys, engine.cache.entry_pool),
        ):
            if tensor is not None:
                doomed = torch.ones(tensor.shape[0], dtype=torch.bool)
                doomed[: tensor.shape[0] // pool.count] = False
                doomed[keep.get(id(tensor), [])] = False
                tensor[doomed] = float("nan")
