"""Counters of speculation, by hand."""

from __future__ import annotations

from outrider.speculative.statistics import SpeculationStatistics


def test_five_steps_by_hand() -> None:
    statistics = SpeculationStatistics()
    for drafted, accepted, emitted in ((3, 3, 4), (3, 1, 2), (0, 0, 1), (2, 2, 3), (3, 0, 1)):
        statistics.record(drafted, accepted, emitted)
    assert statistics.num_steps == 5
    assert statistics.num_drafts == 4
    assert statistics.num_draft_tokens == 11
    assert statistics.num_accepted_tokens == 6
    assert statistics.drafted_per_position == [4, 4, 3]
    assert statistics.accepted_per_position == [3, 2, 1]
    assert statistics.acceptance_length == 11 / 5
    assert statistics.acceptance_per_position == [3 / 4, 2 / 4, 1 / 3]
    assert statistics.conditional_acceptance == [3 / 4, 2 / 3, 1 / 2]


def test_nothing_drafted() -> None:
    statistics = SpeculationStatistics()
    assert (statistics.acceptance_length, statistics.acceptance_per_position) == (0.0, [])
    statistics.record(0, 0, 1)
    assert (statistics.acceptance_length, statistics.conditional_acceptance) == (1.0, [])
