"""Prometheus metrics, under the names that dashboards and benchmark tools scrape from vLLM.

`vllm:inter_token_latency_seconds` is observed once a token: a step that publishes m tokens counts m times with an m-th
of its gap, since gaps between chunks are no times per token under speculation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from outrider.engine.async_engine import AsyncEngine
from outrider.engine.request import Request, StepOutput
from outrider.server.speculation_metrics import SpeculationCollector

CONTENT_TYPE = CONTENT_TYPE_LATEST
_LABELS = ("model_name", "engine")
_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560)
_TOKENS = tuple(m * 10**e for e in range(6) for m in (1, 2, 5))


class Metrics:
    """One registry an application, so that two in a process do not meet."""

    def __init__(self, model_name: str, engine: AsyncEngine) -> None:
        """engine: what it has to do and how it speculates is asked at every scrape."""
        load = engine.load
        self._registry = CollectorRegistry()
        self._values = (model_name, "0")
        self._registry.register(SpeculationCollector(engine, dict(zip(_LABELS, self._values, strict=True))))
        self._gauge("num_requests_running", "Requests with rows in the cache.", lambda: load().num_running)
        self._gauge("num_requests_waiting", "Requests without.", lambda: load().num_waiting)
        self._gauge("kv_cache_usage_perc", "Share of cache pages in use, 1 = all.", lambda: load().kv_cache_usage)
        self.prompt_tokens = self._counter("prompt_tokens", "Prompt tokens computed or found in the cache.")
        self.generation_tokens = self._counter("generation_tokens", "Tokens generated and kept.")
        self.prefix_cache_queries = self._counter("prefix_cache_queries", "Prompt tokens looked up.")
        self.prefix_cache_hits = self._counter("prefix_cache_hits", "Prompt tokens found.")
        self.num_preemptions = self._counter("num_preemptions", "Requests that gave their pages back to go on later.")
        self.num_drafts = self._counter("spec_decode_num_drafts", "Target passes over at least one draft.")
        self.num_draft_tokens = self._counter("spec_decode_num_draft_tokens", "Drafts that were verified.")
        self.num_accepted_tokens = self._counter("spec_decode_num_accepted_tokens", "Drafts that stood.")
        self._accepted_per_position = self._labelled(
            "spec_decode_num_accepted_tokens_per_pos", "The same, by place in the draft.", "position"
        )
        self._successes = self._labelled("request_success", "Requests that ended, by reason.", "finished_reason")
        self.time_to_first_token = self._histogram("time_to_first_token_seconds", "From arrival.", _SECONDS)
        self.inter_token_latency = self._histogram("inter_token_latency_seconds", "Time per token.", _SECONDS)
        self.time_per_output_token = self._histogram(
            "request_time_per_output_token_seconds", "(last - first token) / (tokens - 1) of a request.", _SECONDS
        )
        self.e2e_latency = self._histogram("e2e_request_latency_seconds", "From arrival to end.", _SECONDS)
        self.queue_time = self._histogram("request_queue_time_seconds", "From arrival to admission.", _SECONDS)
        self.request_prompt_tokens = self._histogram("request_prompt_tokens", "Of a request.", _TOKENS)
        self.request_generation_tokens = self._histogram("request_generation_tokens", "Of a request.", _TOKENS)

    def accepted_at(self, position: int) -> Counter:
        return self._accepted_per_position.labels(*self._values, str(position))

    def ended(self, reason: str) -> Counter:
        return self._successes.labels(*self._values, reason)

    def exposition(self) -> bytes:
        """Prometheus' text format, without the creation times, which scrapers of names take for values."""
        lines = generate_latest(self._registry).splitlines(keepends=True)
        return b"".join(line for line in lines if b"_created" not in line)

    def _gauge(self, name: str, help_text: str, value: Callable[[], float]) -> None:
        gauge = Gauge(f"vllm:{name}", help_text, _LABELS, registry=self._registry)
        gauge.labels(*self._values).set_function(value)

    def _counter(self, name: str, help_text: str) -> Counter:
        return Counter(f"vllm:{name}", help_text, _LABELS, registry=self._registry).labels(*self._values)

    def _labelled(self, name: str, help_text: str, label: str) -> Counter:
        return Counter(f"vllm:{name}", help_text, (*_LABELS, label), registry=self._registry)

    def _histogram(self, name: str, help_text: str, buckets: Sequence[float]) -> Histogram:
        histogram = Histogram(f"vllm:{name}", help_text, _LABELS, buckets=buckets, registry=self._registry)
        return histogram.labels(*self._values)


class RequestMeter:
    """Reports one request to the metrics, step by step."""

    def __init__(self, metrics: Metrics, request: Request) -> None:
        self._metrics = metrics
        self._request = request
        self._arrived = time.monotonic()
        self._first: float | None = None
        self._last = self._arrived
        self._tokens = 0
        self._counted = (0, 0, 0)  # drafts, draft tokens, accepted tokens
        self._accepted: list[int] = []
        self._ended = False

    def step(self, output: StepOutput) -> None:
        now, metrics = time.monotonic(), self._metrics
        count = len(output.token_ids)
        if count and self._first is None:
            self._first = now
            self._first_token(now)
        elif count:
            for _ in range(count):
                metrics.inter_token_latency.observe((now - self._last) / count)
        self._last = now
        self._tokens += count
        metrics.generation_tokens.inc(count)
        self._speculation()
        if output.finish_reason is not None:
            self.end(output.finish_reason)

    def end(self, reason: str) -> None:
        """Once; "abort" for a request that nobody reads any more."""
        if self._ended:
            return
        self._ended = True
        metrics = self._metrics
        self._speculation()
        metrics.ended(reason).inc()
        metrics.num_preemptions.inc(self._request.num_preemptions)
        metrics.e2e_latency.observe(time.monotonic() - self._arrived)
        metrics.request_prompt_tokens.observe(self._request.prompt_length)
        metrics.request_generation_tokens.observe(self._tokens)
        if self._first is not None and self._tokens > 1:
            metrics.time_per_output_token.observe((self._last - self._first) / (self._tokens - 1))

    def _first_token(self, now: float) -> None:
        metrics, request = self._metrics, self._request
        metrics.time_to_first_token.observe(now - self._arrived)
        if request.admitted_at is not None:
            metrics.queue_time.observe(max(0.0, request.admitted_at - self._arrived))
        metrics.prompt_tokens.inc(request.prompt_length)
        metrics.prefix_cache_queries.inc(request.prompt_length)
        metrics.prefix_cache_hits.inc(request.num_cached or 0)

    def _speculation(self) -> None:
        """What the request's own counts gained. The engine may be counting: what is missed now comes next time."""
        statistics, metrics = self._request.statistics, self._metrics
        now = (statistics.num_drafts, statistics.num_draft_tokens, statistics.num_accepted_tokens)
        counters = (metrics.num_drafts, metrics.num_draft_tokens, metrics.num_accepted_tokens)
        for counter, new, old in zip(counters, now, self._counted, strict=True):
            counter.inc(new - old)
        self._counted = now
        accepted = list(statistics.accepted_per_position)
        self._accepted.extend([0] * (len(accepted) - len(self._accepted)))
        for position, (new, old) in enumerate(zip(accepted, self._accepted, strict=True)):
            metrics.accepted_at(position).inc(new - old)
        self._accepted = accepted
