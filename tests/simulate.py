"""Histories against the engine: whatever else runs, each request's tokens are those of plain decode, alone.

    python -m tests.simulate --histories 10000 --seed-start 0 --processes 4

A failure prints the seed of its history; `--histories 1 --seed-start S` repeats it. The last line is JSON: how many
histories, the seeds that failed, seconds, and what happened in them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from tests.engine.drafters import BatchedOracle
from tests.engine.random_depths import RandomDepths
from tests.histories import VOCAB, Ask, History, make_history, tiny_model

from outrider.cache.paged_cache import PagedCache
from outrider.config import EngineConfig, SpeculativeConfig
from outrider.engine.engine import Engine
from outrider.engine.request import Request, Status
from outrider.engine.scheduler import Work
from outrider.sampling.logprobs import TokenLogprobs
from outrider.speculative.drafter import MtpDrafter

MOST_STEPS = 5000  # of a history: more means that it hangs


@dataclass(frozen=True)
class Answer:
    """What plain decode says to one request."""

    token_ids: list[int]  # output
    finish_reason: str | None
    logprobs: list[TokenLogprobs]
    prompt_logprobs: list[TokenLogprobs | None] | None


def plain_answer(ask: Ask, context: int) -> Answer:
    """The request alone, without speculation and without prefix reuse. What was answered once is kept."""
    key = repr((ask.prompt, ask.params, ask.mask, context))
    if key not in _answers:
        _answers[key] = _answer(ask, context)
    return _answers[key]


_answers: dict[str, Answer] = {}


def _answer(ask: Ask, context: int) -> Answer:
    options = EngineConfig(max_model_len=context, max_num_seqs=1, enable_prefix_caching=False)
    engine = Engine(tiny_model().trunk, engine_config=options)
    request = engine.add_request(ask.prompt, ask.params, mask=ask.new_mask())
    logprobs: list[TokenLogprobs] = []
    while request.finish_reason is None:
        for output in engine.step():
            logprobs += output.logprobs or ()
    return Answer(request.output_token_ids, request.finish_reason, logprobs, request.prompt_logprobs)


def with_stop(ask: Ask, answer: Answer, context: int) -> tuple[Ask, Answer]:
    """Makes an output token of plain decode the stop token; the ask with it and what plain decode says then.

    What stands in front of a stop token does not depend on it, unless `min_tokens` bans it for a while.
    """
    if ask.stop_at is None or not answer.token_ids:
        return ask, answer
    stop = answer.token_ids[ask.stop_at % len(answer.token_ids)]
    ask = replace(ask, params=replace(ask.params, stop_token_ids=(stop,)))
    if ask.params.min_tokens:
        return ask, plain_answer(ask, context)
    end = answer.token_ids.index(stop) + 1
    return ask, replace(answer, token_ids=answer.token_ids[:end], finish_reason="stop", logprobs=answer.logprobs[:end])


class Simulation:
    """One history: adds, steps, aborts and checks after every step."""

    def __init__(self, history: History) -> None:
        self.history = history
        context = history.options.max_model_len
        assert context is not None
        self.asks: list[Ask] = []
        self.answers: list[Answer] = []
        for asked in history.asks:
            ask, answer = with_stop(asked, plain_answer(asked, context), context)
            self.asks.append(ask)
            self.answers.append(answer)
        model = tiny_model()
        speculative = None
        if history.depth > 0:
            speculative = SpeculativeConfig(method="mtp", num_speculative_tokens=history.depth, adaptive=False)
        self.engine = Engine(*model, speculative, history.options)
        if history.random_depths:
            self.engine.runner.depth_policy = RandomDepths(history.seed)
        self.oracle: BatchedOracle | None = None
        if isinstance(self.engine.runner.drafter, MtpDrafter):
            self.oracle = BatchedOracle(self.engine.runner.drafter, VOCAB)
            self.engine.runner.drafter = self.oracle
        self.requests: list[Request | None] = [None] * len(self.asks)
        self.published: list[list[int]] = [[] for _ in self.asks]
        self.logprobs: list[list[TokenLogprobs]] = [[] for _ in self.asks]
        self.happened: Counter[str] = Counter()
        self._watch_schedule()

    def run(self) -> Counter[str]:
        """Raises AssertionError when anything differs; returns what happened, for statistics."""
        step = 0
        while step < MOST_STEPS:
            self._arrivals_and_aborts(step)
            if not self.engine.has_unfinished and all(self.requests):
                break
            self._step()
            step += 1
        assert step < MOST_STEPS, "the history does not end"
        for index in range(len(self.asks)):
            self._check_answer(index)
        self._check_pools()
        assert not self.engine._requests
        assert not self.engine.scheduler.running
        assert not self.engine.scheduler.waiting
        for pool in (self.engine.cache.window_pool, self.engine.cache.entry_pool):
            assert pool.free_count == pool.count - 1, f"{pool.name} pages were lost"
            assert not any(pool._holders)
        self.happened["steps"] += step
        self.happened["requests"] += len(self.asks)
        return self.happened

    def _arrivals_and_aborts(self, step: int) -> None:
        for index, ask in enumerate(self.asks):
            if ask.arrives == step:
                follows = None if ask.follows is None else self.requests[ask.follows]
                request = self.engine.add_request(
                    ask.prompt, ask.params, priority=ask.priority, speculation=ask.speculation, mask=ask.new_mask(),
                    follows=follows,
                )  # fmt: skip
                self.requests[index] = request
                if self.oracle is not None and ask.right is not None:
                    truth = [*ask.prompt, *self.answers[index].token_ids]
                    self.oracle.know(request.pages, truth, ask.right)
        for index, ask in enumerate(self.asks):
            request_or_none = self.requests[index]
            if ask.aborted == step and request_or_none is not None and request_or_none.finish_reason is None:
                self.engine.abort(request_or_none)
                self.happened["aborts"] += 1

    def _step(self) -> None:
        for output in self.engine.step():
            index = self.requests.index(output.request)
            self.published[index] += output.token_ids
            self.logprobs[index] += output.logprobs or ()
            assert output.finish_reason == output.request.finish_reason
        for request in self.requests:
            if request is not None and request.finish_reason is None:
                assert request.status is not Status.FINISHED
                assert request.num_computed < len(request.token_ids)
        self._check_pools()
        if self.history.poison:
            poison_free_pages(self.engine.cache)

    def _watch_schedule(self) -> None:
        """Every step is checked against the limits before it runs."""
        scheduler, options = self.engine.scheduler, self.history.options
        schedule = scheduler.schedule

        def checked() -> list[Work]:
            work = schedule()
            assert work or not self.engine.has_unfinished, "nothing was scheduled although requests wait"
            assert sum(item.count for item in work) <= options.max_num_batched_tokens, "more rows than the budget"
            assert len(scheduler.running) <= options.max_num_seqs
            assert all(item.count > 0 and item.request in scheduler.running for item in work)
            assert scheduler.running == sorted(scheduler.running, key=lambda r: r.order)
            return work

        scheduler.schedule = checked  # type: ignore[method-assign]

    def _check_answer(self, index: int) -> None:
        request, answer, ask = self.requests[index], self.answers[index], self.asks[index]
        assert request is not None
        found = request.output_token_ids
        who = f"request {index} (prompt {len(ask.prompt)}, {request.num_preemptions} preemptions, {ask.params})"
        assert self.published[index] == found, f"{who}: published {self.published[index]}, kept {found}"
        assert len(request.token_ids) <= request.max_length
        self.happened["preemptions"] += request.num_preemptions
        self.happened["hits"] += bool(request.num_cached)
        self.happened["accepted drafts"] += request.statistics.num_accepted_tokens
        self.happened["refused drafts"] += request.statistics.num_draft_tokens - request.statistics.num_accepted_tokens
        self.happened[f"ended by {request.finish_reason}"] += 1
        logprobs = answer.logprobs
        if request.finish_reason == "abort":
            assert found == answer.token_ids[: len(found)], f"{who}: {found}, not a prefix of {answer.token_ids}"
            logprobs = logprobs[: len(found)]
        else:
            assert found == answer.token_ids, f"{who}: {found}, plain {answer.token_ids}"
            assert request.finish_reason == answer.finish_reason, f"{who}: {request.finish_reason}"
            assert request.prompt_logprobs == answer.prompt_logprobs, f"{who}: prompt_logprobs differ"
        assert self.logprobs[index] == logprobs, f"{who}: logprobs differ"

    def _check_pools(self) -> None:
        """Free and held pages are all pages; nobody holds a page without a request that lives."""
        live = [r.pages for r in self.requests if r is not None and r.status is Status.RUNNING]
        for pool, lists in (
            (self.engine.cache.window_pool, [pages.window for pages in live]),
            (self.engine.cache.entry_pool, [pages.entries for pages in live]),
        ):
            held = Counter(page for pages in lists for page in pages if page != 0)
            assert pool.free_count + len(held) == pool.count - 1, f"{pool.name} pages do not add up"
            assert all(pool._holders[page] == held[page] for page in range(pool.count))


def poison_free_pages(cache: PagedCache) -> None:
    """Fills pages that are empty with NaN: whoever reads one shows it."""
    layers = [*cache.layers, *([cache.drafter] if cache.drafter else [])]
    for layer in layers:
        for pool, tensors in (
            (cache.window_pool, (layer.window, layer.partial, layer.index_partial)),
            (cache.entry_pool, (layer.entries, layer.index_keys)),
        ):
            for tensor in tensors:
                if tensor is not None and pool._free:
                    tensor.view(pool.count, -1)[pool._free] = float("nan")


def simulate(seed: int) -> tuple[int, str | None, Counter[str]]:
    """(seed, what went wrong or None, what happened)"""
    torch.set_num_threads(1)
    history = make_history(seed)
    try:
        return seed, None, Simulation(history).run()
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        return seed, f"{history.describe()}\n    {last.name}:{last.lineno}: {text}", Counter()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulate", description=__doc__)
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--seed-start", type=int, default=0, help="seed of the first history; the others follow it")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args(arguments)
    seeds = range(options.seed_start, options.seed_start + options.histories)
    started = time.monotonic()
    failed: list[int] = []
    total: Counter[str] = Counter()
    with contextlib.ExitStack() as stack:
        results: Iterable[tuple[int, str | None, Counter[str]]] = map(simulate, seeds)
        if options.processes > 1:
            pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(options.processes))
            results = pool.imap_unordered(simulate, seeds, chunksize=4)
        for done, (seed, wrong, happened) in enumerate(results, 1):
            total += happened
            if wrong is not None:
                failed.append(seed)
                again = f"python -m tests.simulate --histories 1 --seed-start {seed}"
                print(f"FAILED {wrong}\n    repeat: {again}", flush=True)
            if done % 200 == 0:
                print(f"{done} histories, {len(failed)} failed, {time.monotonic() - started:.0f} s", flush=True)
    summary = {
        "histories": options.histories,
        "seed_start": options.seed_start,
        "failed_seeds": sorted(failed),
        "seconds": round(time.monotonic() - started, 1),
        "happened": dict(sorted(total.items())),
    }
    print(json.dumps(summary))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
