"""The draw of each row: filters found by bisection, noise and argmax in one pass over the vocabulary.

Formula and contract: ops/reference/sampling.py. Scores become integers that order as they do (radix_select.sortable).
A filter is a threshold among them and the last id that still counts among scores equal to it: top_k by counting, top_p
by the probability above a threshold, summed in one fixed order. One program a row finds it: each pass over the row
(from L2) halves the scores that are left, about 20 passes a filter. The draw takes parts of a row, and keeps each
part's best score and lowest id.

Floor: bytes of the logits once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.ops.reference import sampling as reference
from outrider.ops.reference.sampling import Draws
from outrider.ops.triton.launching import cdiv, has_kernels, launch
from outrider.ops.triton.noise import gumbel, philox_words
from outrider.ops.triton.radix_select import sortable

PART = 2048  # tokens that one program draws from
FILTER_TILE = 4096
FILTER_WARPS = 16
_LOWEST = tl.constexpr(-2139095041)  # sortable(-infinity)
_LAST = tl.constexpr(0x7FFFFFFF)


@triton.jit
def _scaled(logits, allowed, row, ids, vocab_size, temperature, MASKED: tl.constexpr):  # type: ignore[no-untyped-def]
    """A row's logits over its temperature, -infinity where they may not be drawn."""
    live = ids < vocab_size
    x = tl.load(logits + row * vocab_size + ids, mask=live, other=float("-inf"))
    if MASKED:
        x = tl.where(tl.load(allowed + row * vocab_size + ids, mask=live, other=0) != 0, x, float("-inf"))
    return tl.div_rn(x, tl.zeros_like(x) + temperature)


