"""The flat batch against plain Python: one loop over requests, tokens and keys, no tensors."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiny import tiny_config

from outrider.cache.batch import (
    ENTRY_TILE,
    RequestRows,
    build_batch,
    compression_plan,
    entry_groups,
    visible_entries,
)
from outrider.cache.pages import NULL_PAGE, PagePool, RequestPages
from outrider.config import LayerKind, ModelConfig, parse_model_config

CONFIG = parse_model_config(tiny_config())


@dataclass(frozen=True)
class Case:
    rows: list[RequestRows]
    window: int
    query_rows: list[int] | None

    @property
    def config(self) -> ModelConfig:
        return CONFIG.model_copy(update={"sliding_window": self.window})

    def tokens(self) -> list[tuple[int, int]]:
        """(request, position) of each row."""
        return [(r, item.start + i) for r, item in enumerate(self.rows) for i in range(item.count)]

    def queries(self) -> list[tuple[int, int]]:
        tokens = self.tokens()
        return tokens if self.query_rows is None else [tokens[row] for row in self.query_rows]

    def token_slot(self, request: int, position: int) -> int:
        return self.rows[request].pages.window[position // 128] * 128 + position % 128

    def entry_slot(self, request: int, entry: int, ratio: int) -> int:
        first_token = entry * ratio
        entries_before = first_token % 128 // ratio
        return self.rows[request].pages.entries[first_token // 128] * (128 // ratio) + entries_before


edges = st.sampled_from([0, 1, 3, 4, 7, 16, 124, 126, 127, 128, 129, 255, 256, 257, 300])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    pools = []
    order = Random(draw(st.integers(0, 10**6)))
    for name in ("window", "entry"):
        pool = PagePool(name, 40)
        pages = [pool.take() for _ in range(39)]
        order.shuffle(pages)
        for page in pages:
            pool.give_back(page)
        pools.append(pool)
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        start, count = draw(edges | st.integers(0, 400)), draw(st.integers(0, 9) | st.sampled_from([64, 130]))
        pages_of_request = RequestPages(*pools)
        pages_of_request.reserve(start + count + draw(st.sampled_from([0, 1, 200])))
        rows.append(RequestRows(pages_of_request, start, count, draw(st.sampled_from([0, 1, max(0, start - 3)]))))
    if not any(item.count for item in rows):
        rows[0].pages.reserve(rows[0].start + 1)
        rows[0] = RequestRows(rows[0].pages, rows[0].start, 1)
    total = sum(item.count for item in rows)
    query_rows = draw(st.none() | st.lists(st.integers(0, total - 1), max_size=5, unique=True).map(sorted))
    return Case(rows, draw(st.sampled_from([1, 5, 16, 128, 200])), query_rows)


@settings(max_examples=60)
@given(cases())
def test_rows_and_window(case: Case) -> None:
    batch = build_batch(case.rows, case.config, query_rows=case.query_rows)
    tokens, queries = case.tokens(), case.queries()
    counts = [item.count for item in case.rows]
    assert batch.query_start_loc == tuple(sum(counts[:r]) for r in range(len(counts) + 1))
    assert batch.seq_lens == tuple(item.start + item.count for item in case.rows)
    assert batch.positions.tolist() == [position for _, position in tokens]
    assert batch.write_slots.tolist() == [case.token_slot(*token) for token in tokens]
    assert batch.query_positions.tolist() == [position for _, position in queries]
    assert batch.query_requests.tolist() == [request for request, _ in queries]
    assert (None if batch.query_rows is None else batch.query_rows.tolist()) == case.query_rows
    for i, (request, position) in enumerate(queries):
        keys = range(position - case.window + 1, position + 1)
        exists = [key >= case.rows[request].first_position for key in keys]
        slots = [case.token_slot(request, key) if e else 0 for key, e in zip(keys, exists, strict=True)]
        assert batch.window.slots[i].tolist() == slots
        assert batch.window.bias[i, 0].tolist() == [0.0 if e else -torch.inf for e in exists]
    for tensor in (batch.write_slots, batch.window.slots, batch.positions):
        assert tensor.dtype == torch.int64


@settings(max_examples=60)
@given(cases(), st.sampled_from([LayerKind.CSA, LayerKind.HCA]))
def test_compression(case: Case, kind: LayerKind) -> None:
    ratio, pooled = int(kind), 8 if kind == LayerKind.CSA else 128
    batch = build_batch(case.rows, case.config)
    plan = compression_plan(batch, case.rows, kind)
    closing = [(row, r, p) for row, (r, p) in enumerate(case.tokens()) if p % ratio == ratio - 1]
    assert plan.closing_rows.tolist() == [row for row, _, _ in closing]
    assert plan.entry_slots.tolist() == [case.entry_slot(r, p // ratio, ratio) for _, r, p in closing]
    assert plan.entry_positions.tolist() == [p - ratio + 1 for _, _, p in closing]
    assert plan.source_slots.shape == (len(closing), pooled)
    assert plan.source_bias.shape == (len(closing), pooled, 1)
    for i, (_, request, position) in enumerate(closing):
        sources = range(position - pooled + 1, position + 1)
        assert plan.source_slots[i].tolist() == [case.token_slot(request, s) if s >= 0 else 0 for s in sources]
        assert plan.source_bias[i, :, 0].tolist() == [0.0 if s >= 0 else -torch.inf for s in sources]


@settings(max_examples=30)
@given(cases(), st.sampled_from([LayerKind.CSA, LayerKind.HCA]))
def test_entry_slots(case: Case, kind: LayerKind) -> None:
    ratio = int(kind)
    batch = build_batch(case.rows, case.config)
    for request, position in dict(case.tokens()).items():  # the last token of each request
        count = (position + 1) // ratio
        entries = visible_entries(torch.tensor([count]), count + 3)
        assert entries[0].tolist() == [*range(count), -1, -1, -1]
        slots = batch.entry_slots(torch.tensor([request]), entries, ratio)
        assert slots[0].tolist() == [*(case.entry_slot(request, e, ratio) for e in range(count)), -1, -1, -1]


@given(st.lists(st.integers(0, 300), min_size=1, max_size=20), st.none() | st.integers(1, 150))
def test_queries_are_grouped_by_their_own_count(visible: list[int], limit: int | None) -> None:
    groups = entry_groups(torch.tensor(visible), limit)
    found = {group.count: group.rows.tolist() for group in groups}
    expected: dict[int, list[int]] = {}
    for row, seen in enumerate(visible):
        slots = -(-seen // ENTRY_TILE) * ENTRY_TILE
        expected.setdefault(slots if limit is None else min(slots, limit), []).append(row)
    assert found == expected
    assert len(groups) == len(found)
    assert all(count >= min(visible[row], limit or visible[row]) for count, rows in found.items() for row in rows)


def test_a_row_without_a_page_is_refused() -> None:
    """Beside a longer request its table is padded with the null page, which nothing may be written to."""
    window, entry = PagePool("window", 10), PagePool("entry", 10)
    short, long = RequestPages(window, entry), RequestPages(window, entry)
    short.reserve(100)
    long.reserve(300)
    rows = [RequestRows(short, 126, 4), RequestRows(long, 0, 3)]
    with pytest.raises(AssertionError, match="no page"):
        build_batch(rows, CONFIG)
    short.reserve(130)
    build_batch(rows, CONFIG)
    short.slide(128)
    assert short.window[0] == NULL_PAGE
    with pytest.raises(AssertionError, match="no page"):
        build_batch(rows, CONFIG)
