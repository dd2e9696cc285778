"""Which drafts stand. There is no acceptance probability: a draft is right or it is not."""

from __future__ import annotations

from collections.abc import Sequence


def accepted_count(drafts: Sequence[int], sampled: Sequence[int]) -> int:
    """Length of the longest prefix of `drafts` that equals what the target sampled at the same positions.

    sampled has one token more than drafts: the target's token after the last draft. The tokens to emit are
    sampled[: accepted + 1].
    """
    assert len(sampled) == len(drafts) + 1
    count = 0
    while count < len(drafts) and drafts[count] == sampled[count]:
        count += 1
    return count
