"""`LLM` and `AsyncEngine` on the model that ships: speculation changes no text, streams can be left."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from outrider import LLM, SamplingParams
from outrider.assets import shipped_model
from outrider.config import ConfigError
from outrider.engine.async_engine import AsyncEngine, EngineDeadError
from outrider.engine.llm import Prompt
from outrider.engine.request import Request, StepOutput
from outrider.sampling.noise import derived_seed

QUESTION = "There are 58 flamingos near the house. In the afternoon, 86 new flamingos arrive. How many are there now?"


@cache
def llm(depth: int) -> LLM:
    speculation = {"method": "mtp", "num_speculative_tokens": depth, "adaptive": False} if depth else None
    return LLM(shipped_model(), speculative_config=speculation, max_num_seqs=4, max_model_len=256)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_speculation_changes_no_text(temperature: float) -> None:
    params = SamplingParams(temperature=temperature, seed=4, max_tokens=24, n=2, logprobs=2, prompt_logprobs=0)
    prompts: list[Prompt] = [QUESTION, "import os", llm(0).tokenizer.chat_prompt(QUESTION)]
    plain, fast = (llm(depth).generate(prompts, params) for depth in (0, 3))
    for off, on in zip(plain, fast, strict=True):
        assert [o.token_ids for o in off.outputs] == [o.token_ids for o in on.outputs]
        assert [o.text for o in off.outputs] == [o.text for o in on.outputs]
        assert [o.logprobs for o in off.outputs] == [o.logprobs for o in on.outputs]
        assert off.prompt_logprobs == on.prompt_logprobs
        assert sum(o.statistics.num_accepted_tokens for o in on.outputs) > 0
        assert sum(o.statistics.num_draft_tokens for o in off.outputs) == 0


def test_the_shipped_model_answers_what_it_was_trained_for() -> None:
    (output,) = llm(3).generate([llm(3).tokenizer.chat_prompt(QUESTION)], SamplingParams(max_tokens=64))
    assert output.outputs[0].text.endswith("#### 144")
    assert output.outputs[0].finish_reason == "stop"
    assert output.outputs[0].statistics.acceptance_length > 2


def test_a_request_can_go_without_speculation() -> None:
    (output,) = llm(3).generate("import os", SamplingParams(max_tokens=8), speculation=0)
    assert output.outputs[0].statistics.num_draft_tokens == 0


def test_stop_string_is_cut_off() -> None:
    chat = [llm(3).tokenizer.chat_prompt(QUESTION)]
    (output,) = llm(3).generate(chat, SamplingParams(max_tokens=64, stop=("####",)))
    assert output.outputs[0].finish_reason == "stop"
    assert "#" not in output.outputs[0].text


def test_options_reach_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    """The engine's own seed: requests that name none are repeatable in their order, and differ from each other."""
    options: dict[str, Any] = {"max_model_len": 64, "max_num_seqs": 2, "seed": 5, "enable_prefix_caching": False}
    with caplog.at_level("INFO", logger="outrider"):
        first, again = (LLM(shipped_model(), kv_cache_dtype="bf16", indexer_dtype="fp8", **options) for _ in range(2))
    assert "MB, cache 99.58 MB" in caplog.text and caplog.text.count("workspace") == 2
    params = SamplingParams(temperature=1.5, max_tokens=8)
    texts, same = ([o.outputs[0].text for o in one.generate(["The", "The"], params)] for one in (first, again))
    assert texts == same and texts[0] != texts[1]
    assert first.engine.options.max_num_seqs == 2 and not first.engine.options.enable_prefix_caching
    assert first.engine.cache.entry_pool.count == first.engine.options.entry_pages


@pytest.mark.parametrize("caching", [True, False])
def test_samples_of_a_prompt_share_its_blocks_and_have_seeds_of_their_own(
    caching: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where prefix caching is off: then they share with each other only."""
    model = llm(3)
    monkeypatch.setattr(
        model.engine, "options", model.engine.options.model_copy(update={"enable_prefix_caching": caching})
    )
    requests: list[Request] = []
    monkeypatch.setattr(model.engine, "add_request", recorded(model.engine.add_request, requests))
    rng = random.Random(caching)
    prompt = [rng.randrange(50, 500) for _ in range(130)]
    params = SamplingParams(temperature=1.0, seed=11, max_tokens=6, n=3, ignore_eos=True)
    (output,) = model.generate([prompt], params)
    assert [own.seed for own in output.outputs] == [derived_seed(11, index) for index in range(3)]
    assert [request.num_cached for request in requests] == [0, 128, 128]
    assert output.num_cached_tokens == 0
    assert len({own.token_ids for own in output.outputs}) > 1
    for own in output.outputs:
        alone = SamplingParams(temperature=1.0, seed=own.seed, max_tokens=6, ignore_eos=True)
        (single,) = model.generate([prompt], alone, speculation=0)
        assert single.outputs[0].token_ids == own.token_ids
        assert single.num_cached_tokens == (128 if caching else 0)


def recorded(add: Callable[..., Request], requests: list[Request]) -> Callable[..., Request]:
    def add_and_record(*arguments: object, **options: object) -> Request:
        requests.append(add(*arguments, **options))
        return requests[-1]

    return add_and_record


def test_refusals_leave_nothing_behind() -> None:
    with pytest.raises(ConfigError, match="prompt"):
        llm(3).generate([[2, 3], [10**6]])
    with pytest.raises(ConfigError, match="params"):
        llm(3).generate(["one", "two"], [SamplingParams()])
    with pytest.raises(ConfigError, match="max_num_seqs"):
        LLM(shipped_model(), max_num_seqs=0)
    with pytest.raises(ConfigError, match="kv_cache_dtype: input should be 'auto'"):
        LLM(shipped_model(), kv_cache_dtype="fp16")
    with pytest.raises(ConfigError, match="does not fit into memory"):
        LLM(shipped_model(), gpu_memory_utilization=1e-6)
    assert not llm(3).engine.has_unfinished


def test_streams_end_with_their_requests_and_can_be_left() -> None:
    engine = llm(3).engine
    prompt = llm(3).tokenizer.chat_prompt(QUESTION)
    expected = llm(3).generate([prompt], SamplingParams(max_tokens=32))[0].outputs[0].token_ids
    service = AsyncEngine(engine)
    service.start()

    async def collect() -> list[int]:
        return [t async for o in service.generate(prompt, SamplingParams(max_tokens=32)) for t in o.token_ids]

    async def leave() -> StepOutput:
        stream = service.generate(prompt, SamplingParams(max_tokens=32))
        first = await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        return first

    async def everything() -> None:
        first, second, left = await asyncio.gather(collect(), collect(), leave())
        assert tuple(first) == tuple(second) == expected
        assert left.token_ids == expected[: len(left.token_ids)]
        with pytest.raises(ConfigError, match="prompt"):
            async for _ in service.generate([], SamplingParams()):
                pass

    try:
        asyncio.run(asyncio.wait_for(everything(), 60))
    finally:
        service.stop()
    assert not service.alive
    for pool in (engine.cache.window_pool, engine.cache.entry_pool):
        assert pool.free_count == pool.count - 1

    async def late() -> None:
        async for _ in service.generate(prompt, SamplingParams()):
            pass

    with pytest.raises(EngineDeadError, match="stopped"):
        asyncio.run(late())
