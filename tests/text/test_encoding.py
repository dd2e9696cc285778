"""Prompts are, to the byte, those of the published encoders; what cannot be rendered is refused by field."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tests.tiny import tiny_config
from tests.tiny_tokenizer import tiny_tokenizer

from outrider.config import parse_model_config
from outrider.text import protocol
from outrider.text.encoding import PromptError, effort_generation, encode_chat, render_chat
from outrider.text.tokenizer import Tokenizer

# written by record_dialogues.py, which says where the prompts come from
DIALOGUES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("dialogues.json").read_text(encoding="utf-8"))
U = {"role": "user", "content": "hi"}
CONFIG = parse_model_config(tiny_config())


@pytest.mark.parametrize("generation", ["preview", "0731"])
def test_prompts_of_the_published_encoders(generation: str) -> None:
    chosen = [d for d in DIALOGUES if d["request"]["generation"] == generation]
    assert len({json.dumps(d["request"]["messages"]) for d in chosen}) >= 30
    wrong = {d["name"]: encode_chat(**d["request"]) for d in chosen if encode_chat(**d["request"]) != d["expected"]}
    assert wrong == {}


def test_most_prompts_have_two_independent_encoders_behind_them() -> None:
    assert sum("deepseek-recipe 0.2.0" in d["agree"] for d in DIALOGUES) >= 30


@pytest.mark.parametrize(
    ("text", "length", "digest"),
    [
        (protocol.TOOLS_TEMPLATE, 1075, "09b7269daaddbeaf"),
        (protocol.ABSOLUTE_MAXIMUM, 476, "f7a24f3b3050d4a8"),
        (protocol.BEYOND_MAXIMUM, 526, "53fb31b8392ec5b4"),
        (protocol.RESPONSE_FORMAT_TEMPLATE, 88, "012f31fcc1338bdf"),
    ],
)
def test_protocol_texts_are_the_published_ones(text: str, length: int, digest: str) -> None:
    assert (len(text), hashlib.sha256(text.encode()).hexdigest()[:16]) == (length, digest)


def test_default_effort_and_generation_by_checkpoint() -> None:
    assert effort_generation(CONFIG) == "preview"
    assert effort_generation(CONFIG.model_copy(update={"dspark_block_size": 5})) == "0731"
    assert "Reasoning Effort" not in encode_chat([U], thinking="thinking")
    assert protocol.ABSOLUTE_MAXIMUM in encode_chat([U], thinking="thinking", generation="0731")
    assert encode_chat([U], thinking="thinking", effort="none", generation="0731") == encode_chat([U])


@pytest.mark.parametrize(
    ("request_", "inside"),
    [
        ({"messages": [U]}, False),
        ({"messages": [U], "thinking": "thinking"}, True),
        ({"messages": [U], "thinking": "thinking", "effort": "none"}, False),
        ({"messages": [{**U, "task": "action"}], "thinking": "thinking"}, False),
        ({"messages": [U, {"role": "assistant", "content": "a"}], "thinking": "thinking"}, True),
    ],
)
def test_prompt_knows_whether_reasoning_follows(request_: dict[str, Any], inside: bool) -> None:
    assert render_chat(**request_).starts_in_reasoning is inside


@pytest.mark.parametrize(("reasoning", "content", "inside"), [("so", "", True), ("so", "4 is", False), ("", "", True)])
def test_continued_answer(reasoning: str, content: str, inside: bool) -> None:
    answer = {"role": "assistant", "content": content, "reasoning_content": reasoning}
    prompt = render_chat([U, answer], thinking="thinking", continue_final_message=True)
    assert prompt.starts_in_reasoning is inside
    end = f"<think>{reasoning}" + ("" if inside else f"</think>{content}")
    assert prompt.text == f"{protocol.BOS}{protocol.USER}hi{protocol.ASSISTANT}{end}"


def call(arguments: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": arguments}}]}


NESTED: list[Any] = []
for _ in range(100_000):
    NESTED = [NESTED]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    ("request_", "param", "problem"),
    [
        ({"messages": []}, "messages", "empty"),
        ({"messages": ["hi"]}, "messages[0]", "an object"),
        ({"messages": [{"role": "robot", "content": ""}]}, "messages[0].role", "found 'robot'"),
        ({"messages": [U, {"role": "user", "content": 3}]}, "messages[1].content", "found int"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type", "text"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text", "NoneType"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages", "surrogate"),
        ({"messages": [{"role": "developer", "content": ""}, U]}, "messages[0].content", "empty"),
        ({"messages": [{**U, "task": "cook"}]}, "messages[0].task", "found 'cook'"),
        ({"messages": [{"role": "assistant", "reasoning_content": []}]}, "messages[0].reasoning_content", "a string"),
        ({"messages": [{"role": "tool", "tool_call_id": 1, "content": ""}]}, "messages[0].tool_call_id", "a string"),
        ({"messages": [U, {"role": "assistant", "tool_calls": "f()"}]}, "messages[1].tool_calls", "a list"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0].function", "an object"),
        ({"messages": [call(None)]}, "messages[0].tool_calls[0].function.arguments", "JSON object"),
        ({"messages": [U, {"role": "latest_reminder", "content": "x"}]}, "messages", "followed by a user"),
        ({"messages": [U], "continue_final_message": True}, "messages", "to continue"),
        ({"messages": [U, call("{}")], "continue_final_message": True}, "messages", "without tool calls"),
        ({"messages": [U], "effort": "huge"}, "reasoning_effort", "one of none, minimal, low"),
        ({"messages": [U], "tools": [{"type": "function"}]}, "tools[0].function", "an object"),
        ({"messages": [U], "tools": [TOOL, {"function": {"name": ""}}]}, "tools[1].function.name", "a name"),
        ({"messages": [U], "tools": [{"function": {"name": "f", "parameters": NESTED}}]}, "tools", "nested"),
        ({"messages": [U], "response_format": {"type": "xml"}}, "response_format.type", "found 'xml'"),
        ({"messages": [U], "response_format": {"type": "json_schema"}}, "response_format.json_schema.schema", "schema"),
    ],
)
def test_what_cannot_be_rendered_is_refused_by_field(request_: dict[str, Any], param: str, problem: str) -> None:
    with pytest.raises(PromptError) as error:
        encode_chat(**request_)
    assert error.value.param == param
    assert problem in str(error.value)


def test_messages_are_left_as_they_were() -> None:
    messages = [U, call('{"a": 1}'), {"role": "tool", "tool_call_id": "1", "content": "x"}]
    before = json.dumps(messages)
    encode_chat(messages, tools=[TOOL])
    assert json.dumps(messages) == before


TOKENIZER = Tokenizer(tiny_tokenizer(), CONFIG)


PIECES = ["a", " ", "the", "\n", "<｜User｜>", "<｜Assistant｜>", "</think>", "<think>", protocol.EOS, "<｜"]


@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
def test_texts_of_people_hold_no_tokens_of_the_protocol(text: str) -> None:
    ids = TOKENIZER.encode_prompt(render_chat([{"role": "user", "content": text}]))
    names = [tiny_tokenizer().id_to_token(i) for i in ids]
    assert [n for n in names if n in ("<｜User｜>", "<｜Assistant｜>", "</think>")] == [
        "<｜User｜>",
        "<｜Assistant｜>",
        "</think>",
    ]
    assert TOKENIZER.decode(ids) == f"<｜User｜>{text}<｜Assistant｜></think>"


def test_tokens_of_a_prompt_without_markup_in_its_texts_are_those_of_its_text() -> None:
    for dialogue in DIALOGUES:
        if "looks like" not in dialogue["name"]:
            prompt = render_chat(**dialogue["request"])
            assert TOKENIZER.encode_prompt(prompt) == TOKENIZER.encode(prompt.text)


def test_bare_tokenizer_still_has_no_chat() -> None:
    bare = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={"a": 0}, merges=[]))
    with pytest.raises(ValueError, match="knows no chat"):
        Tokenizer(bare, CONFIG).encode_prompt(render_chat([U]))
