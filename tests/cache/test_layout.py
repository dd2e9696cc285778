"""Widths and bytes of the cache's rows, against the numbers that the released models' engines need (spec 2.6, 5.3)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.tiny import tiny_config

from outrider.cache.layout import BLOCK_TOKENS, LayerLayout, cache_layout, layer_layout
from outrider.cache.paged_cache import PagedCache
from outrider.config import LayerKind, ModelConfig, load_model_config, parse_model_config

CONFIGS = Path(__file__).parents[1] / "configs"
LATENT_BYTES = 584  # 448 FP8 + 64 bf16 + 7 scales and a pad
INDEX_BYTES = 132  # 128 FP8 + one float32 scale


@pytest.fixture(params=["flash", "pro"])
def official(request: pytest.FixtureRequest) -> tuple[str, ModelConfig]:
    return request.param, load_model_config(CONFIGS / f"{request.param}.json")


def test_widths_of_a_layer(official: tuple[str, ModelConfig]) -> None:
    _, config = official
    widths = {
        LayerKind.WINDOW: (512, 0, 0, 0, 0),
        LayerKind.CSA: (512, 2 * 2 * 512, 2 * 2 * 128, 512, 128),
        LayerKind.HCA: (512, 2 * 512, 0, 512, 0),
    }
    for kind, expected in widths.items():
        assert layer_layout(config, kind) == LayerLayout(kind, *expected)


def test_partial_rows_cost_what_the_reference_keeps(official: tuple[str, ModelConfig]) -> None:
    """Float32 state of an open window: 64 KiB and 16 KiB (indexer) for 1:4, which keeps 8 rows; 512 KiB for 1:128."""
    _, config = official
    csa, hca = layer_layout(config, LayerKind.CSA), layer_layout(config, LayerKind.HCA)
    assert 4 * 8 * csa.partial_width == 64 * 1024
    assert 4 * 8 * csa.index_partial_width == 16 * 1024
    assert 4 * 128 * hca.partial_width == 512 * 1024


def test_bytes_of_a_context_token(official: tuple[str, ModelConfig]) -> None:
    """3.85 KB for Flash and 5.51 KB for Pro in the formats that engines store, counted over the layout's rows."""
    name, config = official
    layouts = cache_layout(config, with_drafter=False)
    per_block = sum(
        layout.entries_per_block * (LATENT_BYTES * (layout.entry_width > 0) + INDEX_BYTES * (layout.index_width > 0))
        for layout in layouts
    )
    csa, hca = {"flash": (21, 20), "pro": (30, 31)}[name]
    assert per_block / BLOCK_TOKENS == csa * 716 / 4 + hca * 584 / 128
    assert round(per_block / BLOCK_TOKENS / 1000, 2) == {"flash": 3.85, "pro": 5.51}[name]


def test_elements_of_a_page() -> None:
    config = load_model_config(CONFIGS / "flash.json")
    window, csa, hca = (layer_layout(config, kind) for kind in LayerKind)
    assert (window.window_page_elements, window.entry_page_elements) == (128 * 512, 0)
    assert (csa.window_page_elements, csa.entry_page_elements) == (128 * (512 + 2048 + 512), 32 * (512 + 128))
    assert (hca.window_page_elements, hca.entry_page_elements) == (128 * (512 + 1024), 512)
    assert [layout.entries_per_block for layout in (window, csa, hca)] == [0, 32, 1]


def test_layers_in_order_and_the_drafter_last(official: tuple[str, ModelConfig]) -> None:
    _, config = official
    kinds = [layout.kind for layout in cache_layout(config, with_drafter=True)]
    assert kinds == [*config.compress_ratios[: config.num_hidden_layers], LayerKind.WINDOW]
    assert cache_layout(config, with_drafter=False) == cache_layout(config, with_drafter=True)[:-1]


@pytest.mark.parametrize("with_drafter", [False, True])
def test_the_cache_is_as_laid_out(with_drafter: bool) -> None:
    config = parse_model_config(tiny_config())
    cache = PagedCache(config, window_pages=3, entry_pages=5, with_drafter=with_drafter)
    assert (cache.window_pool.free_count, cache.entry_pool.free_count) == (2, 4)
    assert (cache.drafter is not None) == with_drafter
    layers = [*cache.layers, *([cache.drafter] if cache.drafter else [])]
    for layer, layout in zip(layers, cache_layout(config, with_drafter=with_drafter), strict=True):
        window_rows = [t for t in (layer.window, layer.partial, layer.index_partial) if t is not None]
        entry_rows = [t for t in (layer.entries, layer.index_keys) if t is not None]
        assert sum(t.numel() for t in window_rows) == 3 * layout.window_page_elements
        assert sum(t.numel() for t in entry_rows) == 5 * layout.entry_page_elements
        assert all(t.shape[0] == 3 * BLOCK_TOKENS for t in window_rows)
        assert all(t.dtype == torch.float32 and not t.any() for t in (*window_rows, *entry_rows))
        assert (layer.entries is None) == (layout.kind == LayerKind.WINDOW)
        assert (layer.index_keys is None) == (layout.kind != LayerKind.CSA)
    data = {t.data_ptr() for layer in layers for t in (layer.window, layer.partial, layer.entries) if t is not None}
    assert len(data) == sum(
        1 if layout.kind == LayerKind.WINDOW else 3 for layout in cache_layout(config, with_drafter=with_drafter)
    )
