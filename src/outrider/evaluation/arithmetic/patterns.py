"""A small language for sentences with many surfaces.

    {slot}         a word or number of the story
    [a|b|c]        one of the alternatives, drawn anew; they nest, and one may be empty
    <does/did>     the verb in the tense of the story

`read` parses a pattern once; `render` draws one surface of it.
"""

import re
from collections.abc import Mapping
from functools import cache
from random import Random
from typing import NamedTuple

_BLANKS = re.compile(" {2,}")  # around a word that was left out
_PIECE = re.compile(r"[\[\]|{}<>/]|[^\[\]|{}<>/]+")


class Slot(NamedTuple):
    name: str


class Choice(NamedTuple):
    alternatives: tuple["Pattern", ...]


class Tensed(NamedTuple):
    present: str
    past: str


Pattern = tuple[str | Slot | Choice | Tensed, ...]


@cache  # parts share most of their sentences
def read(text: str) -> Pattern:
    """The parsed pattern. Raises ValueError where brackets do not match."""
    pieces = _PIECE.findall(text)
    pattern, end = _sequence(pieces, 0)
    if end != len(pieces):
        raise ValueError(f"unmatched {pieces[end]!r} in the pattern {text!r}")
    return pattern


def _sequence(pieces: list[str], at: int) -> tuple[Pattern, int]:
    parts: list[str | Slot | Choice | Tensed] = []
    while at < len(pieces) and pieces[at] not in "]|":
        piece = pieces[at]
        if piece == "{":
            parts.append(Slot(pieces[at + 1]))
            _expect(pieces, at + 2, "}")
            at += 3
        elif piece == "<":
            _expect(pieces, at + 2, "/")
            _expect(pieces, at + 4, ">")
            parts.append(Tensed(pieces[at + 1], pieces[at + 3]))
            at += 5
        elif piece == "[":
            alternatives = []
            while True:
                inner, at = _sequence(pieces, at + 1)
                alternatives.append(inner)
                if at >= len(pieces) or pieces[at] == "]":
                    break
            _expect(pieces, at, "]")
            parts.append(Choice(tuple(alternatives)))
            at += 1
        else:
            parts.append(piece)
            at += 1
    return tuple(parts), at


def _expect(pieces: list[str], at: int, sign: str) -> None:
    if at >= len(pieces) or pieces[at] != sign:
        raise ValueError(f"expected {sign!r} after {''.join(pieces[:at])!r}")


@cache
def slots(pattern: Pattern) -> frozenset[str]:
    """The names of all slots of a pattern."""
    found: set[str] = set()
    for part in pattern:
        if isinstance(part, Slot):
            found.add(part.name)
        elif isinstance(part, Choice):
            found.update(*map(slots, part.alternatives))
    return frozenset(found)


def render(pattern: Pattern, rng: Random, fields: Mapping[str, object], past: bool) -> str:
    """One surface of the pattern; every sentence of it begins with a capital."""
    out: list[str] = []
    _render(pattern, rng, fields, past, out)
    text = _BLANKS.sub(" ", "".join(out))
    text = text.replace(" .", ".").replace(" ,", ",").strip()
    return ". ".join([part[:1].upper() + part[1:] for part in text.split(". ")])


def _render(pattern: Pattern, rng: Random, fields: Mapping[str, object], past: bool, out: list[str]) -> None:
    for part in pattern:
        if isinstance(part, str):
            out.append(part)
        elif isinstance(part, Slot):
            out.append(str(fields[part.name]))
        elif isinstance(part, Tensed):
            out.append(part.past if past else part.present)
        else:
            alternatives = part.alternatives
            _render(alternatives[int(rng.random() * len(alternatives))], rng, fields, past, out)
