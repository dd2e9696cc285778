"""What a streamed answer is made of: pieces of content, of reasoning, and of tool calls."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Content:
    """More of the answer that the user reads. text: never empty."""

    text: str


@dataclass(frozen=True)
class Reasoning:
    """More of the thinking block. text: never empty."""

    text: str


@dataclass(frozen=True)
class ToolCallStart:
    """A call begins. index: 0, 1, ... in the order of the calls. name: the function's, complete and not empty."""

    index: int
    name: str


@dataclass(frozen=True)
class ToolCallArguments:
    """More of a call's arguments.

    text: a piece of one JSON object. The pieces of a call add up to valid JSON exactly when its `ToolCallEnd` follows:
    those of a call that was cut lack the closing brace, so nobody can run it by mistake.
    """

    index: int
    text: str


@dataclass(frozen=True)
class ToolCallEnd:
    """The call is complete and may be run. A call without it must not be."""

    index: int


Delta = Content | Reasoning | ToolCallStart | ToolCallArguments | ToolCallEnd
