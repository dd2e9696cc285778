"""Every rounding of cached rows: it changes the logits that it should, and speculation stays lossless under it."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from tests.histories import SHAPE, VOCAB, Model
from tests.tiny import random_tensors, tiny_config
from torch import Tensor

from outrider.cache.batch import RequestRows
from outrider.cache.paged_cache import PagedCache
from outrider.config import EngineConfig, Numerics, SpeculativeConfig, parse_model_config
from outrider.engine.engine import Engine
from outrider.model.mtp import MultiTokenPredictor
from outrider.model.transformer import Transformer
from outrider.sampling.params import SamplingParams

KV, INDEXER = ("auto", "fp8", "bf16", "float32"), ("fp4", "fp8", "bf16", "float32")
PAIRS = [*((kv, "fp4") for kv in KV), *(("auto", indexer) for indexer in INDEXER[1:]), ("bf16", "fp8")]
PROMPT = torch.randint(2, VOCAB, (150,), generator=torch.Generator().manual_seed(5)).tolist()


@cache
def model(kv: str, indexer: str) -> Model:
    config = parse_model_config(tiny_config(**SHAPE))
    weights = random_tensors(config)
    numerics = Numerics.model_validate({"kv_cache_dtype": kv, "indexer_dtype": indexer})
    with torch.inference_mode():
        trunk = Transformer(config, weights, numerics)
        return Model(trunk, MultiTokenPredictor(trunk, weights, numerics))


@cache
def pass_over_prompt(kv: str, indexer: str) -> tuple[Tensor, PagedCache]:
    """(logits of every row, the cache) after one pass over the prompt."""
    trunk = model(kv, indexer).trunk
    paged = PagedCache(trunk.config, window_pages=4, entry_pages=4, with_drafter=False)
    pages = paged.new_request()
    pages.reserve(len(PROMPT))
    with torch.inference_mode():
        streams = trunk.forward(torch.tensor(PROMPT), [RequestRows(pages, 0, len(PROMPT))], paged)
        return trunk.logits(streams), paged


def test_every_rounding_has_its_own_logits() -> None:
    found = [pass_over_prompt(kv, indexer)[0] for kv, indexer in PAIRS]
    for i, left in enumerate(found):
        for j, right in enumerate(found[:i]):
            assert not torch.equal(left, right), (PAIRS[i], PAIRS[j])


def test_the_defaults_are_what_training_had() -> None:
    assert Numerics() == Numerics(kv_cache_dtype="auto", indexer_dtype="fp4", activation_fp8=False)
    errors = {}
    for kv in KV[:3]:
        exact = pass_over_prompt("float32", "float32")[0]
        errors[kv] = float((pass_over_prompt(kv, "fp4")[0] - exact).norm() / exact.norm())
    assert all(0 < error < 0.5 for error in errors.values()), errors


def test_cached_rows_hold_what_the_format_holds() -> None:
    for kv in KV:
        for layer in pass_over_prompt(kv, "fp4")[1].layers:
            for rows in (layer.window, layer.entries):
                if rows is not None:
                    assert torch.equal(rows.bfloat16().float(), rows) == (kv in ("fp8", "bf16"))
    layers = pass_over_prompt("auto", "bf16")[1].layers
    (keys,) = [layer.index_keys for layer in layers if layer.index_keys is not None]
    assert torch.equal(keys.bfloat16().float(), keys)


@pytest.mark.parametrize(("kv", "indexer"), PAIRS)
@pytest.mark.parametrize(("depth", "temperature"), [(1, 0.0), (4, 0.9)])
def test_speculation_changes_no_token(kv: str, indexer: str, depth: int, temperature: float) -> None:
    def tokens(speculation: SpeculativeConfig | None, **limits: Any) -> list[list[int]]:
        engine = Engine(*model(kv, indexer), speculation, EngineConfig(max_model_len=200, **limits))
        requests = [
            engine.add_request(
                PROMPT[start:], SamplingParams(temperature=temperature, seed=3, max_tokens=12, ignore_eos=True)
            )
            for start in (0, 1, 100)
        ]
        while engine.has_unfinished:
            engine.step()
        return [request.output_token_ids for request in requests]

    plain = tokens(None, max_num_seqs=1, enable_prefix_caching=False)
    fast = SpeculativeConfig(method="mtp", num_speculative_tokens=depth, adaptive=False)
    assert tokens(fast, max_num_seqs=3, max_num_batched_tokens=50) == plain
