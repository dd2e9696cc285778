"""Requests straight into an engine of this process: no HTTP, no tokenizer, nothing else that takes time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from outrider.bench.arrivals import arrival_times
from outrider.bench.window import DraftCounts, Load, RequestTiming, Window
from outrider.engine.engine import Engine
from outrider.engine.request import Request, StepOutput
from outrider.sampling.params import SamplingParams


@dataclass
class _Clock:
    sent: float
    first_token: float = 0.0
    last_token: float = 0.0

    def saw(self, output: StepOutput, now: float) -> None:
        self.first_token = self.first_token or now
        self.last_token = now


def run_window(
    engine: Engine, prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams], load: Load, *, seed: int
) -> Window:
    """Runs one request a prompt, offered as `load` says; seed: of the arrival times. Raises ConfigError.

    With a concurrency the next request is added in the step after one ended.
    """
    start = time.perf_counter()
    due = deque(zip(prompts, params, arrival_times(load, len(prompts), seed), strict=True))
    clocks: dict[Request, _Clock] = {}
    most = load.concurrency or len(prompts)
    running = 0
    while due or running:
        while due and running < most and start + due[0][2] <= time.perf_counter():
            prompt, own, offset = due.popleft()
            sent = start + offset if load.request_rate is not None else time.perf_counter()
            clocks[engine.add_request(prompt, own)] = _Clock(sent)
            running += 1
        if not running:
            time.sleep(max(0.0, start + due[0][2] - time.perf_counter()))
            continue
        outputs = engine.step()
        now = time.perf_counter()
        for output in outputs:
            clocks[output.request].saw(output, now)
            running -= output.finish_reason is not None
    return Window(
        requests=tuple(_timing(request, clock) for request, clock in clocks.items()),
        seconds=max(clock.last_token for clock in clocks.values()) - start,
        drafts=_drafts(list(clocks)),
        cached_prompt_tokens=sum(request.num_cached or 0 for request in clocks),
    )


def _timing(request: Request, clock: _Clock) -> RequestTiming:
    output = tuple(request.output_token_ids)
    return RequestTiming(
        sent=clock.sent,
        first_token=clock.first_token,
        last_token=clock.last_token,
        prompt_tokens=request.prompt_length,
        output_tokens=len(output),
        output=output,
        error=request.error,
    )


def _drafts(requests: Sequence[Request]) -> DraftCounts:
    statistics = [request.statistics for request in requests]
    per_position = zip_longest(*(each.accepted_per_position for each in statistics), fillvalue=0)
    return DraftCounts(
        sum(each.num_drafts for each in statistics),
        sum(each.num_draft_tokens for each in statistics),
        sum(each.num_accepted_tokens for each in statistics),
        tuple(map(sum, per_position)),
    )
