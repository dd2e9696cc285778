r"""Reads one call, from behind its opening tag to behind its closing one, and writes its arguments as JSON.

    <｜DSML｜invoke name="NAME">\n
    <｜DSML｜parameter name="KEY" string="true|false">VALUE</｜DSML｜parameter>\n   (one per argument)
    </｜DSML｜invoke>

string="true": the value is text as it stands, and its pieces are given out while it grows. Otherwise it is JSON, given
out when it is complete; what is no JSON after all (or has no `string`) is given out as text. A tag inside a string of
that JSON is part of it, unless a line ends behind the tag: no JSON string has a line end, and real tags do.

Malformed calls: the next parameter ends one that was not closed; `</invoke>`, the end of the block or the next invoke
do so too, unless `</parameter>` comes before any other parameter (then they are part of the value, as for DeepSeek's
parser); the end of the block or the next invoke ends a call that was not closed; a JSON object in place of parameters
is the arguments; of parameters of one name the first counts. A call with a tag or a body that cannot be read is never
complete.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from outrider.text.deltas import Delta, ToolCallArguments, ToolCallEnd, ToolCallStart
from outrider.text.json_value import JsonValue
from outrider.text.protocol import DSML

_PARAMETER = f"<{DSML}parameter"
_PARAMETER_END = f"</{DSML}parameter>"
_INVOKE = f"<{DSML}invoke"
_INVOKE_END = f"</{DSML}invoke>"
_BLOCK_ENDS = tuple(f"</{DSML}{name}>" for name in ("tool_calls", "toolcalls", "tool", "function_calls"))
_MARKS = (_PARAMETER, _PARAMETER_END, _INVOKE, _INVOKE_END, *_BLOCK_ENDS)
_LONGEST_MARK = max(map(len, _MARKS))
_LONGEST_TAG = 1000  # characters; what is longer is no parameter's tag

_MARK = re.compile("|".join(map(re.escape, _MARKS)))
_VALUE_END = re.compile(f"{re.escape(_PARAMETER_END)}|{re.escape(_PARAMETER)}")
# the shortest name that makes a tag, so that what follows can never change where the tag ends
_PARAMETER_TAG = re.compile(rf'{_PARAMETER} +name="([^\n]*?)"(?: +string="([^"\n]*)")? *>')


class ToolCallReader:
    """One call. deltas: where its start goes. empty: the opening tag closed itself. An empty name makes no call."""

    def __init__(self, index: int, name: str, deltas: list[Delta], *, empty: bool) -> None:
        self._index = index
        self._named = bool(name)
        self._ends = empty
        self._broken = False
        self._names: set[str] = set()
        self._body = ""  # text outside parameters
        self._parameter: str | None = None
        self._is_text = False
        self._ignored = False  # a parameter of a name that was there before
        self._value = JsonValue()  # of a JSON parameter, read so far
        if name:
            deltas.append(ToolCallStart(index, name))
            deltas.append(ToolCallArguments(index, "{"))

    def read(self, buffer: str, deltas: list[Delta]) -> tuple[bool, str]:
        """(whether the call ended, what of the buffer was not read: the rest, or what must wait)."""
        while not self._ends:
            before = buffer
            read = self._between if self._parameter is None else self._in_value
            buffer = read(buffer, deltas)
            if buffer == before and not self._ends:
                return False, buffer
        self._close(deltas)
        return True, buffer

    def finish(self, buffer: str, truncated: bool, deltas: list[Delta]) -> str:
        """The answer is over. What was held back and is not part of this call, if the model ended the answer."""
        if truncated:
            return ""
        if self._parameter is not None:
            mark = _MARK.search(buffer)
            if mark is None:  # it is unknown whether the value was complete
                return ""
            self._take_value(buffer[: mark.start()].removesuffix("\n"), deltas)
            self._end_value(deltas)
            return self.read(buffer[mark.start() :], deltas)[1]
        self._broken = self._broken or bool(buffer)  # half a tag
        self._close(deltas)
        return ""

    def _between(self, buffer: str, deltas: list[Delta]) -> str:
        """Reads what stands between parameters."""
        at = buffer.find("<")
        if at != 0:
            end = at if at > 0 else len(buffer)
            self._body += buffer[:end]
            return buffer[end:]
        mark = _MARK.match(buffer)
        if mark is None:
            if any(m.startswith(buffer) for m in _MARKS):
                return buffer
            self._body += buffer[0]
            return buffer[1:]
        if mark[0] == _INVOKE:
            self._ends = True
            return buffer
        if mark[0] == _PARAMETER:
            return self._open_parameter(buffer, deltas)
        self._ends = mark[0] != _PARAMETER_END
        return buffer[mark.end() :]

    def _open_parameter(self, buffer: str, deltas: list[Delta]) -> str:
        head = buffer[:_LONGEST_TAG]
        tag = _PARAMETER_TAG.match(head)
        if tag is None:
            if "\n" not in head and len(head) < _LONGEST_TAG:
                return buffer
            self._broken = True
            return buffer[len(_PARAMETER) :]
        self._parameter, self._is_text = tag[1], tag[2] == "true"
        self._ignored = tag[1] in self._names
        key = (", " if self._names else "") + _json(tag[1]) + ": "
        self._names.add(tag[1])
        if not self._ignored:
            self._give(key + ('"' if self._is_text else ""), deltas)
        return buffer[tag.end() :]

    def _in_value(self, buffer: str, deltas: list[Delta]) -> str:
        """Reads a parameter's value as far as it is certain."""
        mark = _MARK.search(buffer)
        if mark is None:
            certain = _certain(buffer)
            self._take_value(buffer[:certain], deltas)
            return buffer[certain:]
        if not self._is_text:
            before = buffer[: mark.start()].removesuffix("\n")
            if before:
                self._take_value(before, deltas)
                return buffer[len(before) :]
            if mark.start() == 0 and self._value.ends_in_string():
                if mark.end() == len(buffer):
                    return buffer
                if buffer[mark.end()] != "\n":
                    self._take_value(mark[0], deltas)
                    return buffer[mark.end() :]
        end = mark if mark[0] in (_PARAMETER, _PARAMETER_END) else _VALUE_END.search(buffer, mark.end())
        if end is None:
            certain = _certain(buffer[: mark.start()])
            self._take_value(buffer[:certain], deltas)
            return buffer[certain:]
        if end[0] == _PARAMETER_END:
            self._take_value(buffer[: end.start()], deltas)
            self._end_value(deltas)
            return buffer[end.end() :]
        self._take_value(buffer[: mark.start()].removesuffix("\n"), deltas)
        self._end_value(deltas)
        return buffer[mark.start() :]

    def _take_value(self, text: str, deltas: list[Delta]) -> None:
        if not self._is_text:
            self._value.append(text)
        elif text and not self._ignored:
            self._give(_json(text)[1:-1], deltas)

    def _end_value(self, deltas: list[Delta]) -> None:
        value, self._value, self._parameter = self._value.text(), JsonValue(), None
        if not self._ignored:
            self._give('"' if self._is_text else value if _is_json(value) else _json(value), deltas)

    def _give(self, text: str, deltas: list[Delta]) -> None:
        if self._named and not self._broken:
            deltas.append(ToolCallArguments(self._index, text))

    def _close(self, deltas: list[Delta]) -> None:
        body = self._body.strip()
        rest = "}"
        if body and not self._names:
            value = _object(body)
            self._broken = self._broken or value is None
            rest = _json(value)[1:]
        if self._named and not self._broken:
            deltas.append(ToolCallArguments(self._index, rest))
            deltas.append(ToolCallEnd(self._index))


def _certain(value: str) -> int:
    """Length of the part of a value that no text behind it can make something else.

    The rest may be the beginning of markup, or the line end before markup that is missing its `</parameter>`.
    """
    at = value.find("<", max(0, len(value) - _LONGEST_MARK))
    while at >= 0 and not any(mark.startswith(value[at:]) for mark in _MARKS):
        at = value.find("<", at + 1)
    end = len(value) if at < 0 else at
    return end - value[:end].endswith("\n")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return False
    return True


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
