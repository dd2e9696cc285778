"""Chat messages as clients send them, checked and put into the turns that the prompt has."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from outrider.text.protocol import TASKS

Role = Literal["system", "developer", "user", "assistant", "latest_reminder"]
_ROLES = ("system", "developer", "user", "assistant", "tool", "latest_reminder")


class PromptError(ValueError):
    """Messages or tools that cannot be rendered. param: where, e.g. `messages[2].content`."""

    def __init__(self, param: str, problem: str) -> None:
        super().__init__(f"{param}: {problem}")
        self.param = param


@dataclass(frozen=True)
class Call:
    """A call of an earlier answer. arguments: by name, in their order."""

    call_id: str | None
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Block:
    """A part of a user turn: text of the user (call_id None and not is_result) or a tool's result."""

    text: str
    is_result: bool = False
    call_id: str | None = None


@dataclass(frozen=True)
class Turn:
    """One turn of the prompt. blocks: of a user turn alone; content: of every other."""

    role: Role
    content: str = ""
    blocks: tuple[Block, ...] = ()
    reasoning: str = ""
    calls: tuple[Call, ...] = field(default=())
    task: str | None = None


def read_turns(messages: Sequence[Mapping[str, Any]]) -> list[Turn]:
    """Turns of these messages: results of tools and neighbouring user messages are one user turn.

    Results stand in the order of the calls that they answer. Raises PromptError.
    """
    if not messages:
        raise PromptError("messages", "empty; at least one message is needed")
    turns: list[Turn] = []
    for i, message in enumerate(messages):
        turn = _read(message, f"messages[{i}]")
        before = turns[-1] if turns else None
        joins = turn.role == "user" and before is not None and before.role == "user"
        if before is not None and joins and (before.task is None or turn.blocks[0].is_result):
            turns[-1] = replace(before, blocks=before.blocks + turn.blocks, task=before.task or turn.task)
        else:
            turns.append(turn)
    return _with_sorted_results(turns)


def _read(message: Mapping[str, Any], where: str) -> Turn:
    if not isinstance(message, Mapping):
        raise PromptError(where, "an object with role and content is expected")
    role = message.get("role")
    if role not in _ROLES:
        raise PromptError(f"{where}.role", f"found {role!r}; one of {', '.join(_ROLES)} is expected")
    task = message.get("task")
    if task is not None and task not in TASKS:
        raise PromptError(f"{where}.task", f"found {task!r}; one of {', '.join(TASKS)} is expected")
    content = _text(message.get("content"), f"{where}.content")
    if role == "tool":
        call_id = _optional_string(message, "tool_call_id", where)
        return Turn("user", blocks=(Block(content, is_result=True, call_id=call_id),))
    if role == "user":
        return Turn("user", blocks=(Block(content),), task=task)
    if role == "developer" and not content:
        raise PromptError(f"{where}.content", "empty; a developer message needs text")
    if role != "assistant":
        return Turn(role, content, task=task)
    # DeepSeek's name for it and the one that other servers give it
    reasoning = _optional_string(message, "reasoning_content", where) or _optional_string(message, "reasoning", where)
    return Turn("assistant", content, reasoning=reasoning or "", calls=_read_calls(message, where), task=task)


def _optional_string(message: Mapping[str, Any], name: str, where: str) -> str | None:
    value = message.get(name)
    if value is not None and not isinstance(value, str):
        raise PromptError(f"{where}.{name}", f"found {type(value).__name__}; a string is expected")
    return value


def _text(content: Any, where: str) -> str:
    """Text of a message's content: a string, or parts of type text, which a blank line separates."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise PromptError(where, f"found {type(content).__name__}; a string or a list of text parts is expected")
    texts = []
    for i, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind != "text":
            raise PromptError(f"{where}[{i}].type", f"found {kind!r}; DeepSeek-V4 reads parts of type 'text' alone")
        text = part.get("text")
        if not isinstance(text, str):
            raise PromptError(f"{where}[{i}].text", f"found {type(text).__name__}; a string is expected")
        texts.append(text)
    return "\n\n".join(texts)


def _read_calls(message: Mapping[str, Any], where: str) -> tuple[Call, ...]:
    entries = message.get("tool_calls") or []
    if not isinstance(entries, list):
        raise PromptError(f"{where}.tool_calls", f"found {type(entries).__name__}; a list is expected")
    calls = []
    for i, entry in enumerate(entries):
        at = f"{where}.tool_calls[{i}]"
        function = entry.get("function") if isinstance(entry, Mapping) else None
        if not isinstance(function, Mapping):
            raise PromptError(f"{at}.function", "an object with name and arguments is expected")
        name = function.get("name")
        if not isinstance(name, str) or not name:
            raise PromptError(f"{at}.function.name", "a name is expected")
        arguments = _read_arguments(function.get("arguments"), f"{at}.function.arguments")
        calls.append(Call(_optional_string(entry, "id", at), name, arguments))
    return tuple(calls)


def _read_arguments(arguments: Any, where: str) -> dict[str, Any]:
    """A JSON object, as an object or as text. Other text is kept: it becomes one argument named `arguments`."""
    if isinstance(arguments, Mapping):
        return dict(arguments)
    if not isinstance(arguments, str):
        raise PromptError(where, f"found {type(arguments).__name__}; a string that holds a JSON object is expected")
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"arguments": arguments}


def _with_sorted_results(turns: list[Turn]) -> list[Turn]:
    order: dict[str, int] = {}
    result = []
    for turn in turns:
        if turn.calls:
            order = {call.call_id: i for i, call in enumerate(turn.calls) if call.call_id}
        # results of unknown calls count as the first call's, as in the published encoders
        found = [block for block in turn.blocks if block.is_result]
        ordered = iter(sorted(found, key=lambda block: order.get(block.call_id or "", 0)))
        blocks = tuple(next(ordered) if block.is_result else block for block in turn.blocks)
        result.append(replace(turn, blocks=blocks))
    return result
