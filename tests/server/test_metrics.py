"""/metrics: the names that dashboards scrape, and counts that agree with what clients were told."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from prometheus_client import CollectorRegistry, generate_latest
from tests.server.serving import Api, LeavingClient, serving, wait_until

from outrider.engine.async_engine import AsyncEngine
from outrider.server.speculation_metrics import SpeculationCollector
from outrider.speculative.acceptance_monitor import AcceptanceReport, ContextAcceptance
from outrider.speculative.depth_controller import ControllerReport

NAMES = [
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:num_preemptions_total",
    "vllm:request_success_total",
    "vllm:spec_decode_num_drafts_total",
    "vllm:spec_decode_num_draft_tokens_total",
    "vllm:spec_decode_num_accepted_tokens_total",
    "vllm:spec_decode_num_accepted_tokens_per_pos_total",
    "vllm:time_to_first_token_seconds_bucket",
    "vllm:inter_token_latency_seconds_bucket",
    "vllm:request_time_per_output_token_seconds_bucket",
    "vllm:e2e_request_latency_seconds_bucket",
    "vllm:request_queue_time_seconds_bucket",
    "vllm:request_prompt_tokens_bucket",
    "vllm:request_generation_tokens_bucket",
]


def scrape(api: Api) -> dict[str, float]:
    """Name with its labels, but those that all have -> value."""
    text = api.get("/metrics").text
    text = text.replace('engine="0",model_name="tiny",', "").replace('{engine="0",model_name="tiny"}', "")
    text = text.replace('engine="0",', "").replace(',model_name="tiny"', "")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_counts_agree_with_usage() -> None:
    with serving() as api:
        usages = [
            api.post(
                "/v1/completions",
                {"prompt": ["There are 3", "Tom"], "n": 2, "max_tokens": 9 + depth, "ignore_eos": True, **options},
            ).json()["usage"]
            for depth, options in ((0, {"speculation": "off"}), (1, {"speculation": 1}), (2, {"seed": 3}))
        ]
        found = scrape(api)
        speculation = [usage["speculation"] for usage in usages]
        for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens"):
            assert found[f"vllm:spec_decode_{name}_total"] == sum(own[name] for own in speculation)
        for position in range(3):
            expected = sum((own["num_accepted_tokens_per_pos"] + [0] * 3)[position] for own in speculation)
            name = f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{position}"}}'
            assert found[name] == expected
        tokens = sum(usage["completion_tokens"] for usage in usages)
        assert found["vllm:generation_tokens_total"] == tokens == 4 * (9 + 10 + 11)
        assert found["vllm:prompt_tokens_total"] == 2 * sum(usage["prompt_tokens"] for usage in usages)
        assert found['vllm:request_success_total{finished_reason="length"}'] == 12
        assert found["vllm:time_to_first_token_seconds_count"] == 12
        assert found["vllm:inter_token_latency_seconds_count"] >= tokens - 12 * 4
        assert found["vllm:request_time_per_output_token_seconds_count"] == 12
        assert found["vllm:kv_cache_usage_perc"] == 0
        assert found["vllm:num_requests_running"] == found["vllm:num_requests_waiting"] == 0


def test_names(api: Api) -> None:
    api.post("/v1/completions", {"prompt": "There are", "max_tokens": 8, "ignore_eos": True})
    response = api.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    names = {re.split(r"[ {]", line)[0] for line in response.text.splitlines()}
    assert [name for name in NAMES if name not in names] == []
    assert not any("_created" in name for name in names)


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    text = (Path(__file__).parents[2] / "docs" / "grafana_dashboard.json").read_text(encoding="utf-8")
    asked = set(re.findall(r"vllm:\w+", text))
    assert len(asked) > 10
    assert asked - set(NAMES) == set()


def test_health_probes_are_nobodys_requests(api: Api) -> None:
    before = scrape(api)
    assert api.get("/health").json()["reason"] == "one token"
    assert scrape(api)["vllm:generation_tokens_total"] == before["vllm:generation_tokens_total"]


def test_a_client_that_leaves_is_counted_as_aborted() -> None:
    with serving() as api:

        async def leave() -> float:
            body = {"prompt": "There", "max_tokens": 400, "ignore_eos": True, "stream": True}
            client = LeavingClient(api, "/v1/completions", body)
            task = asyncio.create_task(client.run())
            while len(client.sent) < 3:
                await asyncio.sleep(0.01)
            running = api.served.engine.load().kv_cache_usage
            client.gone.set()
            await task
            return running

        assert 0 < asyncio.run(leave()) <= 1
        wait_until(api.idle)
        assert scrape(api)['vllm:request_success_total{finished_reason="abort"}'] == 1


def speculation_samples(acceptance: AcceptanceReport | None, depth: ControllerReport | None) -> dict[str, float]:
    """Name and labels -> value, of an engine that reports this."""
    engine = SimpleNamespace(acceptance_report=acceptance, depth_report=depth)
    registry = CollectorRegistry()
    registry.register(SpeculationCollector(cast("AsyncEngine", engine), {}))
    lines = generate_latest(registry).decode().splitlines()
    return {name: float(value) for name, _, value in (x.rpartition(" ") for x in lines if not x.startswith("#"))}


def test_what_the_depth_controller_believes_and_what_became_of_drafts() -> None:
    contexts = [ContextAcceptance(128, (8, 4), (6, 1)), ContextAcceptance(None, (2, 0), (1, 0))]
    acceptance = AcceptanceReport(0.8, [3, 4, 5], contexts, too_low=True, looping=False)
    depth = ControllerReport(
        speculating=False, predicted_rate=61.5, off_rate=60.0, realised_rate=55.0, table_ratios=[1.0, 1.25],
        drift=0.9, acceptance=[0.7], num_turns=3,
    )  # fmt: skip
    one, more = 'context="128",position=', 'context="+Inf",position='
    own = {
        'passes_total{drafts="0"}': 3, 'passes_total{drafts="1"}': 4, 'passes_total{drafts="2"}': 5,
        f'context_drafted_total{{{one}"0"}}': 8, f'context_drafted_total{{{one}"1"}}': 4,
        f'context_drafted_total{{{more}"0"}}': 2, f'context_drafted_total{{{more}"1"}}': 0,
        f'context_accepted_total{{{one}"0"}}': 6, f'context_accepted_total{{{one}"1"}}': 1,
        f'context_accepted_total{{{more}"0"}}': 1, f'context_accepted_total{{{more}"1"}}': 0,
        'acceptance_alarm{kind="too_low"}': 1, 'acceptance_alarm{kind="looping"}': 0, "self_check_acceptance": 0.8,
    }  # fmt: skip
    controllers = {
        "speculating": 0, "turns_total": 3, 'tokens_per_second{kind="predicted"}': 61.5,
        'tokens_per_second{kind="realised"}': 55, 'tokens_per_second{kind="plain"}': 60,
        'cost_ratio{arm="plain"}': 1, 'cost_ratio{arm="1"}': 1.25, 'cost_ratio{arm="all"}': 0.9,
        'expected_acceptance{position="0"}': 0.7,
    }  # fmt: skip
    prefix = "outrider:spec_decode_"
    own, both = ({prefix + name: value for name, value in some.items()} for some in (own, own | controllers))
    assert speculation_samples(acceptance, depth) == both
    assert speculation_samples(acceptance, None) == own
    assert speculation_samples(None, None) == {}


def test_drafts_by_context_are_those_that_clients_were_told(api: Api) -> None:
    before = scrape(api)
    body = {"prompt": "There are 3", "max_tokens": 20, "ignore_eos": True}
    usage = api.post("/v1/completions", body).json()["usage"]["speculation"]
    found = {name: value - before.get(name, 0) for name, value in scrape(api).items()}

    def total(name: str) -> float:
        return sum(value for own, value in found.items() if own.startswith(f"outrider:spec_decode_{name}"))

    assert total("context_drafted_total") == usage["num_draft_tokens"] > 0
    assert total("context_accepted_total") == usage["num_accepted_tokens"]
    passes = sum(value for own, value in found.items() if "passes_total" in own and 'drafts="0"' not in own)
    assert passes == usage["num_drafts"]
    assert not any("speculating" in name for name in found)  # a fixed depth
    assert "outrider:spec_decode_self_check_acceptance" in before
