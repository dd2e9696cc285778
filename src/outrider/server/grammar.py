"""A grammar as text, and what JSON schemas are in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from outrider.server.errors import invalid

# Beyond these a schema takes seconds to compile, or its masks take milliseconds.
MAX_DEPTH = 64
MAX_PROPERTIES = 400  # of one object
MAX_NODES = 20_000  # objects and lists

# White space is bounded: a model that has nothing to say must not fill its answer with it.
_OPTIONS = {"whitespace_pattern": r" ?|\n[ \t]{0,40}", "lenient": False, "coerce_one_of": False}


@dataclass(frozen=True)
class Grammar:
    """text: rules in llguidance's dialect of Lark. schemas: the JSON schemas among them and the fields of the request
    that they came from, to tell which one cannot be served."""

    text: str
    schemas: tuple[tuple[str, Mapping[str, Any]], ...]


def json_rule(schema: Mapping[str, Any]) -> str:
    """JSON that follows the schema, as a part of a rule."""
    return "%json " + json.dumps({**schema, "x-guidance": _OPTIONS})


def check_schema(schema: Mapping[str, Any], field: str) -> None:
    """Raises ApiError, which names the field, for a schema that is too large or too deep to be compiled."""
    for count, (value, depth) in enumerate(subschemas(schema), start=1):
        properties = value.get("properties")
        if depth > MAX_DEPTH:
            raise invalid(field, f"it is nested deeper than {MAX_DEPTH}")
        if isinstance(properties, dict) and len(properties) > MAX_PROPERTIES:
            raise invalid(field, f"{len(properties)} properties in one object, at most {MAX_PROPERTIES} are served")
        if count > MAX_NODES:
            raise invalid(field, f"more than {MAX_NODES} objects in one schema")


def subschemas(schema: Any) -> Iterator[tuple[dict[str, Any], int]]:
    """Every object in it and its depth, the schema itself first (and at 1)."""
    stack = [(schema, 1)]
    while stack:
        value, depth = stack.pop()
        if isinstance(value, dict):
            yield value, depth
            stack += [(inner, depth + 1) for inner in value.values()]
        elif isinstance(value, list):
            stack += [(inner, depth + 1) for inner in value]
