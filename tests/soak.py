"""Thousands of short requests through one engine: every block comes back, memory stays flat, nothing hangs.

    python -m tests.soak --requests 5000 --concurrent 64

Mixed lengths, shared prefixes, stop strings, aborts, preemption and MTP. When nothing is published for --patience
seconds, the stacks of all threads are printed and the process ends with status 1. The last line of output is JSON.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import os
import random
import sys
import time
import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from tests.histories import VOCAB, tiny_model

from outrider.config import EngineConfig, SpeculativeConfig
from outrider.engine.engine import Engine
from outrider.engine.request import Request
from outrider.sampling.params import SamplingParams

MIB = 1 << 20
WARM_UP = 0.2  # share of the requests after which memory is measured for the first time
GROWTH_LIMIT = 16 * MIB  # from then to the end: some 4 KiB kept of each of 4,000 requests would exceed it
STDERR = 2  # the descriptor: sys.stderr may be anything
STATM = Path("/proc/self/statm")


@dataclass(frozen=True)
class Report:
    requests: int
    concurrent: int
    seconds: float
    steps: int
    tokens: int
    accepted_drafts: int
    preemptions: int
    prefix_hits: int
    ended: dict[str, int]
    free_blocks: tuple[int, int]  # window, entry pages; the same at the end as at the start
    warm_resident_bytes: int
    last_resident_bytes: int
    requests_alive: int  # that somebody still holds


class Soak:
    """One engine, and a crowd that is filled up as its members leave."""

    def __init__(self, requests: int, concurrent: int, seed: int) -> None:
        self.requests = requests
        self.concurrent = concurrent
        self._rng = random.Random(seed)
        self._shared = [self._rng.randrange(2, VOCAB) for _ in range(150)]
        options = EngineConfig(
            max_model_len=200,
            max_num_seqs=concurrent,
            max_num_batched_tokens=8 * concurrent,
            # less than one page a sequence, and some need two: now and then the pool is short
            window_pages=concurrent * 3 // 8 + 4,
            entry_pages=concurrent * 3 // 8 + 4,
        )
        self.engine = Engine(
            *tiny_model(),
            SpeculativeConfig(method="mtp", num_speculative_tokens=2, adaptive=False),
            options,
            detokenizer=lambda: _spell,
        )
        self._live: list[Request] = []
        self._born: weakref.WeakSet[Request] = weakref.WeakSet()
        self._happened: Counter[str] = Counter()
        self._ended: Counter[str] = Counter()

    def run(self, patience: float) -> Report:
        """Raises AssertionError when blocks, requests or memory are lost. A hang ends the process."""
        started = time.monotonic()
        free = self._free()
        added = steps = warm_bytes = 0
        faulthandler.dump_traceback_later(patience, exit=True, file=STDERR)
        try:
            while added < self.requests or self._live:
                # some wait beyond those that run
                while added < self.requests and len(self._live) < self.concurrent + self.concurrent // 8:
                    self._live.append(self._add())
                    added += 1
                if self._step():  # the watchdog starts anew
                    faulthandler.dump_traceback_later(patience, exit=True, file=STDERR)
                steps += 1
                if warm_bytes == 0 and added >= WARM_UP * self.requests:
                    warm_bytes = resident_bytes()
        finally:
            faulthandler.cancel_dump_traceback_later()
        assert self._free() == free, f"free blocks: {self._free()} at the end, {free} at the start"
        assert not self.engine.has_unfinished
        last_bytes = resident_bytes()
        gc.collect()
        report = Report(
            requests=added,
            concurrent=self.concurrent,
            seconds=round(time.monotonic() - started, 1),
            steps=steps,
            tokens=self._happened["tokens"],
            accepted_drafts=self._happened["accepted drafts"],
            preemptions=self._happened["preemptions"],
            prefix_hits=self._happened["prefix hits"],
            ended=dict(sorted(self._ended.items())),
            free_blocks=free,
            warm_resident_bytes=warm_bytes,
            last_resident_bytes=last_bytes,
            requests_alive=len(self._born),
        )
        assert report.requests_alive == 0, f"{report.requests_alive} requests are still held by somebody"
        grown = last_bytes - warm_bytes
        assert grown < GROWTH_LIMIT, f"resident memory grew by {grown / MIB:.1f} MiB after the warm-up"
        return report

    def _add(self) -> Request:
        rng = self._rng
        length = rng.choice(
            [rng.randint(1, 24), rng.randint(1, 24), rng.randint(1, 24), rng.choice([118, 124, 131, 140])]
        )
        shared = rng.choice([0, length])
        prompt = [*self._shared[:shared], *(rng.randrange(2, VOCAB) for _ in range(length))][:length]
        params = SamplingParams(
            temperature=rng.choice([0.0, 0.8]),
            seed=rng.getrandbits(64),
            max_tokens=rng.choice([1, 2, 4, 8, 12] if length < 100 else [8, 16, 24]),
            stop=(_spell([rng.randrange(VOCAB), rng.randrange(VOCAB)])[1:3],) if rng.random() < 0.5 else (),
            ignore_eos=rng.random() < 0.5,
            frequency_penalty=rng.choice([0.0, 0.0, 0.5]),
            logprobs=rng.choice([None, None, 2]),
        )
        request = self.engine.add_request(prompt, params, priority=rng.choice([0, 0, 1]))
        self._born.add(request)
        return request

    def _step(self) -> bool:
        """Whether anything was published."""
        if self._rng.random() < 0.3:
            self.engine.abort(self._rng.choice(self._live))
        outputs = self.engine.step()
        self._happened["tokens"] += sum(len(output.token_ids) for output in outputs)
        for request in [r for r in self._live if r.finish_reason is not None]:
            self._live.remove(request)
            assert request.finish_reason != "error", request.error
            by_string = request.stop_rules.text_limit is not None
            self._ended["stop string" if by_string else str(request.finish_reason)] += 1
            self._happened["accepted drafts"] += request.statistics.num_accepted_tokens
            self._happened["preemptions"] += request.num_preemptions
            self._happened["prefix hits"] += bool(request.num_cached)
        return bool(outputs)

    def _free(self) -> tuple[int, int]:
        return self.engine.cache.window_pool.free_count, self.engine.cache.entry_pool.free_count


def _spell(token_ids: Sequence[int]) -> str:
    """Two letters a token, so that a string of two letters may lie across two of them."""
    return "".join(chr(ord("a") + token // 8) + chr(ord("a") + token % 8) for token in token_ids)


def resident_bytes() -> int:
    """Of this process, now. Linux only."""
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--concurrent", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--patience", type=float, default=60.0, help="seconds without a token that count as a hang")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    report = Soak(options.requests, options.concurrent, options.seed).run(options.patience)
    print(json.dumps(asdict(report)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
