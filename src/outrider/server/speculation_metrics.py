"""What the depth controller believes and what became of its drafts, as Prometheus metrics.

vLLM has no such metrics, so these have a prefix of their own: `outrider:spec_decode_...`. They are read from the engine
at every scrape, and are absent where they mean nothing: all without speculation, the controller's at a fixed depth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from outrider.engine.async_engine import AsyncEngine

_PREFIX = "outrider:spec_decode_"

Values = dict[tuple[str, ...], float]  # by the values of the labels


class SpeculationCollector(Collector):
    """Asks the engine when it is asked."""

    def __init__(self, engine: AsyncEngine, labels: Mapping[str, str]) -> None:
        """labels: name and value of those that every metric has."""
        self._engine = engine
        self._names = list(labels)
        self._values = list(labels.values())

    def collect(self) -> Iterator[Metric]:
        yield from self._acceptance()
        yield from self._controller()

    def _acceptance(self) -> Iterator[Metric]:
        report = self._engine.acceptance_report
        if report is None:
            return
        depths: Values = {(str(depth),): float(count) for depth, count in enumerate(report.depth_histogram)}
        yield self._counter("passes", "Target passes of a request, by its drafts.", depths, "drafts")
        for name, help_text in (("drafted", "Drafts verified"), ("accepted", "Drafts that stood")):
            counts: Values = {
                ("+Inf" if context.longest is None else str(context.longest), str(position)): float(count)
                for context in report.contexts
                for position, count in enumerate(getattr(context, name))
            }
            full = f"{help_text}, by the longest context of the bucket and the place in the draft."
            yield self._counter(f"context_{name}", full, counts, "context", "position")
        alarms: Values = {("too_low",): float(report.too_low), ("looping",): float(report.looping)}
        yield self._gauge("acceptance_alarm", "1: acceptance cannot be right (see the log).", alarms, "kind")
        if report.self_check is not None:
            found: Values = {(): report.self_check}
            yield self._gauge("self_check_acceptance", "First drafts that stood in the check at the start.", found)

    def _controller(self) -> Iterator[Metric]:
        report = self._engine.depth_report
        if report is None:
            return
        yield self._gauge("speculating", "1: drafting, 0: turned off.", {(): float(report.speculating)})
        yield self._counter("turns", "How often speculation turned itself off or on.", {(): float(report.num_turns)})
        rates: Values = {
            ("predicted",): report.predicted_rate,
            ("realised",): report.realised_rate,
            ("plain",): report.off_rate,
        }
        yield self._gauge("tokens_per_second", "Of the next step, the last 64 speculative ones, plain.", rates, "kind")
        arms: Values = {("plain" if arm == 0 else str(arm),): ratio for arm, ratio in enumerate(report.table_ratios)}
        help_text = "Measured over predicted cost of a target pass, by depth."
        yield self._gauge("cost_ratio", help_text, arms | {("all",): report.drift}, "arm")
        estimates: Values = {(str(position),): share for position, share in enumerate(report.acceptance)}
        yield self._gauge("expected_acceptance", "Given that the drafts before stand.", estimates, "position")

    def _gauge(self, name: str, help_text: str, values: Values, *labels: str) -> Metric:
        family = GaugeMetricFamily(_PREFIX + name, help_text, labels=[*self._names, *labels])
        for own, value in values.items():
            family.add_metric([*self._values, *own], value)
        return family

    def _counter(self, name: str, help_text: str, values: Values, *labels: str) -> Metric:
        family = CounterMetricFamily(_PREFIX + name, help_text, labels=[*self._names, *labels])
        for own, value in values.items():
            family.add_metric([*self._values, *own], value)
        return family
