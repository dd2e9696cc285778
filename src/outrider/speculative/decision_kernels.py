"""The arithmetic of `decision_arrays`, compiled by numba: one pass a function, the same numbers. Read that first."""

from __future__ import annotations

import numpy as np

from outrider.ops.native.compilation import kernel
from outrider.speculative.decision_arrays import ENGINE_RATE, LEAST, RATE, RELAXATION, Doubles, Floats, Ints

_RATE, _LEAST, _MOST = np.float32(RATE), np.float32(LEAST), np.float32(1 - LEAST)
_KEEPS, _RELAXES = np.float32(1 - RATE), np.float32(1 - RELAXATION)
_ENGINE_KEEPS = 1 - ENGINE_RATE


@kernel
def survival(differs, engine, slots, most):  # type: ignore[no-untyped-def]
    max_depth, requests = len(differs), len(slots)
    found = np.zeros((max_depth, requests), np.float32)
    for position in range(max_depth):
        own = np.float32(engine[position])
        for request in range(requests):
            if position < most[request]:
                chance = min(max(differs[position, slots[request]] + own, _LEAST), _MOST)
                found[position, request] = chance * found[position - 1, request] if position else chance
    return found


@kernel
def observe(differs, engine, slots, drafted, accepted):  # type: ignore[no-untyped-def]
    count = deepest = 0
    for i in range(len(slots)):
        count += drafted[i]
        deepest = max(deepest, drafted[i])
    for position in range(len(differs)):
        before = np.float32(engine[position])
        rises, falls = _RATE * (np.float32(1) - before), _RATE * (np.float32(0) - before)
        observed = stood = 0
        for i in range(len(slots)):
            if not drafted[i]:
                continue
            own = differs[position, slots[i]]
            if position < accepted[i]:
                own = own * _KEEPS + rises
                stood += 1
                observed += 1
            elif position < drafted[i] and position == accepted[i]:
                own = own * _KEEPS + falls
                observed += 1
            else:
                own = own * _RELAXES
            differs[position, slots[i]] = own
        if observed:
            engine[position] += (1 - _ENGINE_KEEPS ** float(observed)) * (stood / observed - engine[position])
    return count, deepest


@kernel
def count_passes(passes, contexts, lengths, drafted, accepted):  # type: ignore[no-untyped-def]
    with_drafts = first_stood = 0
    for i in range(len(lengths)):
        bucket = 0
        while bucket < len(contexts) and contexts[bucket] < lengths[i]:
            bucket += 1
        passes[bucket, drafted[i], accepted[i]] += 1
        with_drafts += drafted[i] > 0
        first_stood += accepted[i] > 0
    return with_drafts, first_stood


@kernel
def _best_count(ordered, requests, verify_ms, scales, draft_ms):  # type: ignore[no-untyped-def]
    """ordered[d - 1]: minus the survival of the first d positions of all requests, smallest first."""
    count, deepest, least, best = 0, 0, 0.0, 0.0
    for depth in range(1, len(ordered) + 1):
        slots = ordered[depth - 1]
        draft = np.float32(draft_ms[depth] / scales[depth])
        tokens, lowest, at = np.float32(-requests), np.float32(0), 0
        for i in range(min(depth * requests, len(verify_ms))):
            tokens += slots[i]
            rate = tokens / (verify_ms[i] + draft)
            if rate < lowest:
                lowest, at = rate, i
        found = -float(lowest) / scales[depth]
        if found > best and slots[0] < 0:
            count, deepest, least, best = at + 1, depth, -float(slots[at]), found
    return count, deepest, least, best


def best_count(slots: Floats, verify_ms: Floats, scales: Doubles, draft_ms: Doubles) -> tuple[int, int, float, float]:
    """As `decision_arrays.best_count`. numpy sorts faster than anything that is compiled here."""
    max_depth, requests = slots.shape
    ordered = np.empty((max_depth, slots.size), np.float32)
    np.negative(slots.reshape(-1), out=ordered)
    for depth in range(max_depth):
        ordered[depth, : (depth + 1) * requests].sort()
    found: tuple[int, int, float, float] = _best_count(ordered, requests, verify_ms, scales, draft_ms)
    return found


@kernel
def _share(slots, depth, least, count):  # type: ignore[no-untyped-def]
    requests = slots.shape[1]
    depths = np.zeros(requests, np.int64)
    last = np.float32(least)
    excess = -count
    for position in range(depth):
        for request in range(requests):
            if slots[position, request] >= last:
                depths[request] += 1
                excess += 1
    for position in range(depth - 1, -1, -1):
        if excess <= 0:
            break
        for request in range(requests - 1, -1, -1):
            if excess > 0 and slots[position, request] == last:
                depths[request] -= 1
                excess -= 1
    return depths


def share(slots: Floats, depth: int, least: float, count: int) -> Ints:
    """As `decision_arrays.share`."""
    depths: Ints = _share(slots, depth, least, count)
    return depths
