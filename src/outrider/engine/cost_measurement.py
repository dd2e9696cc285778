"""Measures what steps cost on this machine, with the engine's own model, drafter and cache, when the engine starts."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean, median
from time import perf_counter

import torch

from outrider.cache.batch import RequestRows
from outrider.cache.paged_cache import PagedCache
from outrider.cache.pages import RequestPages
from outrider.model.transformer import Transformer
from outrider.sampling.params import SamplingParams
from outrider.sampling.sampler import Sampler
from outrider.speculative.cost_tables import CostTables, MeasuredCosts
from outrider.speculative.drafter import DraftJob, MtpDrafter

log = logging.getLogger("outrider")

SECONDS = 2.0  # that an engine may spend on this; larger batches are left to extrapolation when they are over
_ROUNDS = 5
_POSITION = 64  # of the rows; what a longer context costs, steps tell

Point = tuple[str, int, int]  # kind of pass, requests, depth


def measure_costs(
    model: Transformer,
    drafter: MtpDrafter,
    cache: PagedCache,
    *,
    max_depth: int,
    max_num_seqs: int,
    max_rows: int,
    max_model_len: int,
    seconds: float = SECONDS,
    clock: Callable[[], float] = perf_counter,
) -> CostTables:
    """Costs at 1, 2, 4, ... requests and every depth, with greedy draws, in 5 rounds over all of these points.

    The sizes are those of which 5 rounds fit into `seconds`; one request is always measured. The first pass of each
    kind, which may compile, counts for nothing. Takes a page or two of the cache and gives them back; no request may be
    running.
    """
    bench = _Bench(model, drafter, cache, min(_POSITION, max(max_model_len - max_depth - 3, 1)), max_depth)
    rounds: list[dict[Point, float]] = [{} for _ in range(_ROUNDS)]
    try:
        bench.run("target", 1, max_depth)
        bench.run("draft", 1, max_depth)
        started = clock()
        for requests in _request_counts(max_num_seqs):
            begun = clock()
            _time(bench, _points(requests, max_depth, max_rows), rounds[0], clock)
            ended = clock()
            if (ended - started) + (ended - begun) > seconds / _ROUNDS:  # the next size takes longer than this one
                break
        points = list(rounds[0])
        for number in range(1, _ROUNDS):
            _time(bench, points if number % 2 == 0 else points[::-1], rounds[number], clock)
    finally:
        bench.close()
    times = comparable_times(rounds)
    measured = _measured({point: 1e3 * seconds for point, seconds in times.items()}, max_depth)
    log.info(
        "cost tables: %d points up to %d requests in %.1f s; one request: a plain step %.1f ms, with %d drafts %.1f ms",
        len(times),
        max(measured.decode_ms),
        clock() - started,
        measured.decode_ms[1],
        max_depth,
        measured.verify_ms.get(1 + max_depth, measured.verify_ms[max(measured.verify_ms)])
        + measured.draft_ms[max_depth][1],
    )
    return CostTables(measured, max_num_seqs, max_rows)


def comparable_times(rounds: Sequence[Mapping[Point, float]]) -> dict[Point, float]:
    """Seconds for every point, such that those of as many requests compare even where the machine was busy at times.

    Whatever else the machine does for a while meets all points of one size in a round alike, since they follow each
    other. So what counts is a point's part of that time, the median of these over the rounds; and the quickest round of
    each size, which was disturbed least, says how long all of it is.
    """
    times = {}
    for size in dict.fromkeys(requests for _, requests, _ in rounds[0]):
        points = [point for point in rounds[0] if point[1] == size]
        lengths = [math.exp(fmean(math.log(max(own[point], 1e-9)) for point in points)) for own in rounds]
        for point in points:
            parts = (own[point] / length for own, length in zip(rounds, lengths, strict=True))
            times[point] = median(parts) * min(lengths)
    return times


def _time(bench: _Bench, points: Iterable[Point], times: dict[Point, float], clock: Callable[[], float]) -> None:
    for point in points:
        begin = clock()
        bench.run(*point)
        times[point] = clock() - begin


def _request_counts(most: int) -> Iterator[int]:
    count = 1
    while count < most:
        yield count
        count *= 2
    yield most


def _points(requests: int, max_depth: int, max_rows: int) -> Iterator[Point]:
    for depth in range(max_depth + 1):
        if requests * (1 + depth) <= max_rows:
            yield "target", requests, depth
        yield "draft", requests, depth


def _measured(times: dict[Point, float], max_depth: int) -> MeasuredCosts:
    decode: dict[int, float] = {}
    verify: dict[int, list[float]] = {}
    draft: list[dict[int, float]] = [{} for _ in range(max_depth + 1)]
    for (kind, requests, depth), ms in times.items():
        if kind == "draft":
            draft[depth][requests] = ms
        elif depth == 0:
            decode[requests] = ms
        if kind == "target" and (depth > 0 or requests == 1):
            verify.setdefault(requests * (1 + depth), []).append(ms)
    return MeasuredCosts(decode, {rows: median(found) for rows, found in verify.items()}, draft)


class _Bench:
    """Passes over rows of one set of pages, which every pretended request shares."""

    def __init__(
        self, model: Transformer, drafter: MtpDrafter, cache: PagedCache, position: int, max_depth: int
    ) -> None:
        self._model, self._drafter, self._cache = model, drafter, cache
        self._position = position
        self._pages: RequestPages = cache.new_request()
        self._pages.reserve(position + max_depth + 3)
        self._sampler = Sampler(SamplingParams(temperature=0.0), seed=0)
        self._rng = random.Random(0)
        self._context = [0] * position

    def close(self) -> None:
        self._pages.release()

    @torch.inference_mode()
    def run(self, kind: str, requests: int, depth: int) -> None:
        (self._target if kind == "target" else self._draft)(requests, depth)

    def _target(self, requests: int, depth: int) -> None:
        rows = [RequestRows(self._pages, self._position, 1 + depth) for _ in range(requests)]
        ids = torch.tensor([self._token() for _ in range(requests * (1 + depth))])
        for streams in self._model.forward(ids, rows, self._cache).split(1 + depth):
            self._sampler.verify(self._model.logits(streams), self._context, [0] * depth)

    def _draft(self, requests: int, depth: int) -> None:
        config = self._model.config
        jobs = [
            DraftJob(
                pages=self._pages,
                start=self._position,
                token_ids=(self._token(), self._token()),  # a pass commits about two
                previous_streams=torch.randn(2, config.hc_mult, config.hidden_size),
                first_position=1,
                depth=depth,
                draw=lambda logits, drafts: self._sampler.draft(logits, self._context, drafts),
            )
            for _ in range(requests)
        ]
        self._drafter.run(jobs)

    def _token(self) -> int:
        return self._rng.randrange(self._model.config.vocab_size)
