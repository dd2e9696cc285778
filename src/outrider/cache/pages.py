"""Pages of a pool, shared by content, and the pages that one request holds.

A page whose block is complete can be given a name (the hash of all tokens up to the block's end). It then outlives its
request: while nobody holds it, it waits in the order of its last use, and is taken again either by name, by a request
with the same prefix, or as an empty page, oldest first, when nothing else is free.
"""

from __future__ import annotations

from collections import OrderedDict

from outrider.cache.layout import BLOCK_TOKENS

NULL_PAGE = 0  # rows of zeros, read where a query has no key and never written

BlockName = bytes


class OutOfPagesError(RuntimeError):
    """A pool has fewer free pages than a request needs."""


class PagePool:
    """Hands out page numbers 1 .. count-1; page 0 is the null page."""

    def __init__(self, name: str, count: int) -> None:
        if count < 2:
            raise ValueError(f"{name} pool: {count} pages leave none to hand out")
        self.name = name
        self.count = count
        self._free = list(range(count - 1, NULL_PAGE, -1))
        self._holders = [0] * count
        self._names: dict[int, BlockName] = {}
        self._pages: dict[BlockName, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()  # named, held by nobody, least recently used first

    @property
    def free_count(self) -> int:
        """Pages that `take` can give: empty ones, and named ones that nobody holds."""
        return len(self._free) + len(self._idle)

    def require(self, count: int) -> None:
        """Raises OutOfPagesError when fewer than `count` pages are free."""
        if count > self.free_count:
            raise OutOfPagesError(
                f"{self.name} pool: {count} more pages are needed, {self.free_count} of {self.count - 1} are free"
            )

    def take(self) -> int:
        """An empty page, held once. Raises OutOfPagesError when every page is held."""
        if self._free:
            page = self._free.pop()
        elif self._idle:
            page, _ = self._idle.popitem(last=False)
            del self._pages[self._names.pop(page)]
        else:
            raise OutOfPagesError(f"{self.name} pool: all {self.count - 1} pages are in use")
        self._holders[page] = 1
        return page

    def give_back(self, page: int) -> None:
        """Ends one hold. A named page keeps its content as long as there is room."""
        assert page != NULL_PAGE and self._holders[page] > 0, f"page {page} is not in use"
        self._holders[page] -= 1
        if self._holders[page] == 0:
            if page in self._names:
                self._idle[page] = None
            else:
                self._free.append(page)

    def name_page(self, page: int, name: BlockName) -> bool:
        """Names a held page; False when another page has the name already (its content is the same)."""
        assert self._holders[page] > 0, f"page {page} is not in use"
        if name in self._pages:
            return False
        self._pages[name] = page
        self._names[page] = name
        return True

    def find(self, name: BlockName) -> int | None:
        return self._pages.get(name)

    def share(self, page: int) -> int:
        """One more hold on a named page; returns it."""
        assert page in self._names
        self._holders[page] += 1
        self._idle.pop(page, None)
        return page

    def forget_names(self) -> None:
        """Drops all names: what is idle becomes empty."""
        self._free.extend(self._idle)
        self._idle.clear()
        self._names.clear()
        self._pages.clear()


class RequestPages:
    """The pages of one request, by logical block (position // BLOCK_TOKENS)."""

    def __init__(self, window_pool: PagePool, entry_pool: PagePool) -> None:
        self.window_pool = window_pool
        self.entry_pool = entry_pool
        self.window: list[int] = []  # NULL_PAGE where the window has slid past
        self.entries: list[int] = []

    def missing(self, length: int) -> tuple[int, int]:
        """(window pages, entry pages) that `reserve(length)` would take."""
        blocks = -(-length // BLOCK_TOKENS)
        return max(blocks - len(self.window), 0), max(blocks - len(self.entries), 0)

    def can_reserve(self, length: int) -> bool:
        window, entries = self.missing(length)
        return window <= self.window_pool.free_count and entries <= self.entry_pool.free_count

    def reserve(self, length: int) -> None:
        """Makes sure that positions 0 .. length-1 have pages. Raises OutOfPagesError and then takes none."""
        window, entries = self.missing(length)
        self.window_pool.require(window)
        self.entry_pool.require(entries)
        self.window += [self.window_pool.take() for _ in range(window)]
        self.entries += [self.entry_pool.take() for _ in range(entries)]

    def slide(self, first_needed: int) -> None:
        """Gives back window pages that lie wholly below position `first_needed`."""
        for block in range(min(first_needed // BLOCK_TOKENS, len(self.window)) - 1, -1, -1):
            if self.window[block] == NULL_PAGE:
                break
            self.window_pool.give_back(self.window[block])
            self.window[block] = NULL_PAGE

    def release(self) -> None:
        """Gives everything back, the latest blocks first: of a prefix, the end is the first to be forgotten."""
        for page in reversed(self.window):
            if page != NULL_PAGE:
                self.window_pool.give_back(page)
        for page in reversed(self.entries):
            self.entry_pool.give_back(page)
        self.window.clear()
        self.entries.clear()
