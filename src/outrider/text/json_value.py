"""A JSON value that arrives in pieces, and whether it has come to the middle of a string."""

from __future__ import annotations

import re

# possessive: what was matched is never tried again, so a value is read in one pass
_STRING = r'(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+'
_NUMBER = r"-?[0-9]++(?:\.[0-9]++)?+(?:[eE][-+]?[0-9]++)?+"
_IN_STRING = re.compile(_STRING)
_TOKENS = re.compile(rf'(?:[ \t\n\r,:\[\]{{}}]|{_NUMBER}|true|false|null|"{_STRING}")*+')


class JsonValue:
    """The text so far. Every character is looked at once, however often `ends_in_string` is asked."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._read = 0  # pieces that were looked at
        self._in_string = False
        self._is_json = True

    def append(self, piece: str) -> None:
        self._pieces.append(piece)

    def text(self) -> str:
        return "".join(self._pieces)

    def ends_in_string(self) -> bool:
        """Whether the text is made of JSON's tokens, the last of them a string that has not ended.

        To be asked where markup begins: an escape or a number that is cut there does not go on behind it.
        """
        self._look_at("".join(self._pieces[self._read :]))
        self._read = len(self._pieces)
        return self._in_string and self._is_json

    def _look_at(self, text: str) -> None:
        at = 0
        if self._in_string:
            at = _end(_IN_STRING, text, 0)
            if at == len(text):
                return
            self._in_string, self._is_json = False, self._is_json and text[at] == '"'
            at += 1
        at = _end(_TOKENS, text, at)
        if self._is_json and at < len(text):
            self._is_json = text[at] == '"'
            self._in_string = _end(_IN_STRING, text, at + 1) == len(text)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    assert found is not None  # both patterns match nothing too
    return found.end()