@triton.jit
def _above(logits, allowed, row, vocab_size, temperature, top, key, MASKED: tl.constexpr, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Of a row's scores: how many lie above `key`, the sum of e^(score - top) over them, the lowest of them, and the
    highest of the others (int64)."""
    counts = tl.zeros((TILE,), tl.int32)
    sums = tl.zeros((TILE,), tl.float32)
    lowest = tl.full((TILE,), _LAST, tl.int32)
    highest = tl.full((TILE,), _LOWEST, tl.int32)
    for start in range(0, vocab_size, TILE):
        ids = start + tl.arange(0, TILE)
        x = _scaled(logits, allowed, row, ids, vocab_size, temperature, MASKED)
        own = sortable(x)
        counted = own.to(tl.int64) > key
        counts += counted.to(tl.int32)
        sums += tl.where(counted, tl.exp(x - top), 0.0)
        lowest = tl.minimum(lowest, tl.where(counted, own, _LAST))
        highest = tl.maximum(highest, tl.where(counted, _LOWEST, own))
    return tl.sum(counts, 0), tl.sum(sums, 0), tl.min(lowest, 0).to(tl.int64), tl.max(highest, 0).to(tl.int64)


@triton.jit
def filter_kernel(  # type: ignore[no-untyped-def]
    logits,
    allowed,
    temperatures,
    top_k,
    top_p,
    thresholds,
    last_ids,
    tops,
    vocab_size,
    MASKED: tl.constexpr,
    TILE: tl.constexpr,
):
    """Grid: (rows,). Kept are scores above the threshold, and those equal to it up to last_id; tops: the largest."""
    row = tl.program_id(0).to(tl.int64)
    temperature = tl.load(temperatures + row)
    k = tl.load(top_k + row)
    p = tl.load(top_p + row)
    temperature = tl.where(temperature == 0.0, 1.0, temperature)
    best = tl.full((TILE,), float("-inf"), tl.float32)
    for start in range(0, vocab_size, TILE):
        x = _scaled(logits, allowed, row, start + tl.arange(0, TILE), vocab_size, temperature, MASKED)
        best = tl.maximum(best, x)
    top = tl.max(best, 0)
    top_key = sortable(top).to(tl.int64)
    tl.store(tops + row, top)

    threshold = top_key * 0 + _LOWEST
    ties = k * 0 + _LAST
    if (k > 0) & (k < vocab_size):
        # the smallest key with fewer than k scores above it: the k-th largest score
        low = threshold
        high = top_key
        while low < high:
            middle = (low + high) >> 1
            count, _mass, above, below = _above(
                logits, allowed, row, vocab_size, temperature, top, middle, MASKED, TILE
            )
            if count < k:
                high = tl.maximum(low, below)  # the answer is a score of the row: there is none between
            else:
                low = above
        threshold = low
        count, _mass, _lowest, _highest = _above(
            logits, allowed, row, vocab_size, temperature, top, threshold, MASKED, TILE
        )
        ties = k - count
    if p < 1.0:
        bits = threshold.to(tl.int32)
        bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
        _count, mass, _lowest, _highest = _above(
            logits, allowed, row, vocab_size, temperature, top, threshold, MASKED, TILE
        )
        own = tl.exp(bits.to(tl.float32, bitcast=True) - top)
        total = mass + tl.where(own > 0.0, ties.to(tl.float32) * own, 0.0)
        wanted = p * total
        # the smallest key that leaves less than p above it
        low = threshold
        high = top_key
        while low < high:
            middle = (low + high) >> 1
            _count, mass, above, below = _above(
                logits, allowed, row, vocab_size, temperature, top, middle, MASKED, TILE
            )
            if mass < wanted:
                high = tl.maximum(low, below)
            else:
                low = above
        bits = low.to(tl.int32)
        bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
        own = tl.exp(bits.to(tl.float32, bitcast=True) - top)
        _count, mass, _lowest, _highest = _above(logits, allowed, row, vocab_size, temperature, top, low, MASKED, TILE)
        most = tl.where(low == threshold, ties, _LAST)
        # of equal scores, as many as it takes to reach p; all of those that weigh nothing
        missing = tl.ceil(tl.div_rn(wanted - mass, tl.where(own > 0.0, own, 1.0)))
        needed = tl.where(own > 0.0, tl.minimum(tl.maximum(missing, 1.0), 1e9), 2e9).to(tl.int32)
        ties = tl.minimum(most, needed)
        threshold = low

    last = ties * 0 - 1
    seen = ties * 0
    for start in range(0, vocab_size, TILE):
        ids = start + tl.arange(0, TILE)
        x = _scaled(logits, allowed, row, ids, vocab_size, temperature, MASKED)
        equal = (sortable(x).to(tl.int64) == threshold) & (ids < vocab_size)
        rank = seen + tl.cumsum(equal.to(tl.int32), 0)
        last = tl.maximum(last, tl.max(tl.where(equal & (rank <= ties), ids, -1), 0))
        seen += tl.sum(equal.to(tl.int32), 0)
    tl.store(thresholds + row, threshold.to(tl.int32))
    tl.store(last_ids + row, last)


@triton.jit
def best_of(scores, ids):  # type: ignore[no-untyped-def]
    """(best score, lowest id that has it) of [N]; NaN if any score is."""
    best = tl.max(scores, 0)
    found = tl.min(tl.where(scores == best, ids, 0x7FFFFFFF), 0)
    broken = tl.max((scores != scores).to(tl.int32), 0) > 0
    return tl.where(broken, float("nan"), best), found


@triton.jit
def draw_kernel(  # type: ignore[no-untyped-def]
    logits,
    allowed,
    seeds,
    positions,
    temperatures,
    min_p,
    thresholds,
    last_ids,
    tops,
    part_scores,
    part_ids,
    vocab_size,
    FILTERED: tl.constexpr,
    MASKED: tl.constexpr,
    PART: tl.constexpr,
):
    """Grid: (rows, parts)."""
    row = tl.program_id(0).to(tl.int64)
    ids = tl.program_id(1) * PART + tl.arange(0, PART)
    temperature = tl.load(temperatures + row)
    greedy = temperature == 0.0
    scores = _scaled(logits, allowed, row, ids, vocab_size, tl.where(greedy, 1.0, temperature), MASKED)
    if not greedy:
        noisy = scores + gumbel(philox_words(tl.load(seeds + row), tl.load(positions + row), ids))
        if FILTERED:
            key = sortable(scores)
            threshold = tl.load(thresholds + row)
            kept = (key > threshold) | ((key == threshold) & (ids <= tl.load(last_ids + row)))
            top = tl.load(tops + row)
            kept = kept & ((scores == top) | (tl.exp(scores - top) >= tl.load(min_p + row)))
            noisy = tl.where(kept | (scores != scores), noisy, float("-inf"))
        scores = noisy
    best, found = best_of(scores, ids)
    place = row * tl.num_programs(1) + tl.program_id(1)
    tl.store(part_scores + place, best)
    tl.store(part_ids + place, found)


@triton.jit
def best_part_kernel(part_scores, part_ids, tokens, num_parts, vocab_size, part_stride, row_stride, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Grid: (rows,). The best of a row's parts, or vocab_size where that is not finite. TILE parts at a time."""
    row = tl.program_id(0).to(tl.int64)
    best = tl.full((TILE,), float("-inf"), tl.float32)
    best_ids = tl.full((TILE,), 0x7FFFFFFF, tl.int32)
    broken = tl.zeros((TILE,), tl.int32)
    for start in range(0, num_parts, TILE):
        parts = start + tl.arange(0, TILE)
        places = row * row_stride + parts.to(tl.int64) * part_stride
        scores = tl.load(part_scores + places, mask=parts < num_parts, other=float("-inf"))
        ids = tl.load(part_ids + places, mask=parts < num_parts, other=0x7FFFFFFF)
        broken = broken | (scores != scores).to(tl.int32)
        better = scores > best  # ids of later parts are higher: an equal score changes nothing
        best_ids = tl.where(better, ids, best_ids)
        best = tl.where(better, scores, best)
    top, found = best_of(best, best_ids)
    finite = (top > float("-inf")) & (top < float("inf")) & (tl.max(broken, 0) == 0)
    tl.store(tokens + row, tl.where(finite, found, vocab_size).to(tl.int64))


def best_parts(part_scores: Tensor, part_ids: Tensor, vocab_size: int, part_dim: int) -> Tensor:
    """Scores and ids of parts, [rows, parts] (part_dim 1) or [parts, rows] (0) -> [rows] int64."""
    parts = part_scores.shape[part_dim]
    tokens = torch.empty(part_scores.shape[1 - part_dim], dtype=torch.int64, device=part_scores.device)
    launch(
        best_part_kernel,
        (tokens.shape[0],),
        part_scores,
        part_ids,
        tokens,
        parts,
        vocab_size,
        part_scores.stride(part_dim),
        part_scores.stride(1 - part_dim),
        TILE=128,
        num_warps=4,
    )
    return tokens


def sample_tokens(logits: Tensor, draws: Draws) -> Tensor:
    """As the reference."""
    if not has_kernels(logits):
        return reference.sample_tokens(logits, draws)
    rows, vocab_size = logits.shape
    if logits.dtype != torch.float32:
        raise ValueError(f"logits: {logits.dtype}, expected float32")
    if draws.allowed is not None and draws.allowed.shape != logits.shape:
        raise ValueError(f"allowed: {list(draws.allowed.shape)}, the logits are {list(logits.shape)}")
    device = logits.device
    if rows == 0:
        return torch.empty(0, dtype=torch.int64, device=device)
    logits = logits.contiguous()
    masked = draws.allowed is not None
    allowed = (
        logits if draws.allowed is None else draws.allowed.contiguous().view(torch.uint8)
    )  # loaded if there is one
    thresholds, last_ids = (torch.empty(rows, dtype=torch.int32, device=device) for _ in range(2))
    tops = torch.empty(rows, device=device)
    if draws.filtered:
        launch(
            filter_kernel,
            (rows,),
            logits,
            allowed,
            draws.temperatures,
            draws.top_k,
            draws.top_p,
            thresholds,
            last_ids,
            tops,
            vocab_size,
            MASKED=masked,
            TILE=FILTER_TILE,
            num_warps=FILTER_WARPS,
        )
    parts = cdiv(vocab_size, PART)
    part_scores = torch.empty(rows, parts, device=device)
    part_ids = torch.empty(rows, parts, dtype=torch.int32, device=device)
    launch(
        draw_kernel,
        (rows, parts),
        logits,
        allowed,
        draws.seeds,
        draws.positions,
        draws.temperatures,
        draws.min_p,
        thresholds,
        last_ids,
        tops,
        part_scores,
        part_ids,
        vocab_size,
        FILTERED=draws.filtered,
        MASKED=masked,
        PART=PART,
        num_warps=4,
    )
    return best_parts(part_scores, part_ids, vocab_size, part_dim=1)
