"""Prefix reuse: blocks are found again by the tokens that lead up to their end.

A request that starts with the same tokens resumes at the end of a block b if the entry pages of blocks 0 .. b and the
window page of block b are still there: the window page holds the rows of the last 128 tokens, the drafter's and the
compressors' partial rows among them, and the residual streams of its last token beside it. At least one token is always
computed anew, since somebody wants its logits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.cache.layout import BLOCK_TOKENS
from outrider.cache.pages import NULL_PAGE, BlockName, PagePool, RequestPages


def block_names(token_ids: Sequence[int], salt: bytes = b"") -> list[BlockName]:
    """Names of the complete blocks of a text: each is a hash of every token up to the block's end."""
    names = []
    digest = hashlib.blake2b(salt, digest_size=16).digest()
    for end in range(BLOCK_TOKENS, len(token_ids) + 1, BLOCK_TOKENS):
        block = token_ids[end - BLOCK_TOKENS : end]
        digest = hashlib.blake2b(digest + b"".join(t.to_bytes(4, "little") for t in block), digest_size=16).digest()
        names.append(digest)
    return names


@dataclass(frozen=True)
class PrefixHit:
    """entries: pages of blocks 0 .. b; window: page of block b. `length` tokens need not be computed."""

    entries: tuple[int, ...]
    window: int

    @property
    def length(self) -> int:
        return len(self.entries) * BLOCK_TOKENS


class PrefixIndex:
    """Finds and registers blocks in the two pools."""

    def __init__(self, window_pool: PagePool, entry_pool: PagePool, *, sliding_window: int) -> None:
        self._window_pool = window_pool
        self._entry_pool = entry_pool
        # one window page must hold all that a row at the block's end still reads
        self.enabled = sliding_window <= BLOCK_TOKENS

    def find(self, names: Sequence[BlockName], token_count: int) -> PrefixHit | None:
        """The deepest block of a text of `token_count` tokens from which it can resume."""
        if not self.enabled:
            return None
        entries: list[int] = []
        hit = None
        for name in names[: (token_count - 1) // BLOCK_TOKENS]:
            page = self._entry_pool.find(name)
            if page is None:
                break
            entries.append(page)
            window = self._window_pool.find(name)
            if window is not None:
                hit = PrefixHit(tuple(entries), window)
        return hit

    def adopt(self, hit: PrefixHit, pages: RequestPages) -> None:
        """Gives a request, which holds nothing yet, the pages of a hit."""
        assert not pages.window and not pages.entries
        pages.entries = [self._entry_pool.share(page) for page in hit.entries]
        pages.window = [NULL_PAGE] * (len(hit.entries) - 1) + [self._window_pool.share(hit.window)]

    def register(self, pages: RequestPages, block: int, name: BlockName) -> None:
        """Names the pages of a block of which every row is final."""
        if self.enabled:
            self._entry_pool.name_page(pages.entries[block], name)
            if pages.window[block] != NULL_PAGE:
                self._window_pool.name_page(pages.window[block], name)
