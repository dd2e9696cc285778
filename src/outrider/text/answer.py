"""A whole answer, put together from its deltas."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from outrider.text.deltas import Content, Delta, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart


@dataclass(frozen=True)
class ToolCall:
    """A complete call. arguments: a JSON object, as text."""

    name: str
    arguments: str


@dataclass(frozen=True)
class Answer:
    """tool_calls: those that may be run; calls that were cut or cannot be read are not among them."""

    content: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]


def collect(deltas: Iterable[Delta]) -> Answer:
    """The answer that these deltas make up."""
    content, reasoning = [], []
    names: dict[int, str] = {}
    arguments: dict[int, list[str]] = {}
    complete: list[int] = []
    for delta in deltas:
        match delta:
            case Content(text):
                content.append(text)
            case Reasoning(text):
                reasoning.append(text)
            case ToolCallStart(index, name):
                names[index], arguments[index] = name, []
            case ToolCallArguments(index, text):
                arguments[index].append(text)
            case ToolCallEnd(index):
                complete.append(index)
    calls = tuple(ToolCall(names[i], "".join(arguments[i])) for i in complete)
    return Answer("".join(content), "".join(reasoning), calls)
