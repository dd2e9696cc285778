"""The heart of the project: with speculation on, tokens and state are those of plain decode, bit for bit.

Random tiny models, prompts around every boundary (4n, 128n, the window), depths 1 to 7, drafters that are right for
exactly j of k, any temperature. After every step all that plain decode would not read is filled with NaN.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import pytest
import torch
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from tests.engine.drafters import OracleDrafter, TargetCopyDrafter
from tests.engine.visible_state import Key, poison_the_rest, snapshot
from tests.tiny import random_tensors, tiny_config
from torch import Tensor

from outrider.cache.batch import RequestRows
from outrider.cache.paged_cache import PagedCache
from outrider.config import EngineConfig, Numerics, SpeculativeConfig, parse_model_config
from outrider.engine.engine import Engine
from outrider.engine.request import Request
from outrider.model.mtp import MultiTokenPredictor
from outrider.model.transformer import Transformer
from outrider.sampling.params import SamplingParams
from outrider.speculative.drafter import MtpDrafter

MAX_LEN = 512
ALONE = EngineConfig(max_model_len=MAX_LEN, max_num_seqs=1, enable_prefix_caching=False)
OUTPUT = 14
# of the model of each seed; one is narrower than the compressors' own reach (the open 1:4 window and the one before)
WINDOWS = (16, 24, 2)
# one below, at and above: one token, 4n, the window, 128n, 256, and the count of entries where the indexer starts
PROMPTS = (1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 120, 127, 128, 129, 133, 255, 256, 257)


class Model(NamedTuple):
    trunk: Transformer
    mtp: MultiTokenPredictor


class Run(NamedTuple):
    token_ids: list[int]
    request: Request
    states: dict[int, dict[Key, Tensor]]  # visible rows, by num_computed


@cache
def model(seed: int) -> Model:
    """Three layers, one of each kind, so that a step is quick; the mixing is shortened for the same reason."""
    config = parse_model_config(
        tiny_config(
            num_hidden_layers=3, compress_ratios=[0, 4, 128, 0], num_hash_layers=1, hc_sinkhorn_iters=3,
            sliding_window=WINDOWS[seed], vocab_size=64, max_position_embeddings=MAX_LEN,
        )
    )  # fmt: skip
    weights = random_tensors(config, seed)
    with torch.inference_mode():
        trunk = Transformer(config, weights, Numerics())
        return Model(trunk, MultiTokenPredictor(trunk, weights, Numerics()))


def speculative(depth: int) -> SpeculativeConfig:
    return SpeculativeConfig(method="mtp", num_speculative_tokens=depth, adaptive=False)


def prompt_of(length: int, seed: int) -> list[int]:
    return torch.randint(2, 64, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def run(engine: Engine, request: Request, *, poison: bool) -> Run:
    states = {}
    while request.finish_reason is None:
        engine.step()
        if request.finish_reason is None:
            states[request.num_computed] = snapshot(engine, request)
            if poison:
                poison_the_rest(engine, request)
    return Run(list(request.token_ids), request, states)


@cache
def plain(seed: int, prompt_length: int, temperature: float, output: int = OUTPUT) -> Run:
    engine = Engine(model(seed).trunk, engine_config=ALONE)
    params = SamplingParams(temperature=temperature, seed=seed, max_tokens=output, ignore_eos=True)
    return run(engine, engine.add_request(prompt_of(prompt_length, seed), params), poison=False)


def teacher_forced_drafter_rows(seed: int, token_ids: list[int]) -> Tensor:
    """Drafter rows of positions 1 .. T-1 from one pass of the trunk and one of the MTP layer: [T, head_dim]."""
    trunk, mtp = model(seed)
    cache = PagedCache(trunk.config, window_pages=8, entry_pages=8, with_drafter=True)
    assert cache.drafter is not None
    pages = cache.new_request()
    pages.reserve(len(token_ids))
    ids = torch.tensor(token_ids)
    with torch.inference_mode():
        streams = trunk.forward(ids, [RequestRows(pages, 0, len(ids))], cache)
        mtp.forward(streams[:-1], ids[1:], [RequestRows(pages, 1, len(ids) - 1, first_position=1)], cache.drafter)
    slots = [pages.window[t // 128] * 128 + t % 128 for t in range(len(ids))]
    return cache.drafter.window[slots]


def assert_same_states(expected: Run, found: Run, seed: int) -> None:
    drafter_rows = teacher_forced_drafter_rows(seed, expected.token_ids)
    compared = 0
    for position, state in found.states.items():
        trunk_rows = {key: row for key, row in state.items() if key[0] != "drafter"}
        if position in expected.states:
            assert trunk_rows.keys() == expected.states[position].keys()
            for key, row in trunk_rows.items():
                assert torch.equal(row, expected.states[position][key]), (position, key)
                compared += 1
        for (name, _, at), row in state.items():
            if name == "drafter":
                assert torch.equal(row, drafter_rows[at]), (position, at)
                compared += 1
    assert compared > 0


# no shrinking: it takes minutes
@settings(max_examples=25, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate))
@example(seed=2, prompt_length=127, depth=3, right=[2, 1], temperature=0.0)
@given(
    seed=st.integers(0, 2),
    prompt_length=st.sampled_from(PROMPTS),
    depth=st.integers(1, 7),
    right=st.lists(st.integers(0, 7), min_size=1, max_size=5),
    temperature=st.sampled_from([0.0, 0.7, 1.0, 3.0]),
)
def test_oracle_drafts_change_neither_tokens_nor_state(
    seed: int, prompt_length: int, depth: int, right: list[int], temperature: float
) -> None:
    expected = plain(seed, prompt_length, temperature)
    engine = Engine(*model(seed), speculative(depth), ALONE)
    assert isinstance(engine.runner.drafter, MtpDrafter)
    oracle = OracleDrafter(engine.runner.drafter, expected.token_ids, right, engine.config.vocab_size)
    engine.runner.drafter = oracle
    params = SamplingParams(temperature=temperature, seed=seed, max_tokens=OUTPUT, ignore_eos=True)
    request = engine.add_request(prompt_of(prompt_length, seed), params)
    found = run(engine, request, poison=True)
    assert found.token_ids == expected.token_ids
    assert_same_states(expected, found, seed)
    statistics = request.statistics
    assert statistics.num_draft_tokens == sum(drafted for drafted, _ in oracle.proposed)
    assert statistics.num_accepted_tokens == sum(accepted for _, accepted in oracle.proposed)
    assert statistics.num_emitted_tokens == OUTPUT - 1  # the first token comes from the prompt's pass
    for position in range(depth):
        reached = sum(accepted > position for _, accepted in oracle.proposed)
        drafted = sum(drafted > position for drafted, _ in oracle.proposed)
        assert (statistics.drafted_per_position[position : position + 1] or [0]) == [drafted]
        assert (statistics.accepted_per_position[position : position + 1] or [0]) == [reached]
    assert engine.cache.window_pool.free_count == engine.cache.window_pool.count - 1
    assert engine.cache.entry_pool.free_count == engine.cache.entry_pool.count - 1


@pytest.mark.parametrize("prompt_length", [1, 17, 128, 257])
@pytest.mark.parametrize(("depth", "temperature"), [(1, 0.0), (2, 1.0), (7, 0.7)])
def test_mtp_drafts_change_neither_tokens_nor_state(prompt_length: int, depth: int, temperature: float) -> None:
    expected = plain(0, prompt_length, temperature)
    engine = Engine(*model(0), speculative(depth), ALONE)
    params = SamplingParams(temperature=temperature, seed=0, max_tokens=OUTPUT, ignore_eos=True)
    found = run(engine, engine.add_request(prompt_of(prompt_length, 0), params), poison=True)
    assert found.token_ids == expected.token_ids
    assert_same_states(expected, found, 0)


def test_chunked_prefill_equals_one_pass() -> None:
    engine = Engine(*model(1), speculative(3), ALONE.model_copy(update={"max_num_batched_tokens": 32}))
    params = SamplingParams(temperature=0.7, seed=1, max_tokens=OUTPUT, ignore_eos=True)
    found = run(engine, engine.add_request(prompt_of(255, 1), params), poison=True)
    expected = plain(1, 255, 0.7)
    assert found.token_ids == expected.token_ids
    assert_same_states(expected, found, 1)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_target_copy_is_always_accepted(temperature: float) -> None:
    """A drafter that computes the target's own logits is right every time, at any temperature: the noise is shared."""
    expected = plain(2, 31, temperature)
    engine = Engine(*model(2), speculative(4), ALONE)
    engine.runner.drafter = TargetCopyDrafter(Engine(model(2).trunk, engine_config=ALONE), prompt_of(31, 2))
    params = SamplingParams(temperature=temperature, seed=2, max_tokens=OUTPUT, ignore_eos=True)
    request = engine.add_request(prompt_of(31, 2), params)
    tokens = [token for output in engine.generate(request) for token in output.token_ids]
    assert tokens == expected.token_ids[31:]
    assert request.statistics.num_accepted_tokens == request.statistics.num_draft_tokens > 0


