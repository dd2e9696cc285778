"""Answers under a grammar: valid, the same with and without speculation, and refused by field where impossible."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from tests.server.serving import Api, serving, shipped
from torch import Tensor

from outrider.server import grammars
from outrider.server.call_grammar import OPENING_TAG
from outrider.server.grammar_mask import GrammarMask
from outrider.text.encoding import ChatPrompt
from outrider.text.protocol import DSML

CHAT = "/v1/chat/completions"
ASKED = [{"role": "user", "content": "How many books are there?"}]
SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 999},
        "kind": {"enum": ["left", "right"]},
        "flags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["n", "kind", "flags"],
    "additionalProperties": False,
}
PARAMETERS = {
    "type": "object",
    "properties": {"to": {"type": "string", "maxLength": 9}, "n": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["to", "n"],
}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": PARAMETERS}}]


def formatted(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


@pytest.mark.parametrize("temperature", [0, 1])
def test_an_answer_follows_its_schema_and_is_the_same_without_speculation(api: Api, temperature: float) -> None:
    texts = []
    for speculation in ("auto", "off"):
        body = {"messages": ASKED, "temperature": temperature, "seed": 1, "speculation": speculation}
        found = api.post(CHAT, {**body, "response_format": formatted(SCHEMA)}).json()["choices"][0]
        assert found["finish_reason"] == "stop"
        texts.append(found["message"]["content"])
    assert texts[0] == texts[1]
    value = json.loads(texts[0])
    assert set(value) == {"n", "kind", "flags"}
    assert 0 <= value["n"] <= 999 and value["kind"] in ("left", "right")
    assert len(value["flags"]) <= 3 and all(isinstance(flag, bool) for flag in value["flags"])


def test_a_forced_call_parses_and_is_the_same_without_speculation() -> None:
    with serving(engine_options={"max_model_len": 1024}) as api:
        calls = []
        for speculation in ("auto", "off"):
            body = {"messages": ASKED, "tools": TOOLS, "temperature": 1, "seed": 2, "speculation": speculation}
            choice = {"type": "function", "function": {"name": "add"}}
            found = api.post(CHAT, {**body, "tool_choice": choice}).json()["choices"][0]
            assert found["finish_reason"] == "tool_calls"
            calls.append([call["function"] for call in found["message"]["tool_calls"]])
        assert calls[0] == calls[1]
        (call,) = calls[0]
        arguments = json.loads(call["arguments"])
        assert call["name"] == "add" and len(arguments["to"]) <= 9 and 0 <= arguments["n"] <= 99


class BeginsACall(GrammarMask):
    """The grammar's mask, narrowed to one token where the model has to say a few words and open a block of calls."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        begin = "Yes.\n\n" + OPENING_TAG
        at = begin.index(DSML)
        prompt = ChatPrompt(begin, ((at, at + len(DSML)),), starts_in_reasoning=False)
        self._script = shipped()[1].encode_prompt(prompt)
        self._said = 0

    def allowed(self, drafts: Sequence[int]) -> Tensor | None:
        found = super().allowed(drafts)
        place = self._said + len(drafts)
        if found is None or place >= len(self._script):
            return found
        assert found[self._script[place]], "the grammar does not let a call begin"
        only = found.new_zeros(found.shape)
        only[self._script[place]] = True
        return only

    def accept(self, token_ids: Sequence[int]) -> None:
        super().accept(token_ids)
        self._said += len(token_ids)


def test_a_call_that_the_model_begins_itself_follows_a_strict_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tool_choice` auto: a few words first."""
    monkeypatch.setattr(grammars, "GrammarMask", BeginsACall)
    function = {"name": "add", "parameters": PARAMETERS, "strict": True}
    strict = [{"type": "function", "function": function}]
    with serving(engine_options={"max_model_len": 1024}) as api:
        messages = []
        for speculation in ("auto", "off"):
            body = {"messages": ASKED, "tools": strict, "temperature": 1, "seed": 3, "speculation": speculation}
            found = api.post(CHAT, {**body, "parallel_tool_calls": False}).json()["choices"][0]
            assert found["finish_reason"] == "tool_calls"
            (call,) = found["message"]["tool_calls"]
            messages.append((found["message"]["content"], call["function"]))
        assert messages[0] == messages[1]
        content, function = messages[0]
        arguments = json.loads(function["arguments"])
        assert content == "Yes." and function["name"] == "add" and set(arguments) == {"to", "n"}
        assert len(arguments["to"]) <= 9 and type(arguments["n"]) is int and 0 <= arguments["n"] <= 99


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": formatted({"uniqueItems": True})}, "response_format.json_schema.schema"),
        ({"response_format": formatted({"$ref": "#"})}, "response_format.json_schema.schema"),
        ({"response_format": formatted(SCHEMA), "min_tokens": 3}, "min_tokens"),
        ({"response_format": formatted(SCHEMA), "ignore_eos": True}, "ignore_eos"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ],
)
def test_what_a_grammar_cannot_do_is_refused_by_field(api: Api, fields: dict[str, Any], param: str) -> None:
    response = api.post(CHAT, {"messages": ASKED, **fields})
    assert response.status_code == 400 and response.json()["error"]["param"] == param
    assert api.idle()
