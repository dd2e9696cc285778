"""The prefix index: which blocks a text finds again, and which are forgotten first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from outrider.cache.layout import BLOCK_TOKENS
from outrider.cache.pages import NULL_PAGE, PagePool, RequestPages
from outrider.cache.prefix import PrefixHit, PrefixIndex, block_names

TEXT = [7 * i % 512 for i in range(3 * BLOCK_TOKENS + 5)]


def pools(count: int = 12) -> tuple[PagePool, PagePool, PrefixIndex]:
    window, entry = PagePool("window", count), PagePool("entry", count)
    return window, entry, PrefixIndex(window, entry, sliding_window=BLOCK_TOKENS)


@given(
    length=st.integers(0, 300),
    other_length=st.integers(0, 300),
    changed=st.none() | st.integers(0, 299),
    salts=st.sampled_from([(b"", b""), (b"a", b"a"), (b"a", b""), (b"a", b"b")]),
)
def test_names_are_equal_as_far_as_texts_and_salts_are(
    length: int, other_length: int, changed: int | None, salts: tuple[bytes, bytes]
) -> None:
    text, other = TEXT[:length], TEXT[:other_length]
    if changed is not None and changed < other_length:
        other[changed] += 512
    names, other_names = block_names(text, salts[0]), block_names(other, salts[1])
    assert len(names) == length // BLOCK_TOKENS
    for block, (name, other_name) in enumerate(zip(names, other_names, strict=False)):
        end = (block + 1) * BLOCK_TOKENS
        assert (name == other_name) == (salts[0] == salts[1] and text[:end] == other[:end])
    assert len({*names}) == len(names)


def test_a_hit_ends_at_the_deepest_block_whose_window_page_is_left() -> None:
    window, entry, index = pools()
    pages = RequestPages(window, entry)
    pages.reserve(len(TEXT))
    names = block_names(TEXT)
    for block, name in enumerate(names):
        entry.name_page(pages.entries[block], name)
    assert index.find(names, len(TEXT)) is None
    window.name_page(pages.window[0], names[0])
    window.name_page(pages.window[1], names[1])
    assert index.find(names, len(TEXT)) == PrefixHit(tuple(pages.entries[:2]), pages.window[1])


def test_a_hit_needs_the_entry_pages_of_every_block_before() -> None:
    window, entry, index = pools()
    pages = RequestPages(window, entry)
    pages.reserve(len(TEXT))
    names = block_names(TEXT)
    for block in (0, 2):
        index.register(pages, block, names[block])
    found = index.find(names, len(TEXT))
    assert found is not None
    assert found.length == BLOCK_TOKENS


@given(st.integers(1, 3 * BLOCK_TOKENS + 5))
def test_one_token_at_least_is_left_to_compute(length: int) -> None:
    window, entry, index = pools()
    pages = RequestPages(window, entry)
    pages.reserve(len(TEXT))
    for block, name in enumerate(block_names(TEXT)):
        index.register(pages, block, name)
    hit = index.find(block_names(TEXT[:length]), length)
    assert (hit.length if hit else 0) == (length - 1) // BLOCK_TOKENS * BLOCK_TOKENS


def test_a_window_longer_than_a_block_cannot_resume() -> None:
    window, entry = PagePool("window", 5), PagePool("entry", 5)
    index = PrefixIndex(window, entry, sliding_window=BLOCK_TOKENS + 1)
    pages = RequestPages(window, entry)
    pages.reserve(BLOCK_TOKENS)
    (name,) = block_names(TEXT[:BLOCK_TOKENS])
    index.register(pages, 0, name)
    assert index.find([name], BLOCK_TOKENS + 1) is None


def test_a_page_that_somebody_holds_is_never_taken() -> None:
    window, entry, index = pools(3)
    first, second = RequestPages(window, entry), RequestPages(window, entry)
    first.reserve(BLOCK_TOKENS)
    (name,) = block_names(TEXT[:BLOCK_TOKENS])
    index.register(first, 0, name)
    hit = index.find([name], BLOCK_TOKENS + 1)
    assert hit is not None
    index.adopt(hit, second)
    first.release()
    assert window.free_count == entry.free_count == 1
    assert window.take() != hit.window
    assert window.free_count == 0
    second.release()
    assert window.free_count == 1
    assert index.find([name], BLOCK_TOKENS + 1) == hit


def test_the_least_recently_used_page_is_forgotten_first() -> None:
    pool = PagePool("entry", 4)
    pages = [pool.take() for _ in range(3)]
    for page, name in zip(pages, (b"a", b"b", b"c"), strict=True):
        assert pool.name_page(page, name)
    for page in pages:
        pool.give_back(page)
    pool.give_back(pool.share(pages[0]))  # used again
    for name in (b"b", b"c", b"a"):
        assert pool.find(name) is not None
        pool.take()
        assert pool.find(name) is None
    assert pool.free_count == 0


def test_of_one_text_the_end_is_forgotten_first() -> None:
    window, entry, index = pools(4)
    pages = RequestPages(window, entry)
    pages.reserve(3 * BLOCK_TOKENS)
    names = block_names(TEXT)
    for block, name in enumerate(names):
        index.register(pages, block, name)
    assert NULL_PAGE not in pages.window
    pages.release()
    for blocks in (2, 1, 0):
        entry.take()
        hit = index.find(names, len(TEXT))
        assert (hit.length if hit else 0) == blocks * BLOCK_TOKENS


def test_equal_blocks_computed_twice_keep_one_name() -> None:
    window, entry, index = pools()
    first, second = RequestPages(window, entry), RequestPages(window, entry)
    (name,) = block_names(TEXT[:BLOCK_TOKENS])
    for pages in (first, second):
        pages.reserve(BLOCK_TOKENS)
        index.register(pages, 0, name)
    held = first.window[0]
    second.release()
    assert index.find([name], BLOCK_TOKENS + 1) == PrefixHit((first.entries[0],), held)
    first.release()
    assert window.free_count == window.count - 1
