"""How much of a text repeats: looping text is easy to draft and flatters every speed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def distinct_share(tokens: Sequence[Hashable], n: int = 4) -> float | None:
    """Share of distinct n-grams among all of them; None for fewer than n tokens."""
    grams = list(zip(*(tokens[i:] for i in range(n)), strict=False))
    return len(set(grams)) / len(grams) if grams else None
