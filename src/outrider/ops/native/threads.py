"""Spreading one kernel over torch's number of threads; only for work that is worth waking a thread.

Within `ops.kernel_threads()`, torch's own operations take one thread: those of a decode step are too small for more,
and torch's workers, which spin for a while after each, would keep the cores from the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import lru_cache

import torch

# Waking a thread costs about 50 us; a core multiplies and adds some 10^4 times a microsecond.
WORTH_A_THREAD = 4_000_000


_taken: int | None = None  # torch's number of threads outside of it


@contextmanager
def give_kernels_the_threads() -> Iterator[None]:
    """Gives torch's threads to the kernels alone. Restores torch's number at the end; may be nested."""
    global _taken
    outer, threads = _taken, torch.get_num_threads()
    _taken = threads if outer is None else outer
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        _taken = outer


def _num_threads() -> int:
    return torch.get_num_threads() if _taken is None else _taken


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
    threads = min(_num_threads(), work // WORTH_A_THREAD, -(-count // multiple))
    if threads < 2:
        run(0, count)
        return
    size = -(-count // (threads * multiple)) * multiple
    futures = [_pool(_num_threads()).submit(run, i, min(i + size, count)) for i in range(size, count, size)]
    try:
        run(0, size)
    finally:
        wait(futures)  # they write into memory that the caller owns
    for future in futures:
        future.result()
