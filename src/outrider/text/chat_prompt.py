"""A rendered prompt, which knows what in it is protocol and what somebody wrote."""

from __future__ import annotations

import re
from dataclasses import dataclass

from outrider.text.protocol import DSML, THINK, THINK_END

_MARKUP_TOKENS = re.compile("|".join(map(re.escape, (DSML, THINK, THINK_END))))


@dataclass(frozen=True)
class ChatPrompt:
    """text: the prompt, begin token included. token_spans: ascending, disjoint (start, end) ranges of `text`, in
    characters, that are tokens of the protocol; whatever else looks like one was written by somebody and is plain text.
    starts_in_reasoning: the model continues inside a thinking block.
    """

    text: str
    token_spans: tuple[tuple[int, int], ...]
    starts_in_reasoning: bool


class PromptBuilder:
    """Puts a prompt together, part by part."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0
        self._spans: list[tuple[int, int]] = []

    def text(self, text: str) -> None:
        """What somebody wrote: no token of the protocol is in it, whatever it looks like."""
        self._parts.append(text)
        self._length += len(text)

    def token(self, token: str) -> None:
        self._spans.append((self._length, self._length + len(token)))
        self.text(token)

    def markup(self, text: str) -> None:
        """Text of the protocol: thinking and DSML tokens in it are tokens."""
        at = 0
        for match in _MARKUP_TOKENS.finditer(text):
            self.text(text[at : match.start()])
            self.token(match.group())
            at = match.end()
        self.text(text[at:])

    def finish(self, starts_in_reasoning: bool) -> ChatPrompt:
        return ChatPrompt("".join(self._parts), tuple(self._spans), starts_in_reasoning)
