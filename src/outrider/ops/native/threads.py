"""Spreading one kernel over torch's number of threads; only for work that is worth waking a thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import lru_cache

import torch

# Waking a thread costs about 50 us; a core multiplies and adds some 10^4 times a microsecond.
WORTH_A_THREAD = 4_000_000


@lru_cache(maxsize=1)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="outrider-kernel")


def spread(run: Callable[[int, int], object], count: int, work: int, multiple: int = 1) -> None:
    """run(start, end) over parts of range(count) that start at multiples of `multiple`; `work` in multiplications.

    `run` must release the GIL and write disjoint results, the same ones wherever the parts are cut.
    """
    if work < 2 * WORTH_A_THREAD:
        run(0, count)
        return
    threads = min(torch.get_num_threads(), work // WORTH_A_THREAD, -(-count // multiple))
    if threads < 2:
        run(0, count)
        return
    size = -(-count // (threads * multiple)) * multiple
    futures = [_pool(torch.get_num_threads()).submit(run, i, min(i + size, count)) for i in range(size, count, size)]
    try:
        run(0, size)
    finally:
        wait(futures)  # they write into memory that the caller owns
    for future in futures:
        future.result()
