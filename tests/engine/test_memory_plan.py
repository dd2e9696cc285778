"""The memory plan is true: its weights and cache are the bytes of a loaded model's tensors, and it refuses in time."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiny import DSPARK, tiny_checkpoint, tiny_config
from torch import Tensor

from outrider import ops
from outrider.checkpoint.names import expected_tensors
from outrider.checkpoint.reader import Checkpoint
from outrider.config import ConfigError, EngineConfig, ModelConfig, SpeculativeConfig, parse_model_config
from outrider.engine import loading
from outrider.engine.engine import Engine
from outrider.engine.loading import LoadedModel, load_model
from outrider.engine.memory_plan import MemoryPlan, least_page_counts, page_counts, plan_memory, size_text
from outrider.model.plan import Planner

CONFIGS = Path(__file__).parents[1] / "configs"
MTP = SpeculativeConfig(method="mtp", num_speculative_tokens=3)
GB = 10**9


def tensors_below(thing: object, seen: set[int]) -> Iterator[Tensor]:
    """Every tensor that an object of ours holds, at any depth; a planner's angles are no weights."""
    if id(thing) in seen or isinstance(thing, Planner):
        return
    seen.add(id(thing))
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from tensors_below(value, seen)
    elif isinstance(thing, list | tuple):
        for value in thing:
            yield from tensors_below(value, seen)
    elif type(thing).__module__.startswith("outrider."):
        yield from tensors_below(vars(thing), seen)