@pytest.mark.parametrize("at", range(5))
def test_stop_token_inside_an_accepted_block(at: int) -> None:
    """Tokens after the stop are neither published nor counted, wherever in the block it stands."""
    expected = plain(0, 17, 1.0)
    stop = expected.token_ids[17 + at]
    first = expected.token_ids[17:].index(stop)
    engine = Engine(*model(0), speculative(7), ALONE)
    assert isinstance(engine.runner.drafter, MtpDrafter)
    engine.runner.drafter = OracleDrafter(engine.runner.drafter, expected.token_ids, [7], engine.config.vocab_size)
    params = SamplingParams(temperature=1.0, seed=0, max_tokens=OUTPUT, ignore_eos=True, stop_token_ids=(stop,))
    request = engine.add_request(prompt_of(17, 0), params)
    outputs = list(engine.generate(request))
    assert request.output_token_ids == expected.token_ids[17 : 17 + first + 1]
    assert [token for output in outputs for token in output.token_ids] == request.output_token_ids
    assert request.finish_reason == "stop"
    assert request.statistics.num_emitted_tokens == first


@pytest.mark.parametrize("max_tokens", range(1, 8))
def test_length_limit_inside_a_block(max_tokens: int) -> None:
    expected = plain(0, 17, 0.0)
    engine = Engine(*model(0), speculative(5), ALONE)
    request = engine.add_request(prompt_of(17, 0), SamplingParams(max_tokens=max_tokens, ignore_eos=True))
    tokens = [token for output in engine.generate(request) for token in output.token_ids]
    assert tokens == expected.token_ids[17 : 17 + max_tokens]
    assert request.finish_reason == "length"


@pytest.mark.parametrize("prompt_length", range(50, 64, 3))
def test_end_of_the_context(prompt_length: int) -> None:
    engine = Engine(*model(0), speculative(5), ALONE.model_copy(update={"max_model_len": 64}))
    request = engine.add_request(prompt_of(prompt_length, 0), SamplingParams(max_tokens=100, ignore_eos=True))
    tokens = [token for output in engine.generate(request) for token in output.token_ids]
    plain_engine = Engine(model(0).trunk, engine_config=ALONE.model_copy(update={"max_model_len": 64}))
    other = plain_engine.add_request(prompt_of(prompt_length, 0), SamplingParams(max_tokens=100, ignore_eos=True))
    assert tokens == [token for output in plain_engine.generate(other) for token in output.token_ids]
    assert len(request.token_ids) == 64
    assert request.finish_reason == "length"
