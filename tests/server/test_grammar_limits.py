"""Schemas that are too large, too deep or too slow: refused by field, and no worker is lost to them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tests.server.serving import Api
from tests.server.test_grammar_masks import vocabulary
from tests.server.test_grammars import ASKED, CHAT, formatted

from outrider.server.call_grammar import call_rules
from outrider.server.errors import ApiError
from outrider.server.grammar import MAX_DEPTH, MAX_NODES, MAX_PROPERTIES, Grammar, check_schema, json_rule
from outrider.server.grammar_trial import GrammarTrial
from outrider.server.grammars import MAX_TEXT, Grammars

SLOW = {"type": "integer", "multipleOf": 999_983}  # half a minute
QUICK = {"type": "boolean"}
FIELD = "response_format.json_schema.schema"


def grammar(schema: dict[str, Any]) -> Grammar:
    return Grammar(f"start: json\njson: {json_rule(schema)}", ((FIELD, schema),))


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels - 1):
        schema = {"items": schema}
    return schema


def wide(count: int) -> dict[str, Any]:
    return {"properties": {f"p{i}": True for i in range(count)}}


@pytest.mark.parametrize(
    ("fits", "too_much", "words"),
    [
        (deep(MAX_DEPTH), deep(MAX_DEPTH + 1), "nested deeper"),
        (wide(MAX_PROPERTIES), wide(MAX_PROPERTIES + 1), "properties in one object"),
        ({"enum": [{}] * (MAX_NODES - 1)}, {"enum": [{}] * MAX_NODES}, "objects in one schema"),
    ],
)
def test_limits_of_size(fits: dict[str, Any], too_much: dict[str, Any], words: str) -> None:
    check_schema(fits, "x")
    with pytest.raises(ApiError, match=words):
        check_schema(too_much, "x")


def test_both_ways_to_give_a_schema_are_limited(api: Api) -> None:
    for schema in (deep(MAX_DEPTH + 1), {"enum": ["x" * MAX_TEXT]}):
        response = api.post(CHAT, {"messages": ASKED, "response_format": formatted(schema)})
        assert response.status_code == 400 and response.json()["error"]["param"] == FIELD
    function = {"name": "f", "parameters": {"properties": {"a": deep(MAX_DEPTH)}}}
    with pytest.raises(ApiError, match="nested deeper") as refused:
        call_rules([("tools[0].function", function, True)], parallel=True)
    assert refused.value.param == "tools[0].function.parameters"


def test_a_slow_grammar_is_refused_and_its_workers_go_on() -> None:
    """More slow ones than there are workers, and then quick ones, all at once."""
    tokenizer, config, _ = vocabulary()
    grammars = Grammars(tokenizer, config, seconds=0.3)

    async def ask() -> list[Any]:
        slow = [grammars.masks(grammar({**SLOW, "title": str(i)}), 1) for i in range(3)]
        quick = [grammars.masks(grammar({**QUICK, "title": str(i)}), 1) for i in range(3)]
        return await asyncio.gather(*slow, *quick, return_exceptions=True)

    begin = time.monotonic()
    found = asyncio.run(ask())
    for error in found[:3]:
        assert isinstance(error, ApiError) and error.param == FIELD and "not ready within 0.3 s" in str(error)
    assert all(isinstance(masks, list) and len(masks) == 1 for masks in found[3:])
    assert time.monotonic() - begin < 20


def test_a_trial_ends_itself_and_another_begins() -> None:
    tokenizer, config, _ = vocabulary()
    trial = GrammarTrial(tokenizer, config, 0.3)
    assert trial.problem(grammar(QUICK).text, [], "x") is None
    assert trial._running is not None
    process, _connection = trial._running
    assert trial.problem(grammar(SLOW).text, [], "x") == ("x", "its grammar was not ready within 0.3 s")
    assert process.poll() is not None  # it is gone, although nobody stopped it
    assert trial.problem(grammar(QUICK).text, [], "x") is None
    process, _connection = trial._running
    process.kill()
    assert trial.problem(grammar(QUICK).text, [], "x") == ("x", "llguidance could not compile it")
    assert trial.problem(grammar(QUICK).text, [], "x") is None
    process = trial._running[0]
    del trial, _connection
    assert process.wait(10) is not None
