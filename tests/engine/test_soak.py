"""A short share of the soak; `python -m tests.soak --requests 5000 --concurrent 64` runs the long one."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.soak import STATM, Soak

_HANGS = """
from tests.soak import Soak
soak = Soak(requests=4, concurrent=2, seed=0)
soak.engine.abort = lambda request: None
soak.engine.scheduler.schedule = lambda: []  # steps go on, nothing comes of them
soak.run(patience=0.5)
"""

needs_statm = pytest.mark.skipif(not STATM.exists(), reason="resident memory is read from /proc/self/statm")


@needs_statm
def test_a_crowd_leaves_nothing_behind() -> None:
    report = Soak(requests=150, concurrent=16, seed=1).run(patience=60)
    assert report.requests == 150
    assert set(report.ended) == {"abort", "length", "stop", "stop string"}
    assert min(report.preemptions, report.prefix_hits, report.accepted_drafts) > 0


@needs_statm
def test_lost_blocks_are_noticed() -> None:
    soak = Soak(requests=20, concurrent=4, seed=0)
    pool, give_back = soak.engine.cache.window_pool, soak.engine.cache.window_pool.give_back
    calls = iter(range(10_000))

    def forgetful(page: int) -> None:
        if next(calls) != 7:
            give_back(page)

    pool.give_back = forgetful  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="free blocks"):
        soak.run(patience=60)


def test_a_hang_ends_the_process_and_shows_where_it_was() -> None:
    result = subprocess.run([sys.executable, "-c", _HANGS], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode != 0
    assert "Timeout" in result.stderr
    assert "in run" in result.stderr
