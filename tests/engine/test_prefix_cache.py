"""Prefix reuse: a hit says what a cold run says, drafts what it drafts, and tells the truth about what it saved."""

from __future__ import annotations

from functools import cache

import pytest
from tests.engine.tiny_engine import assert_empty, drain, engine_of, prompt_of, record_work
from tests.histories import tiny_model

from outrider.cache.layout import BLOCK_TOKENS
from outrider.cache.prefix import block_names
from outrider.config import EngineConfig, SpeculativeConfig
from outrider.engine.engine import Engine
from outrider.engine.request import Request
from outrider.sampling.params import SamplingParams

OUTPUT = 10


def params(temperature: float = 0.7, **changes: object) -> SamplingParams:
    fields: dict[str, object] = {"temperature": temperature, "seed": 3, "max_tokens": OUTPUT, "ignore_eos": True}
    return SamplingParams(**{**fields, **changes})  # type: ignore[arg-type]


@cache
def cold(prompt: tuple[int, ...], temperature: float = 0.7) -> list[int]:
    engine = engine_of()
    request = engine.add_request(prompt, params(temperature))
    drain(engine)
    assert request.num_cached == 0
    return request.output_token_ids


def ask(engine: Engine, prompt: list[int], *, speculation: int | None = None) -> Request:
    request = engine.add_request(prompt, params(), speculation=speculation)
    drain(engine)
    assert request.output_token_ids == cold(tuple(prompt))
    return request


def drafts_of(engine: Engine, prompt: list[int]) -> tuple[Request, list[list[int]]]:
    """The request, run to its end, and what was drafted after each of its steps."""
    request = engine.add_request(prompt, params())
    drafts = []
    while request.finish_reason is None:
        engine.step()
        drafts.append(list(request.drafts))
    assert request.output_token_ids == cold(tuple(prompt))
    return request, [d for d in drafts if d]


