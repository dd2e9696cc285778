"""The arithmetic of a decision over requests, in numpy. `decision_kernels` compiles the same, in the same order.

A row is a position in the draft, a column a request. Survival is the chance that a draft and those before it all stand.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RATE = 0.1  # of one observation in what a request differs by
ENGINE_RATE = 0.03  # and in the engine's own estimate
RELAXATION = 0.02  # of what was not observed, towards the engine's estimate
LEAST = 0.02  # nothing is certain, either way

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


def survival(differs: Floats, engine: Doubles, slots: Ints, most: Ints) -> Floats:
    """[max_depth, R], falling from position to position; 0 from `most` on.

    differs: [max_depth, max_requests], what a request adds to the conditional acceptance of all, engine: [max_depth].
    slots: [R] columns of differs; most: [R] drafts that each may have.
    """
    found = differs.take(slots, 1)
    found += engine.astype(np.float32)[:, None]
    found.clip(LEAST, 1 - LEAST, out=found)
    for position in range(1, len(found)):
        found[position] *= found[position - 1]
    found[np.arange(len(found))[:, None] >= most] = 0.0
    return found


def observe(differs: Floats, engine: Doubles, slots: Ints, drafted: Bytes, accepted: Bytes) -> tuple[int, int]:
    """Moves both estimates, in place, by one verification of each slot: those that stood and the first that did not.

    A slot without drafts stays as it is. -> drafts of all together, and the most of one.
    """
    total, deepest = int(drafted.sum()), int(drafted.max(initial=0))
    if 0 in drafted:
        some = drafted.nonzero()[0]
        slots, drafted, accepted = slots[some], drafted[some], accepted[some]
    max_depth = len(differs)
    position = np.arange(max_depth)[:, None]
    stood = position < accepted
    observed = position < np.minimum(accepted + 1, drafted)
    before = engine.astype(np.float32)[:, None]
    found = np.float32(RATE) * (stood.astype(np.float32) - before)
    own = differs.take(slots, 1)
    differs[:, slots] = np.where(observed, own * np.float32(1 - RATE) + found, own * np.float32(1 - RELAXATION))
    counts = observed.sum(1)
    seen = counts > 0
    shares = stood.sum(1)[seen] / counts[seen]
    engine[seen] += (1 - (1 - ENGINE_RATE) ** counts[seen].astype(np.float64)) * (shares - engine[seen])
    return total, deepest


def count_passes(passes: Ints, contexts: Ints, lengths: Ints, drafted: Bytes, accepted: Bytes) -> tuple[int, int]:
    """Adds target passes to passes[context bucket, drafts, those that stood]. -> those with drafts; a first one stood.

    lengths, drafted, accepted: [R], a pass each; contexts: the longest length of each bucket but the last.
    """
    np.add.at(passes, (np.searchsorted(contexts, lengths), drafted, accepted), 1)
    return int(np.count_nonzero(drafted)), int(np.count_nonzero(accepted))


def best_count(slots: Floats, verify_ms: Floats, scales: Doubles, draft_ms: Doubles) -> tuple[int, int, float, float]:
    """(count, depth, least, rate) of the drafts that give most tokens a millisecond; all 0 if none may be drafted.

    slots: [max_depth, R] survival. A step with n drafts in all, up to d a request, takes
    verify_ms[n - 1] * scales[d] + draft_ms[d] milliseconds; it has no more than len(verify_ms), which is at least 1.
    """
    max_depth, requests = slots.shape
    best = (0, 0, 0.0, 0.0)
    # The requests' own tokens are the first entry. Sorting, which begins with the smallest, leaves it there: all is
    # negative, it is at least 1, and survival is below 1.
    tokens = np.empty(1 + slots.size, np.float32)
    tokens[0] = -requests
    np.negative(slots.ravel(), out=tokens[1:])
    for depth in range(1, max_depth + 1):
        ordered = np.sort(tokens[: 1 + depth * requests])
        # a slot that may not be used adds rows and no tokens: never better than the one before it
        rates = ordered.cumsum()[1 : len(verify_ms) + 1]
        rates /= verify_ms[: len(rates)] + np.float32(draft_ms[depth] / scales[depth])
        count = int(rates.argmin())
        rate = -float(rates[count]) / float(scales[depth])
        if rate > best[3] and ordered[1] < 0:
            best = (count + 1, depth, -float(ordered[count + 1]), rate)
    return best


def share(slots: Floats, depth: int, least: float, count: int) -> Ints:
    """[R] drafts of each request: the `count` likeliest of slots[:depth], of which the last has survival `least`.

    They are a prefix of each request. Among equals the earlier position comes first, then the earlier request.
    """
    slots = slots[:depth]
    depths = np.add.reduce(slots >= np.float32(least), axis=0, dtype=np.int64)
    excess = int(depths.sum()) - count
    if excess:  # of those equal to the least; a request has one of them at most, since survival falls along it
        ties = np.flatnonzero(slots == np.float32(least))[-excess:]
        depths[ties % len(depths)] -= 1
    return depths