def bytes_held(*things: object) -> int:
    """Bytes of the memory behind all tensors, each block once."""
    seen: set[int] = set()
    blocks: dict[int, int] = {}
    for thing in things:
        for tensor in tensors_below(thing, seen):
            if tensor.is_mkldnn:
                blocks[id(tensor)] = 4 * tensor.numel()
            else:
                blocks[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    return sum(blocks.values())


def plan(config: ModelConfig, depth: int = 3, available: int | None = None, **options: Any) -> MemoryPlan:
    specs = expected_tensors(config).values()
    return plan_memory(config, specs, EngineConfig(**options), depth=depth, available=available)


def tiny(**changes: Any) -> ModelConfig:
    return parse_model_config(tiny_config(**changes))


def loaded(folder: Path, speculation: SpeculativeConfig | None, **options: Any) -> tuple[LoadedModel, Engine]:
    model = load_model(Checkpoint.open(folder), speculative_config=speculation, engine_config=EngineConfig(**options))
    return model, model.engine(speculation)


@pytest.mark.parametrize("changes", [{}, {"quantization_config": None, "num_nextn_predict_layers": 0}, DSPARK])
@pytest.mark.parametrize("utilization", [None, 0.5])
def test_weights_and_cache_are_those_of_a_loaded_model(
    tmp_path: Path, changes: dict[str, Any], utilization: float | None
) -> None:
    folder = tiny_checkpoint(tmp_path, tiny_config(**changes))
    for speculation in (None, MTP) if changes == {} else (None,):
        model, engine = loaded(
            folder, speculation, max_model_len=300, max_num_seqs=2, gpu_memory_utilization=utilization
        )
        planned = model.plan.weights + model.plan.drafter_weights
        held = bytes_held(model.transformer, model.mtp)
        if ops.backends()["Linear"] == "native":
            assert held == planned
        else:
            assert held <= planned < 2.5 * held
        assert (model.plan.drafter_weights > 0) == (speculation is not None)
        cache = [*engine.cache.layers, engine.cache.drafter, engine.cache.last_streams]
        assert bytes_held(*(vars(c) if hasattr(c, "window") else c for c in cache)) == model.plan.cache_bytes


def test_every_kind_of_row_is_counted() -> None:
    config = tiny(compress_ratios=[0, 0, 4, 128, 4, 128, 0])
    kinds = {cost.kind: cost.bytes_per_token for cost in plan(config).cache}
    width, index = 4 * config.head_dim, 4 * config.index_head_dim
    assert kinds == {
        "window": 6 * width,
        "partial group": 2 * (4 * width + 4 * index) + 2 * 2 * width,
        "drafter": width + 4 * config.hc_mult * config.hidden_size / 128,
        "compressed": 2 * width / 4 + 2 * width / 128,
        "indexer": 2 * index / 4,
    }
    assert "drafter" not in {cost.kind for cost in plan(config, depth=0).cache}


def test_official_models_are_planned_from_config_alone() -> None:
    config = parse_model_config(json.loads((CONFIGS / "flash.json").read_text()))
    found = plan(config, available=64 * GB)
    specs = [spec for spec in expected_tensors(config).values() if not spec.is_scale]
    tables = sum(math.prod(spec.shape) for spec in specs if spec.dtype == "I64")
    products = sum(s.parameters for s in specs if s.scale or (s.dtype == "BF16" and len(s.shape) == 2))
    products -= config.vocab_size * config.hidden_size  # the embedding is looked up
    others = sum(spec.parameters for spec in specs) - products
    if ops.backends()["Linear"] == "native":
        assert found.weights + found.drafter_weights == 2 * products + 4 * others + 8 * tables
    assert not found.fits
    with pytest.raises(ConfigError, match=r"flash: does not fit.*weights .*57.60 GB.*weights alone are too large"):
        found.require_fit("flash")


SPECS = list(expected_tensors(tiny()).values())


@given(
    share=st.floats(-0.1, 1.1),
    utilization=st.none() | st.floats(0.01, 1),
    seqs=st.integers(1, 40),
    length=st.integers(1, 9000),
    depth=st.integers(0, 7),
)
def test_pages_fill_the_memory_and_no_more(
    share: float, utilization: float | None, seqs: int, length: int, depth: int
) -> None:
    """`share`: of the way from what one request needs to all that could be used."""
    config = tiny()
    options = EngineConfig(
        max_model_len=length, max_num_seqs=seqs, max_num_batched_tokens=64, gpu_memory_utilization=utilization
    )

    def planned(available: int | None) -> MemoryPlan:
        return plan_memory(config, SPECS, options, depth=depth, available=available)

    low, high = planned(0).total, planned(None).total
    found = planned(int((low + share * (high - low)) / (utilization or 0.9)))
    least = least_page_counts(config.sliding_window, length, depth, options)
    most = page_counts(config.sliding_window, length, depth, options)
    pages = (found.window_pages, found.entry_pages)
    assert all(few <= n <= many for few, n, many in zip(least, pages, most, strict=True))
    assert page_counts(config.sliding_window, length, depth, found.resolved(options)) == pages
    assert found.budget is not None
    assert found.fits == (found.budget >= low)
    if not found.fits:
        assert pages == least
    elif pages != most:  # no page more would fit
        assert found.budget - found.total < found.window_page_bytes + found.entry_page_bytes


def test_no_more_cache_than_requests_can_use() -> None:
    roomy = plan(tiny(max_position_embeddings=1024), available=10**15, max_num_seqs=3)
    assert roomy.total < 40_000_000
    assert roomy.context_tokens >= 3 * 1024
    # a long context that nobody may ever use, unless the memory was named
    long = tiny(max_position_embeddings=1 << 20)
    assert plan(long, available=10**15).context_tokens < 2.01 * (1 << 20)
    assert plan(long, available=10**15, gpu_memory_utilization=0.5).context_tokens >= 8 << 20
    assert plan(long, available=10**15, max_num_seqs=1).context_tokens < 1.01 * (1 << 20)


def test_pages_that_were_asked_for_are_kept() -> None:
    found = plan(tiny(), available=10**9, max_model_len=200, window_pages=9, entry_pages=11)
    assert (found.window_pages, found.entry_pages) == (9, 11)
    assert not plan(tiny(), available=10**7, max_model_len=200, window_pages=9, entry_pages=9999).fits


def test_what_to_lower() -> None:
    def refusal(depth: int = 3, **options: Any) -> str:
        with pytest.raises(ConfigError) as error:
            plan(tiny(), depth=depth, **options).require_fit("there")
        return str(error.value)

    whole = plan(tiny())
    assert "weights alone are too large" in refusal(available=whole.weights)
    without = whole.weights + whole.drafter_weights - 1
    assert "fit only without speculation" in refusal(available=without, gpu_memory_utilization=1)
    assert "Lower max_model_len, or max_num_batched_tokens, or raise gpu_m" in refusal(
        available=15_000_000, max_num_batched_tokens=8
    )
    short = {"max_model_len": 16, "max_num_batched_tokens": 4096, "available": 15_000_000, "gpu_memory_utilization": 1}
    assert refusal(**short).endswith("Lower max_num_batched_tokens, or max_model_len")
    for number in (size_text(whole.weights), size_text(whole.drafter_weights), "15.00 MB"):
        assert number in refusal(available=15_000_000)


def test_refused_before_any_weight_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Checkpoint.open(tiny_checkpoint(tmp_path))
    monkeypatch.setattr(Checkpoint, "read", lambda *_: pytest.fail("a tensor was read"))
    monkeypatch.setattr(loading, "available_memory", lambda: 8_000_000)
    with pytest.raises(ConfigError, match="does not fit into memory"):
        load_model(checkpoint)
    with pytest.raises(ConfigError, match="2 caches, together"):
        load_model(checkpoint, engines=2)
    with pytest.raises(ConfigError, match="max_model_len: 70000"):
        load_model(checkpoint, engine_config=EngineConfig(max_model_len=70_000))
    monkeypatch.setattr(loading, "available_memory", lambda: None)
    with pytest.raises(pytest.fail.Exception, match="a tensor was read"):
        load_model(checkpoint)
