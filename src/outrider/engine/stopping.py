"""When a text ends: checked token by token, so that what an accepted block holds after the end never existed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

FinishReason = Literal["stop", "length", "abort", "error"]
Detokenize = Callable[[Sequence[int]], str]


class StopRules:
    """The stop rules of one request, over its output tokens in order.

    stop_token_ids end the text with that token in it. A stop string ends it with the token that completes the string;
    the text is cut in front of the string (`text_limit`, in characters).
    """

    def __init__(
        self,
        *,
        max_tokens: int,
        min_tokens: int = 0,
        stop_token_ids: frozenset[int] = frozenset(),
        stop: Sequence[str] = (),
        detokenize: Detokenize | None = None,
    ) -> None:
        """detokenize: final text that further tokens complete (`IncrementalDetokenizer.push`), needed for `stop`."""
        self._max_tokens = max_tokens
        self._min_tokens = min_tokens
        self._stop_token_ids = stop_token_ids
        self._stop = tuple(stop)
        self._detokenize = detokenize
        self._reach = max((len(s) for s in self._stop), default=1) - 1  # of text before a new piece that may matter
        self._text = ""
        self._count = 0
        self.text_limit: int | None = None

    def push(self, token: int) -> FinishReason | None:
        """Takes the next output token; says whether the text ends with it."""
        self._count += 1
        if token in self._stop_token_ids:
            return "stop"
        if self._stop and self._detokenize is not None:
            piece = self._detokenize([token])
            start = max(0, len(self._text) - self._reach)
            self._text += piece
            if self._count > self._min_tokens:
                places = [at for s in self._stop if (at := self._text.find(s, start)) >= 0]
                if places:
                    self.text_limit = min(places)
                    return "stop"
        return "length" if self._count >= self._max_tokens else None
