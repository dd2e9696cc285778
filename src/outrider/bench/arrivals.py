"""When requests come."""

from __future__ import annotations

from random import Random

from outrider.bench.window import Load


def arrival_times(load: Load, count: int, seed: int) -> list[float]:
    """Seconds from the start: of a Poisson process at `request_rate`, the first at once; all 0 with a concurrency,
    where a request waits for a place and not for its time."""
    if load.request_rate is None:
        return [0.0] * count
    rng, now, times = Random(seed), 0.0, []
    for _ in range(count):
        times.append(now)
        now += rng.expovariate(load.request_rate)
    return times
