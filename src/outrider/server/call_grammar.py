r"""The grammar of tool calls, in the markup that `text/output_parser.py` reads.

    \n\n<｜DSML｜tool_calls>\n
    <｜DSML｜invoke name="NAME">\n  (<｜DSML｜parameter name="KEY" string="true|false">VALUE</｜DSML｜parameter>\n)*
    </｜DSML｜invoke>\n  ...
    </｜DSML｜tool_calls>

Parameters stand in the order of the schema. A plain text is written as it stands, without DSML tags in it; every other
value is JSON that its own schema constrains. The rules are in llguidance's dialect of Lark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from outrider.server.errors import invalid
from outrider.server.grammar import Grammar, check_schema, json_rule, subschemas
from outrider.text.protocol import DSML

# text without any DSML tag, as a regular expression
PLAIN = rf"(/(.|\n)*/ & ~/(.|\n)*<\/?{DSML}(.|\n)*/)"
_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "deprecated", "$comment"})
_OBJECT = frozenset({"type", "properties", "required", "additionalProperties", "$defs", "definitions", "$schema"})
_TEXT = frozenset({"type", "enum", "const", "minLength", "maxLength"})
_MAX_NAME = 256  # characters


def quoted(text: str) -> str:
    """A literal of the grammar."""
    return json.dumps(text, ensure_ascii=False)


OPENING_TAG = f"<{DSML}tool_calls>\n"
_BLOCK_BEGIN, _BLOCK_END = quoted("\n\n" + OPENING_TAG), quoted(f"</{DSML}tool_calls>")
_CALL_END, _VALUE_END = quoted(f"</{DSML}invoke>\n"), quoted(f"</{DSML}parameter>")
_NEWLINE, _QUOTE = quoted("\n"), quoted('"')
_AS_TEXT, _AS_JSON = quoted(' string="true">'), quoted(' string="false">')


def call_rules(functions: Sequence[tuple[str, Mapping[str, Any], bool]], *, parallel: bool) -> Grammar:
    """Rules `calls`, the whole block, and `calls_behind_tag`, the same behind its opening tag.

    functions: (field, function as in OpenAI's `tools`, whether its schema binds the arguments). parallel: more than
    one call may be made. Raises ApiError, which names the field, for a schema that cannot be written as parameters.
    """
    lines = [
        f"calls: {_BLOCK_BEGIN} calls_behind_tag",
        f"calls_behind_tag: {'call+' if parallel else 'call'} {_BLOCK_END}",
        "call: " + " | ".join(f"call_{i}" for i in range(len(functions))),
        f"TEXT_VALUE: {PLAIN} {_VALUE_END}",
        f"free_parameter: {_parameter_tag()} PARAMETER_NAME {_QUOTE} free_value",
        f"free_value: {_AS_TEXT} TEXT_VALUE | {_AS_JSON} {json_rule({})} {_VALUE_END}",
        'PARAMETER_NAME: /[^"<>\\n]{1,64}/',
    ]
    schemas: list[tuple[str, Mapping[str, Any]]] = []
    for i, (field, function, binding) in enumerate(functions):
        head = f'<{DSML}invoke name="{function["name"]}">\n'
        lines.append(f"call_{i}: {quoted(head)} arguments_{i} {_CALL_END}")
        if not binding or _takes_anything(function):
            found, needed = Grammar(f"parameters_{i}: (free_parameter {_NEWLINE})*", ()), False
        else:
            parameters = _Parameters(i, function.get("parameters") or {}, f"{field}.parameters")
            found, needed = parameters.rules(), bool(parameters.required)
        # DeepSeek's prompts show a call without arguments with an empty line
        lines.append(f"arguments_{i}: parameters_{i}" + ("" if needed else f" | {_NEWLINE}"))
        lines.append(found.text)
        schemas += found.schemas
    return Grammar("\n".join(lines), tuple(schemas))


def _parameter_tag(rest: str = "") -> str:
    return quoted(f'<{DSML}parameter name="{rest}')


def _takes_anything(function: Mapping[str, Any]) -> bool:
    """Whether it has a schema that names no parameter and forbids none."""
    parameters = function.get("parameters")
    return (
        parameters is not None
        and not parameters.get("properties")
        and parameters.get("additionalProperties", True) is True
        and not parameters.get("required")
    )


class _Parameters:
    """The parameters of one function."""

    def __init__(self, number: int, schema: Mapping[str, Any], where: str) -> None:
        self._number = number
        self._where = where
        self._schema = schema
        check_schema(schema, where)
        unknown = sorted(schema.keys() - _OBJECT - _ANNOTATIONS)
        if unknown:
            raise invalid(f"{where}.{unknown[0]}", "a grammar of calls cannot express it beside the properties")
        if schema.get("type", "object") != "object":
            raise invalid(f"{where}.type", f"found {schema['type']!r}; arguments of a function are an object")
        self._properties = self._object("properties")
        required = schema.get("required", [])
        if not isinstance(required, list) or not all(isinstance(n, str) and n in self._properties for n in required):
            raise invalid(f"{where}.required", "a list of names of properties is expected")
        self.required = frozenset(required)
        self._definitions = {key: self._object(key) for key in ("$defs", "definitions") if key in schema}
        _check_references(self._definitions, where)

    def rules(self) -> Grammar:
        parts, lines = [], []
        schemas: list[tuple[str, Mapping[str, Any]]] = []
        for index, (name, schema) in enumerate(self._properties.items()):
            rule = f"parameter_{self._number}_{index}"
            parts.append(f"({rule} {_NEWLINE})" + ("" if name in self.required else "?"))
            tag = _parameter_tag(self._checked(name) + '"')
            value = self._value(rule, schema, f"{self._where}.properties.{name}")
            lines.append(f"{rule}: {tag} {value.text}")
            schemas += value.schemas
        head = f"parameters_{self._number}: {' '.join(parts) or quoted('')}"
        return Grammar("\n".join([head, *lines]), tuple(schemas))

    def _value(self, rule: str, schema: Any, where: str) -> Grammar:
        """What follows the name in a parameter's tag; terminals that it needs on lines of their own."""
        if not isinstance(schema, dict | bool):
            raise invalid(where, "a JSON schema is expected")
        if DSML in json.dumps(schema, ensure_ascii=False):
            raise invalid(where, f"{DSML} cannot stand in the value of a parameter")
        if isinstance(schema, dict) and (text := _text_value(rule.upper(), schema)) is not None:
            return Grammar(f"{_AS_TEXT} {text}", ())
        own = self._closed(schema, where)
        return Grammar(f"{_AS_JSON} {json_rule(own)} {_VALUE_END}", ((where, own),))

    def _closed(self, schema: dict[str, Any] | bool, where: str) -> dict[str, Any]:
        """The schema with the definitions that it may refer to."""
        if isinstance(schema, bool):
            return {} if schema else {"not": {}}
        return {**self._definitions, **schema} if _check_references(schema, where) else schema

    def _checked(self, name: str) -> str:
        if len(name) > _MAX_NAME or re.search('["<>\n]', name):
            raise invalid(f"{self._where}.properties", f"{name[:80]!r} cannot be the name of a parameter")
        return name

    def _object(self, key: str) -> dict[str, Any]:
        value = self._schema.get(key, {})
        if not isinstance(value, dict):
            raise invalid(f"{self._where}.{key}", "an object is expected")
        return value


def _text_value(terminal: str, schema: Mapping[str, Any]) -> str | None:
    """The value of a plain text parameter and its end; None for a schema that a text as it stands cannot follow."""
    if schema.get("type") != "string" or not schema.keys() <= _TEXT | _ANNOTATIONS:
        return None
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    least, most = schema.get("minLength", 0), schema.get("maxLength", "")
    if choices is not None:
        if not choices or not all(isinstance(choice, str) for choice in choices) or least or most != "":
            return None
        return f"({' | '.join(quoted(choice) for choice in choices)}) {_VALUE_END}"
    if not least and most == "":
        return "TEXT_VALUE"
    if not _is_count(least) or not (most == "" or _is_count(most)):
        return None
    return f"{terminal}\n{terminal}: (/(.|\\n){{{least},{most}}}/ & {PLAIN}) {_VALUE_END}"


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


def _check_references(schema: Any, where: str) -> bool:
    """Whether there is a $ref in it. Raises ApiError for one that does not lead to a definition."""
    found = False
    for value, _ in subschemas(schema):
        reference = value.get("$ref")
        if isinstance(reference, str):
            found = True
            if not reference.startswith(("#/$defs/", "#/definitions/")):
                raise invalid(where, f"a $ref to {reference[:80]!r}; those to #/$defs/ and #/definitions/ are served")
    return found
