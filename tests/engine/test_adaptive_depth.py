"""Depth that changes all the time changes neither tokens nor state, and off is plain decode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.engine.drafters import OracleDrafter
from tests.engine.random_depths import RandomDepths
from tests.engine.test_lossless import (
    ALONE,
    OUTPUT,
    PROMPTS,
    assert_same_states,
    model,
    plain,
    prompt_of,
    run,
    speculative,
)  # fmt: skip
from tests.engine.tiny_engine import drain, engine_of, output

from outrider.cache.prefix import block_names
from outrider.config import ConfigError, EngineConfig, SpeculativeConfig, parse_speculative_config
from outrider.engine.depth_policy import AdaptiveDepth, Verified
from outrider.engine.engine import Engine
from outrider.engine.request import Request
from outrider.sampling.params import SamplingParams
from outrider.speculative.cost_tables import CostTables, MeasuredCosts
from outrider.speculative.drafter import DraftJob, MtpDrafter


@settings(max_examples=20, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate))
@given(
    seed=st.integers(0, 2),
    prompt_length=st.sampled_from(PROMPTS),
    depth=st.integers(1, 5),
    trace=st.integers(0, 1000),
    temperature=st.sampled_from([0.0, 0.7]),
)
def test_any_trace_of_depths_gives_the_tokens_of_plain_decode(
    seed: int, prompt_length: int, depth: int, trace: int, temperature: float
) -> None:
    expected = plain(seed, prompt_length, temperature)
    engine = Engine(*model(seed), speculative(depth), ALONE)
    engine.runner.depth_policy = RandomDepths(trace)
    params = SamplingParams(temperature=temperature, seed=seed, max_tokens=OUTPUT, ignore_eos=True)
    found = run(engine, engine.add_request(prompt_of(prompt_length, seed), params), poison=True)
    assert found.token_ids == expected.token_ids
    assert_same_states(expected, found, seed)


def tables(verify_ms: float) -> CostTables:
    draft = [{1: 1.0}, {1: 2.0}, {1: 3.0}]
    return CostTables(MeasuredCosts({1: 10.0}, {1: 10.0, 2: verify_ms, 64: verify_ms}, draft), 4, 64)


def adaptive(verify_ms: float, **options: object) -> tuple[Engine, AdaptiveDepth]:
    """An engine whose controller believes these costs, whatever the clock says."""
    engine = engine_of(2, **options)
    policy = AdaptiveDepth(tables(verify_ms), engine.options.max_num_seqs)
    policy.controller.observe_target = policy.controller.observe_draft = lambda *_, **__: None  # type: ignore[assignment]
    engine.runner.depth_policy = policy
    return engine, policy


def test_off_runs_no_drafter_and_on_starts_from_the_rows_it_has() -> None:
    engine, policy = adaptive(verify_ms=400.0)  # so dear that no probe is worth it
    drafter = engine.runner.drafter
    assert isinstance(drafter, MtpDrafter)
    runs: list[list[int]] = []
    real = drafter.run

    def recorded(jobs: Sequence[DraftJob]) -> list[list[int]]:
        runs.append([job.start for job in jobs])
        return real(jobs)

    drafter.run = recorded  # type: ignore[method-assign]
    request = engine.add_request(list(range(2, 30)), output(40))
    engine.step()
    assert policy.controller.speculating is False
    for _ in range(10):
        engine.step()
    assert runs == []
    assert request.statistics.num_draft_tokens == 0
    policy.controller.tables = tables(verify_ms=11.0)
    last = request.num_computed
    while not runs:
        last = request.num_computed
        engine.step()
        assert request.num_computed < 50, "it never turned on"
    assert runs[0] == [last + 1]  # the token behind the row of that step: nothing before it is known to the drafter
    assert request.drafter_first == last + 1
    drain(engine)
    assert request.statistics.num_draft_tokens > 0


def test_blocks_computed_while_off_hold_no_drafter_rows_and_are_hits_all_the_same() -> None:
    engine, policy = adaptive(verify_ms=40.0, enable_prefix_caching=True)
    policy.controller.speculating = False
    prompt = torch.randint(2, 64, (140,), generator=torch.Generator().manual_seed(0)).tolist()
    first = engine.add_request(prompt, output(4))
    drain(engine)
    policy.controller.tables = tables(verify_ms=11.0)
    policy.controller.speculating = True
    second = engine.add_request(prompt, output(4))
    drain(engine)
    assert second.num_cached == 128
    assert second.drafter_first >= 128
    assert first.output_token_ids == second.output_token_ids


def test_slots_of_requests_that_ended_are_used_again() -> None:
    engine, policy = adaptive(verify_ms=11.0, max_num_seqs=2)
    for start in range(2, 14):
        engine.add_request([start, start + 1], output(3))
    drain(engine)
    assert len(policy._owned) <= 4
    assert len(policy._owned) + len(policy._free) == 4
    assert len(set(policy._owned.values())) == len(policy._owned)


def verified(request: Request, drafted: int, accepted: int) -> Verified:
    found = Verified()
    found.add(request, drafted, accepted, 1 + accepted)
    return found


def test_what_is_learned_of_a_request_stays_its_own() -> None:
    """Though as many others run in the next step."""
    engine, policy = adaptive(verify_ms=11.0)
    easy, hard = (engine.add_request([2, start], output(2)) for start in (3, 4))
    for _ in range(30):
        policy.target_ran(verified(easy, 2, 2), 0.011, with_prompts=False)
        policy.target_ran(verified(hard, 2, 0), 0.011, with_prompts=False)
    chances = []
    for request in (easy, hard):
        policy._look_up([request])
        chances.append(float(policy.controller.acceptance.survival(policy._slots, policy._most)[0, 0]))
    assert chances[0] > 0.9 and chances[1] < 0.2


def test_prompt_rows_are_no_measurement() -> None:
    policy = AdaptiveDepth(tables(11.0), 1)
    before = policy.controller.tables.decode_ms(1)
    engine = engine_of(2)
    request: Request = engine.add_request([2, 3], output(2))
    for _ in range(20):
        policy.target_ran(verified(request, 0, 0), 5.0, with_prompts=True)
        policy.drafter_ran([2], 5.0, with_prompts=True)
    assert policy.controller.tables.decode_ms(1) == before
    policy.target_ran(verified(request, 0, 0), 5.0, with_prompts=False)
    assert policy.controller.tables.decode_ms(1) > before


def test_off_leaves_the_prefix_cache_of_plain_decode() -> None:
    """Names of blocks, free pages and hits: the same after requests that never drafted as without a drafter."""
    prompts = [prompt_of(140, 1), [*prompt_of(140, 1), 5], prompt_of(270, 2), prompt_of(140, 1)[:129]]
    found = []
    for engine in (engine_of(0, enable_prefix_caching=True), adaptive(verify_ms=400.0, enable_prefix_caching=True)[0]):
        hits = []
        for prompt in prompts:
            request = engine.add_request(prompt, output(6))
            while request.finish_reason is None:
                engine.step()
                policy = engine.runner.depth_policy
                if isinstance(policy, AdaptiveDepth):
                    policy.controller.speculating = False
            hits.append((request.num_cached, request.output_token_ids, request.statistics.num_draft_tokens))
        used = sum(pool.count - pool.free_count for pool in (engine.cache.window_pool, engine.cache.entry_pool))
        named = [
            pool.find(name) is not None
            for prompt in prompts
            for name in block_names(prompt)
            for pool in (engine.cache.window_pool, engine.cache.entry_pool)
        ]
        found.append((hits, used, named))
    assert found[0] == found[1]
    assert [cached for cached, *_ in found[0][0]] == [0, 128, 0, 128]


@pytest.mark.parametrize("wrong", ["verify twice too dear", "plain twice too cheap", "verify half too cheap"])
def test_tables_that_are_wrong_by_two_heal_in_the_engine(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted time: a plain step 10 ms, two drafts 2 ms, a step that verifies them 13 or 45 ms."""
    pays = wrong != "verify half too cheap"
    now, true_verify = 0.0, 13.0 if pays else 45.0
    monkeypatch.setattr("outrider.engine.runner.perf_counter", lambda: now)
    truth = plain(0, 5, 0.0, 200).token_ids
    engine = Engine(*model(0), speculative(2), ALONE)
    assert isinstance(engine.runner.drafter, MtpDrafter)
    oracle = OracleDrafter(engine.runner.drafter, truth, [2, 2, 1], 64)
    engine.runner.drafter = oracle
    forward, draft = engine.runner.model.forward, oracle.run

    def timed_forward(ids: torch.Tensor, *rest: Any) -> torch.Tensor:
        nonlocal now
        now += (10.0 if len(ids) == 1 else true_verify) / 1e3
        return forward(ids, *rest)

    def timed_draft(jobs: Sequence[DraftJob]) -> list[list[int]]:
        nonlocal now
        now += 2.0 / 1e3
        return draft(jobs)

    class Timed:
        forward = staticmethod(timed_forward)
        logits = engine.runner.model.logits

    monkeypatch.setattr(engine.runner, "model", Timed())
    monkeypatch.setattr(oracle, "run", timed_draft)
    decode = 5.0 if wrong == "plain twice too cheap" else 10.0
    verify = {"verify twice too dear": 26.0, "plain twice too cheap": 13.0}.get(wrong, 22.5)
    costs = MeasuredCosts({1: decode}, {1: decode, 2: verify, 64: verify}, [{1: 0.5}, {1: 1.0}, {1: 2.0}])
    engine.runner.depth_policy = policy = AdaptiveDepth(CostTables(costs, 1, 64), 1)
    params = SamplingParams(temperature=0.0, seed=0, max_tokens=200, ignore_eos=True)
    request = engine.add_request(prompt_of(5, 0), params)
    drain(engine)
    assert request.token_ids == truth
    plain_ms = 10.0 * 200
    assert policy.controller.speculating is pays
    assert plain_ms / (1e3 * now) > (1.6 if pays else 0.9), wrong  # a fixed depth of 2 gives 1.78 or 0.57


def test_an_engine_measures_and_reports() -> None:
    config = SpeculativeConfig(method="mtp", num_speculative_tokens=2, adaptive=True)
    engine = Engine(*model(0), config, EngineConfig(max_model_len=64, max_num_seqs=1, enable_prefix_caching=False))
    request = engine.add_request([2, 3, 4], output(8))
    drain(engine)
    report = engine.depth_report
    assert report is not None
    acceptance = engine.acceptance_report
    assert acceptance is not None
    assert sum(acceptance.depth_histogram) == request.statistics.num_steps > 0
    assert len(report.table_ratios) == 3
    assert report.off_rate > 0
    assert engine_of(2).depth_report is None


def test_auto_needs_the_controller() -> None:
    with pytest.raises(ConfigError, match="a fixed depth is a number"):
        parse_speculative_config('{"method": "mtp", "num_speculative_tokens": "auto", "adaptive": false}')
    auto = SpeculativeConfig.model_validate({"method": "mtp", "num_speculative_tokens": "auto"})
    assert (auto.num_speculative_tokens, auto.adaptive) == (4, True)
