"""Pages: nothing is handed out twice, everything comes back, and a pool that runs dry leaves nothing half done."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from outrider.cache.layout import BLOCK_TOKENS
from outrider.cache.pages import NULL_PAGE, OutOfPagesError, PagePool, RequestPages

REQUESTS = 4


class PagesMachine(RuleBasedStateMachine):
    """Requests grow, slide and end in any order, against pools that are too small for all of them."""

    @initialize(window=st.integers(2, 9), entry=st.integers(2, 9))
    def start(self, window: int, entry: int) -> None:
        self.window_pool, self.entry_pool = PagePool("window", window), PagePool("entry", entry)
        self.requests = [RequestPages(self.window_pool, self.entry_pool) for _ in range(REQUESTS)]
        self.needed = [0] * REQUESTS  # a block below this has been given back

    @rule(i=st.integers(0, REQUESTS - 1), length=st.integers(0, 5 * BLOCK_TOKENS))
    def reserve(self, i: int, length: int) -> None:
        pages = self.requests[i]
        before = (list(pages.window), list(pages.entries))
        blocks = -(-length // BLOCK_TOKENS)
        fits = (
            blocks - len(pages.window) <= self.window_pool.free_count
            and blocks - len(pages.entries) <= self.entry_pool.free_count
        )
        if fits:
            pages.reserve(length)
            assert len(pages.window) == max(blocks, len(before[0]))
            assert (pages.window[: len(before[0])], pages.entries[: len(before[1])]) == before
        else:
            with pytest.raises(OutOfPagesError, match=r"(window|entry) pool"):
                pages.reserve(length)
            assert (pages.window, pages.entries) == before  # all or nothing

    @rule(i=st.integers(0, REQUESTS - 1), first_needed=st.integers(-200, 6 * BLOCK_TOKENS))
    def slide(self, i: int, first_needed: int) -> None:
        entries = list(self.requests[i].entries)
        self.requests[i].slide(first_needed)
        reached = min(first_needed // BLOCK_TOKENS, len(self.requests[i].window))
        self.needed[i] = max(self.needed[i], reached)
        assert self.requests[i].entries == entries

    @rule(i=st.integers(0, REQUESTS - 1))
    def release(self, i: int) -> None:
        self.requests[i].release()
        self.needed[i] = 0

    @precondition(lambda self: self.window_pool.free_count > 0)
    @rule()
    def page_that_was_never_taken(self) -> None:
        page = self.window_pool.take()
        self.window_pool.give_back(page)
        with pytest.raises(AssertionError):
            self.window_pool.give_back(page)
        with pytest.raises(AssertionError):
            self.window_pool.give_back(NULL_PAGE)

    @invariant()
    def every_page_has_one_owner(self) -> None:
        for pool, owned in (
            (self.window_pool, [page for r in self.requests for page in r.window if page != NULL_PAGE]),
            (self.entry_pool, [page for r in self.requests for page in r.entries]),
        ):
            assert len(set(owned)) == len(owned)
            assert all(NULL_PAGE < page < pool.count for page in owned)
            assert pool.free_count == pool.count - 1 - len(owned)

    @invariant()
    def blocks_that_are_needed_have_pages(self) -> None:
        for pages, needed in zip(self.requests, self.needed, strict=True):
            assert len(pages.window) == len(pages.entries)
            assert all(page == NULL_PAGE for page in pages.window[:needed])
            assert all(page != NULL_PAGE for page in pages.window[needed:])

    def teardown(self) -> None:
        if hasattr(self, "requests"):
            for pages in self.requests:
                pages.release()
                pages.release()  # ending a request twice is harmless
            assert self.window_pool.free_count == self.window_pool.count - 1
            assert self.entry_pool.free_count == self.entry_pool.count - 1


TestPages = PagesMachine.TestCase
TestPages.settings = settings(max_examples=60, stateful_step_count=25)


@given(st.integers(2, 40))
def test_a_pool_hands_out_every_page_but_the_null_page_once(count: int) -> None:
    pool = PagePool("window", count)
    assert sorted(pool.take() for _ in range(count - 1)) == list(range(1, count))
    with pytest.raises(OutOfPagesError, match=f"window pool: all {count - 1} pages are in use"):
        pool.take()
    assert pool.free_count == 0


@pytest.mark.parametrize("count", [-1, 0, 1])
def test_a_pool_without_pages_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="entry pool"):
        PagePool("entry", count)


def test_a_failed_reservation_takes_nothing_from_the_pool_that_had_pages() -> None:
    """Otherwise a request that waits for entry pages would sit on window pages that another could use."""
    window, entry = PagePool("window", 10), PagePool("entry", 3)
    pages = RequestPages(window, entry)
    pages.reserve(BLOCK_TOKENS)
    with pytest.raises(OutOfPagesError, match="entry pool"):
        pages.reserve(5 * BLOCK_TOKENS)
    assert (window.free_count, entry.free_count) == (8, 1)
    pages.reserve(BLOCK_TOKENS + 1)
    assert (window.free_count, entry.free_count) == (7, 0)


@pytest.mark.parametrize(("length", "blocks"), [(0, 0), (1, 1), (127, 1), (128, 1), (129, 2), (1000, 8)])
def test_a_block_is_128_tokens(length: int, blocks: int) -> None:
    pages = RequestPages(PagePool("window", 10), PagePool("entry", 10))
    pages.reserve(length)
    assert (len(pages.window), len(pages.entries)) == (blocks, blocks)


def test_a_window_page_is_given_back_when_no_position_in_it_is_needed() -> None:
    pages = RequestPages(PagePool("window", 10), PagePool("entry", 10))
    pages.reserve(4 * BLOCK_TOKENS)
    pages.slide(BLOCK_TOKENS - 1)
    assert NULL_PAGE not in pages.window
    pages.slide(BLOCK_TOKENS)
    assert [page == NULL_PAGE for page in pages.window] == [True, False, False, False]
    pages.slide(3 * BLOCK_TOKENS + 127)
    assert [page == NULL_PAGE for page in pages.window] == [True, True, True, False]
    assert NULL_PAGE not in pages.entries
