"""A few seconds of many streams whose clients often leave; two minutes of it: `python -m tests.server.load`."""

from __future__ import annotations

import asyncio

from tests.server.load import load
from tests.server.process import SPECULATION, process


def test_many_streams_that_are_often_left_leave_nothing_behind() -> None:
    with process("--speculative-config", SPECULATION, "--max-num-seqs", "16") as (started, url):
        tally = asyncio.run(load(url, streams=64, seconds=4))
        assert tally.problems == []
        assert tally.left_in_the_middle > 10 and tally.left_before_first > 0 and tally.finished > 0
        assert tally.gauges_at_the_end and set(tally.gauges_at_the_end.values()) == {0.0}
        assert started.poll() is None