@pytest.mark.parametrize("depth", [0, 3])
@pytest.mark.parametrize("length", [127, 128, 129, 133, 256, 257, 300])
def test_a_hit_equals_a_cold_run_and_says_what_it_saved(length: int, depth: int) -> None:
    engine = engine_of(depth, enable_prefix_caching=True)
    prompt = prompt_of(length)
    assert ask(engine, prompt).num_cached == 0
    for _ in range(2):
        assert ask(engine, prompt).num_cached == (length - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    assert_empty(engine)


@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize(("differs", "saved"), [(0, 0), (127, 0), (128, 128), (129, 128), (255, 128), (256, 256)])
def test_prompts_that_are_equal_up_to_a_token(differs: int, saved: int, depth: int) -> None:
    engine = engine_of(depth, enable_prefix_caching=True)
    prompt = prompt_of(270)
    ask(engine, prompt)
    other = [*prompt[:differs], (prompt[differs] + 1) % 60 + 2, *prompt_of(270 - differs, seed=9)][:270]
    assert other[differs] != prompt[differs]
    assert ask(engine, other).num_cached == saved


def test_rows_that_a_hit_saves_are_not_computed() -> None:
    engine = engine_of(enable_prefix_caching=True, max_num_batched_tokens=320)
    steps = record_work(engine)
    ask(engine, prompt_of(300))
    assert steps[0][0][1] == 300
    steps.clear()
    ask(engine, prompt_of(300))
    assert steps[0][0][1] == 300 - 256


def test_without_prefix_caching_nothing_is_shared() -> None:
    engine = engine_of(2)
    for _ in range(2):
        assert ask(engine, prompt_of(200)).num_cached == 0


def test_salts_keep_requests_apart() -> None:
    engine = engine_of(enable_prefix_caching=True)
    saved = []
    for salt in (b"one", b"two", b"one", None):
        request = engine.add_request(prompt_of(200), params(), salt=salt)
        drain(engine)
        saved.append(request.num_cached)
    assert saved == [0, 0, 128, 0]


def test_drafter_rows_are_part_of_a_block() -> None:
    """After a hit the drafter guesses what it guessed in the cold run: it sees the rows before the block's end."""
    engine = engine_of(3, enable_prefix_caching=True)
    prompt = prompt_of(130, seed=5)
    first, cold_drafts = drafts_of(engine, prompt)
    second, hit_drafts = drafts_of(engine, prompt)
    assert (first.num_cached, second.num_cached) == (0, 128)
    assert hit_drafts == cold_drafts
    assert first.statistics == second.statistics
    assert second.drafter_first == 1


def test_blocks_that_were_written_without_drafts_are_hits_and_draft_cold() -> None:
    """Their drafter rows were never written: whatever lies there is not read."""
    engine = engine_of(3, enable_prefix_caching=True)
    prompt = prompt_of(130, seed=5)
    assert ask(engine, prompt, speculation=0).statistics.num_draft_tokens == 0
    page = engine.cache.window_pool.find(block_names(prompt)[0])
    assert page is not None
    assert engine.cache.drafter is not None
    engine.cache.drafter.window.view(-1, BLOCK_TOKENS, engine.config.head_dim)[page] = float("nan")
    request, drafts = drafts_of(engine, prompt)
    assert request.num_cached == 128
    assert request.drafter_first == 128
    assert drafts and len(drafts[0]) == 3  # NaN would have given none
    assert_empty(engine)


def test_a_block_that_speculation_wrote_serves_a_request_without() -> None:
    engine = engine_of(3, enable_prefix_caching=True)
    ask(engine, prompt_of(200))
    assert ask(engine, prompt_of(200), speculation=0).num_cached == 128


def test_output_is_reused_by_the_next_turn() -> None:
    engine = engine_of(2, enable_prefix_caching=True)
    turn = prompt_of(122)
    first = ask(engine, turn)
    assert ask(engine, [*first.token_ids, *prompt_of(20, seed=1)]).num_cached == 128


def test_tokens_behind_a_stop_are_in_no_block() -> None:
    """The last token of a text has no row yet: a text of 128 tokens leaves no complete block, one of 129 does."""
    for length, saved in ((128, 0), (129, 128)):
        engine = engine_of(3, enable_prefix_caching=True)
        first = ask(engine, prompt_of(length - OUTPUT))
        assert len(first.token_ids) == length
        assert ask(engine, [*first.token_ids, *prompt_of(3)]).num_cached == saved


def test_prompt_logprobs_compute_every_row() -> None:
    engine = engine_of(enable_prefix_caching=True)
    texts = []
    for _ in range(2):
        request = engine.add_request(prompt_of(140), params(prompt_logprobs=1))
        drain(engine)
        assert request.num_cached == 0
        texts.append(request.prompt_logprobs)
    assert texts[0] == texts[1]
    assert ask(engine, prompt_of(140)).num_cached == 128


def test_two_requests_hold_a_block_together() -> None:
    engine = engine_of(2, enable_prefix_caching=True)
    prompt = prompt_of(200)
    first = engine.add_request(prompt, params())
    while not first.output_token_ids:
        engine.step()
    second = engine.add_request(prompt, params())
    while not second.output_token_ids:
        engine.step()
    assert second.pages.entries[0] == first.pages.entries[0]
    assert second.pages.entries[1] != first.pages.entries[1]
    engine.abort(first)
    drain(engine)
    assert second.output_token_ids == cold(tuple(prompt))
    assert_empty(engine)


def test_the_least_recently_used_blocks_go_first() -> None:
    engine = engine_of(enable_prefix_caching=True, max_model_len=140, max_num_batched_tokens=64, entry_pages=5)
    prompts = [prompt_of(129, seed) for seed in range(4)]
    uses = [0, 1, 2, 0, 3, 0, 2]
    for use in uses:
        ask(engine, prompts[use])
    names = [block_names(prompt)[0] for prompt in prompts]
    left = [i for i in range(4) if engine.cache.entry_pool.find(names[i]) is not None]
    latest_first = list(dict.fromkeys(reversed(uses)))
    assert 0 < len(left) < 4
    assert set(left) == set(latest_first[: len(left)])
    for use in left:
        assert ask(engine, prompts[use]).num_cached == 128


def test_the_drafter_does_not_keep_a_long_prefix_from_being_a_hit() -> None:
    config = SpeculativeConfig(method="mtp", num_speculative_tokens=3, adaptive=False)
    limits = EngineConfig(max_model_len=1200, max_num_seqs=1, max_num_batched_tokens=512)
    engine = Engine(*tiny_model(max_position_embeddings=2048), config, limits)
    shared = prompt_of(1024)
    for seed, saved in ((1, 0), (2, 1024)):
        request = engine.add_request([*shared, *prompt_of(9, seed)], params())
        drain(engine)
        assert request.num_cached == saved
    assert request.drafter_first == 1
    assert request.statistics.num_draft_tokens > 0
