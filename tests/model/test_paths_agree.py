"""A row's bits depend on its own prefix alone, not on the path that computed it.

Chunks of any size, single tokens, verify-like chunks after rejected ones, ragged batches with other requests: streams
and every row left in the cache equal those of one prefill, by torch.equal. All of it runs in hostile caches: pages are
handed out in random order, and everything that was not written, the null page apart, is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from random import Random

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.model.driving import (
    ORACLE_TINY,
    TINY,
    Session,
    TinyModel,
    cached_rows,
    feed_in_chunks,
    new_cache,
    random_ids,
    tiny_model,
)
from torch import Tensor

from outrider import ops
from outrider.cache.layout import BLOCK_TOKENS
from outrider.cache.paged_cache import PagedCache
from outrider.config import ModelConfig, Numerics

LENGTH = 300
few_examples = settings(max_examples=3, phases=[Phase.generate])  # shrinking would run the model for minutes


@dataclass(frozen=True)
class Reference:
    """One prefill of everything, in an ordinary cache."""

    model: TinyModel
    ids: Tensor
    streams: Tensor
    rows: dict[str, Tensor]


def reference_of(model: TinyModel, ids: Tensor) -> Reference:
    session = Session(model)
    streams = session.feed(ids)
    return Reference(model, ids, streams, cached_rows(session))


MODELS: dict[str, Callable[[], TinyModel]] = {
    "tiny": lambda: tiny_model(TINY, Numerics()),
    "oracle_tiny, exact QAT": lambda: tiny_model(ORACLE_TINY, Numerics.exact_qat()),
    # more than one tile of entries, and a top-k that is not a multiple of it
    "many entries": lambda: tiny_model({**TINY, "index_topk": 70, "sliding_window": 33}, Numerics()),
}
every_model = pytest.mark.parametrize("reference", MODELS, indirect=True)
two_models = pytest.mark.parametrize("reference", list(MODELS)[:2], indirect=True)


@cache
def build_reference(name: str) -> Reference:
    model = MODELS[name]()
    return reference_of(model, random_ids(model.config, LENGTH))


@pytest.fixture
def reference(request: pytest.FixtureRequest) -> Reference:
    return build_reference(request.param)


def tensors_of(paged: PagedCache) -> list[tuple[Tensor, int]]:
    """(rows, rows of a page) of everything that is cached."""
    layers = [*paged.layers, *([paged.drafter] if paged.drafter else [])]
    window, entry = paged.window_pool.count, paged.entry_pool.count
    found = []
    for layer in layers:
        for tensor, pages in (
            (layer.window, window),
            (layer.partial, window),
            (layer.index_partial, window),
            (layer.entries, entry),
            (layer.index_keys, entry),
        ):
            if tensor is not None:
                found.append((tensor, tensor.shape[0] // pages))
    return found


def hostile_cache(config: ModelConfig, seed: int, pages: int = 12) -> PagedCache:
    hostile = new_cache(config, pages)
    shuffle = Random(seed).shuffle
    for pool in (hostile.window_pool, hostile.entry_pool):
        order = [pool.take() for _ in range(pool.free_count)]
        shuffle(order)
        for page in order:
            pool.give_back(page)
    for tensor, per_page in tensors_of(hostile):
        tensor[per_page:] = float("nan")
    return hostile


def assert_same(session: Session, streams: Tensor, reference: Reference) -> None:
    """Everything that positions 0 .. length-1 computed and stored; and the null page is still zero."""
    assert torch.equal(streams, reference.streams[: session.length])
    for name, rows in cached_rows(session).items():
        assert torch.equal(rows, reference.rows[name][: len(rows)]), name
    for tensor, per_page in tensors_of(session.cache):
        assert not tensor[:per_page].any()


@every_model
def test_the_reference_has_rows_of_every_kind(reference: Reference) -> None:
    kinds = {name.split(" ", 2)[2] for name in reference.rows}
    assert kinds == {"window", "partial", "index_partial", "entries", "index_keys"}
    assert all(rows.isfinite().all() and rows.any(-1).all() for rows in reference.rows.values())


@two_models
def test_a_hostile_cache_is_hostile(reference: Reference) -> None:
    session = Session(reference.model, hostile_cache(reference.model.config, seed=5))
    session.feed(reference.ids)
    assert session.pages.window != sorted(session.pages.window)
    assert session.pages.window != session.pages.entries
    assert session.cache.layers[0].window.isnan().any()


def special_cuts(config: ModelConfig) -> list[int]:
    """Positions around which paths take turns: windows of 4, the window's edge, the indexer's limit, 128."""
    topk = config.index_topk * 4
    around = [4, 8, config.sliding_window, topk, topk + 4, 64, 127, 128, 256]
    return sorted({a + d for a in around for d in (-1, 0, 1) if 0 < a + d < LENGTH})


@every_model
def test_chunks_of_any_size(reference: Reference) -> None:
    near = st.sampled_from(special_cuts(reference.model.config))

    @few_examples
    @given(st.sets(near | st.integers(1, LENGTH - 1), min_size=2, max_size=6), st.integers(1, 9), st.integers(0, 1000))
    def run(cuts: set[int], more: int, seed: int) -> None:
        session = Session(reference.model, hostile_cache(reference.model.config, seed))
        bounds = sorted({0, *cuts, min(LENGTH, max(cuts) + more)})
        sizes = [b - a for a, b in pairwise(bounds)]
        assert_same(session, feed_in_chunks(session, reference.ids[: sum(sizes)], sizes), reference)

    run()


@pytest.mark.parametrize(
    ("reference", "first"),
    [*((name, first) for name in list(MODELS)[:2] for first in (0, 30, 123)), *((name, 252) for name in MODELS)],
    indirect=["reference"],
)
def test_one_by_one(reference: Reference, first: int) -> None:
    """From the first token; where the indexer begins to choose (8 entries: 35; 9: 39); across the ends of blocks."""
    session = Session(reference.model, hostile_cache(reference.model.config, seed=first))
    sizes = ([first] if first else []) + [1] * 9
    assert_same(session, feed_in_chunks(session, reference.ids[: sum(sizes)], sizes), reference)


@pytest.mark.parametrize(
    ("reference", "by"),
    [*((name, by) for name in list(MODELS)[:2] for by in (-1, 0, 1)), ("many entries", 0)],
    indirect=["reference"],
)
def test_the_limit_of_the_indexer(reference: Reference, by: int) -> None:
    """index_topk * ratio is where the indexer begins to choose: prompts that end there, decode, and a verify across."""
    edge = reference.model.config.index_topk * 4 + by
    for sizes in ([edge, 1, 1, 1, 1, 1], [edge - 3, 7, 2]):
        session = Session(reference.model, hostile_cache(reference.model.config, seed=edge))
        assert_same(session, feed_in_chunks(session, reference.ids[: sum(sizes)], sizes), reference)


@two_models
@pytest.mark.parametrize(("start", "right"), [(14, 0), (33, 5), (125, 1)])
def test_rejected_tokens_leave_nothing(reference: Reference, start: int, right: int) -> None:
    """Verify chunks of which only the first rows stand: the next pass begins where the right ones end."""
    session = Session(reference.model, hostile_cache(reference.model.config, seed=start))
    ids, kept = reference.ids, [session.feed(reference.ids[:start])]
    for _ in range(2):
        at, vocab = session.length, reference.model.config.vocab_size
        guess = ids[at : at + 8].clone()
        guess[1 + right :] = (guess[1 + right :] + 1) % vocab
        kept.append(session.feed(guess)[: 1 + right])
        session.length = at + 1 + right
    kept.append(session.feed(ids[session.length : session.length + 2]))
    assert_same(session, torch.cat(kept), reference)


@two_models
def test_pages_that_slid_past_are_never_read(reference: Reference) -> None:
    """What a later row can need: the window, the open window of 128, the open window of 4 and the one before it.

    Pages below are given back and filled with NaN, while another request may take them.
    """
    config = reference.model.config
    session = Session(reference.model, hostile_cache(config, seed=3, pages=8))
    streams, given_back = [], 0
    for count in (130, 5, 1, 1, 90, 7, 22, 1, 1, 1, 1, 40):
        streams.append(session.feed(reference.ids[session.length : session.length + count]))
        at = session.length
        before = [page for page in session.pages.window if page]
        session.pages.slide(min(at - config.sliding_window + 1, at // 128 * 128, at // 4 * 4 - 4))
        for page in set(before) - set(session.pages.window):
            given_back += 1
            for layer in session.cache.layers:
                for tensor in (layer.window, layer.partial, layer.index_partial):
                    if tensor is not None:
                        tensor[page * BLOCK_TOKENS : (page + 1) * BLOCK_TOKENS] = float("nan")
    assert session.length == LENGTH
    assert given_back == 2
    assert torch.equal(torch.cat(streams), reference.streams)
    entries = {name: rows for name, rows in cached_rows(session).items() if name.endswith(("entries", "index_keys"))}
    assert all(torch.equal(rows, reference.rows[name]) for name, rows in entries.items())


# -------- several requests in one batch


def three_requests(reference: Reference) -> list[Reference]:
    """The reference and two other requests of the same model."""
    others = [random_ids(reference.model.config, 180, seed) for seed in (21, 22)]
    return [reference, *(reference_of(reference.model, ids) for ids in others)]


def run_batches(references: Sequence[Reference], steps: Sequence[Sequence[int]], order: Random) -> None:
    """Each step takes so many tokens of each request, in one forward pass, in random order of requests."""
    model = references[0].model
    shared = hostile_cache(model.config, seed=order.randrange(1000))
    sessions = [Session(model, shared) for _ in references]
    streams: list[list[Tensor]] = [[] for _ in references]
    for counts in steps:
        batch = list(enumerate(counts))
        order.shuffle(batch)
        tokens = [references[i].ids[sessions[i].length : sessions[i].length + n] for i, n in batch]
        rows = [sessions[i].rows(n) for i, n in batch]
        out = model.trunk.forward(torch.cat(tokens), rows, shared)
        for (i, _), part in zip(batch, out.split([n for _, n in batch]), strict=True):
            streams[i].append(part)
    for session, parts, reference in zip(sessions, streams, references, strict=True):
        assert_same(session, torch.cat(parts), reference)


@two_models
def test_prefill_decode_and_verify_rows_of_three_requests_together(reference: Reference) -> None:
    """Lengths around 4n, 128n, the window and the indexer's limit; a request may sit a step out."""
    steps = [(15, 0, 0), (1, 126, 0), (1, 1, 31), (4, 1, 1), (1, 1, 4), (1, 3, 0), (100, 1, 1), (5, 5, 5), (1, 1, 1)]
    run_batches(three_requests(reference), steps, Random(1))


@two_models
def test_ragged_batches(reference: Reference) -> None:
    references = three_requests(reference)
    prompts = st.sampled_from([1, 3, 4, 5, 16, 17, 31, 33, 36, 63, 127, 128, 129])
    few = st.integers(0, 8)
    later = st.lists(st.tuples(few, few, few).filter(any), min_size=2, max_size=4)

    @few_examples
    @given(st.tuples(prompts, prompts, prompts), later, st.integers(0, 1000))
    def run(first: tuple[int, int, int], steps: list[tuple[int, int, int]], seed: int) -> None:
        run_batches(references, [first, *steps], Random(seed))

    run()


@two_models
def test_the_comparison_notices_the_last_bit(reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    """A norm whose last bit depends on the number of rows fails, so the tests above can fail."""
    right = ops.rms_norm

    def by_batch(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
        return right(x, weight, eps) * (1 + 2**-23 * (len(x) % 3))

    monkeypatch.setattr(ops, "rms_norm", by_batch)
    session = Session(reference.model)
    whole = reference_of(reference.model, reference.ids[:20])
    with pytest.raises(AssertionError):
        assert_same(session, feed_in_chunks(session, reference.ids[:20], [10, 10]), whole)
