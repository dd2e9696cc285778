"""Pages of a pool, and the pages that one request holds."""

from __future__ import annotations

from outrider.cache.layout import BLOCK_TOKENS

NULL_PAGE = 0  # rows of zeros, read where a query has no key and never written


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

    @property
    def free_count(self) -> int:
        return len(self._free)

    def require(self, count: int) -> None:
        """Raises OutOfPagesError when fewer than `count` pages are free."""
        if count > len(self._free):
            raise OutOfPagesError(
                f"{self.name} pool: {count} more pages are needed, {len(self._free)} of {self.count - 1} are free"
            )

    def take(self) -> int:
        """Raises OutOfPagesError when nothing is free."""
        if not self._free:
            raise OutOfPagesError(f"{self.name} pool: all {self.count - 1} pages are in use")
        return self._free.pop()

    def give_back(self, page: int) -> None:
        assert page != NULL_PAGE and page not in self._free, f"page {page} is not in use"
        self._free.append(page)


class RequestPages:
    """The pages of one request, by logical block (position // BLOCK_TOKENS)."""

    def __init__(self, window_pool: PagePool, entry_pool: PagePool) -> None:
        self._window_pool = window_pool
        self._entry_pool = entry_pool
        self.window: list[int] = []  # NULL_PAGE where the window has slid past
        self.entries: list[int] = []

    def reserve(self, length: int) -> None:
        """Makes sure that positions 0 .. length-1 have pages. Raises OutOfPagesError, and then takes none at all."""
        blocks = -(-length // BLOCK_TOKENS)
        self._window_pool.require(blocks - len(self.window))
        self._entry_pool.require(blocks - len(self.entries))
        while len(self.window) < blocks:
            self.window.append(self._window_pool.take())
        while len(self.entries) < blocks:
            self.entries.append(self._entry_pool.take())

    def slide(self, first_needed: int) -> None:
        """Gives back window pages that lie wholly below position `first_needed`."""
        for block in range(min(first_needed // BLOCK_TOKENS, len(self.window)) - 1, -1, -1):
            if self.window[block] == NULL_PAGE:
                break
            self._window_pool.give_back(self.window[block])
            self.window[block] = NULL_PAGE

    def release(self) -> None:
        """Gives everything back."""
        for page in self.window:
            if page != NULL_PAGE:
                self._window_pool.give_back(page)
        for page in self.entries:
            self._entry_pool.give_back(page)
        self.window.clear()
        self.entries.clear()
