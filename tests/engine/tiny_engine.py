"""Engines over the tiny model of the histories, and what tests do with them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tests.engine.drafters import BatchedOracle
from tests.histories import VOCAB, tiny_model

from outrider.config import EngineConfig, SpeculativeConfig
from outrider.engine.engine import Engine
from outrider.engine.request import Request
from outrider.engine.scheduler import Work
from outrider.sampling.params import SamplingParams
from outrider.speculative.drafter import MtpDrafter


def engine_of(depth: int = 0, **options: object) -> Engine:
    speculative = SpeculativeConfig(method="mtp", num_speculative_tokens=depth, adaptive=False) if depth else None
    settings = EngineConfig.model_validate({"max_model_len": 320, "enable_prefix_caching": False, **options})
    return Engine(*tiny_model(), speculative, settings)


def spell(token_ids: Sequence[int]) -> str:
    """Two letters a token."""
    return "".join(chr(ord("a") + token // 8) + chr(ord("a") + token % 8) for token in token_ids)


def speculating(depth: int = 7, **options: Any) -> tuple[Engine, BatchedOracle]:
    """An engine whose drafter can be told what is right; it knows stop strings too."""
    limits = EngineConfig.model_validate({"max_model_len": 320, "enable_prefix_caching": False, **options})
    config = SpeculativeConfig(method="mtp", num_speculative_tokens=depth, adaptive=False)
    engine = Engine(*tiny_model(), config, limits, detokenizer=lambda: spell)
    assert isinstance(engine.runner.drafter, MtpDrafter)
    oracle = BatchedOracle(engine.runner.drafter, VOCAB)
    engine.runner.drafter = oracle
    return engine, oracle


def prompt_of(length: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(2, VOCAB) for _ in range(length)]


def output(max_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, ignore_eos=True)


def record_work(engine: Engine) -> list[list[tuple[Request, int, int]]]:
    """(request, rows, drafts among them) of each step from now on."""
    steps: list[list[tuple[Request, int, int]]] = []
    schedule = engine.scheduler.schedule

    def recorded() -> list[Work]:
        work = schedule()
        steps.append([(item.request, item.count, len(item.request.drafts)) for item in work])
        return work

    engine.scheduler.schedule = recorded  # type: ignore[method-assign]
    return steps


def drain(engine: Engine, most: int = 2000) -> None:
    for _ in range(most):
        if not engine.has_unfinished:
            return
        engine.step()
    raise AssertionError(f"requests were left after {most} steps")


def assert_empty(engine: Engine) -> None:
    assert not engine.scheduler.running
    assert not engine.scheduler.waiting
    for pool in (engine.cache.window_pool, engine.cache.entry_pool):
        assert pool.free_count == pool.count - 1
