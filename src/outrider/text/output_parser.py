"""Splits generated text, while it arrives, into content, reasoning and tool calls."""

from __future__ import annotations

from outrider.text.deltas import Delta


class OutputParser:
    """Reads one answer. However the text is cut into pieces, the deltas of one kind add up to the same.

    thinking: the prompt ended inside a thinking block, so the text begins with reasoning. tools: the request has tools;
    without them tool markup is content.
    """

    def __init__(self, thinking: bool, tools: bool) -> None:
        raise NotImplementedError

    def feed(self, text: str) -> list[Delta]:
        """What this piece of text completes; [] while it may still be the start of markup."""
        raise NotImplementedError

    def finish(self, truncated: bool) -> list[Delta]:
        """What is left at the end. truncated: the answer was cut (finish reason "length" or an abort), not ended.

        A call that was cut gets no `ToolCallEnd`.
        """
        raise NotImplementedError
