"""Answers under grammars over a socket: several schemas at a time, and the openai client unmodified.

The whole load is slow; it is `python -m tests.server.schema_load` too.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import jsonschema
import openai
import pytest
from tests.server.process import SPECULATION, process
from tests.server.schema_load import SCHEMAS, end_bias, run, think_end_id
from tests.server.test_grammars import PARAMETERS

OPTIONS = ("--speculative-config", SPECULATION, "--max-num-seqs", "32", "--max-model-len", "1024")


def test_answers_under_schemas_are_valid_with_speculation_and_the_openai_client_reads_them() -> None:
    with process(*OPTIONS) as (_, url):
        tally = asyncio.run(run(url, requests=5, concurrent=5))
        assert tally.problems == []
        assert tally.valid == 5 and tally.called == 1 and tally.accepted > 0
        client: Any = openai.OpenAI(base_url=url, api_key="sesame", max_retries=0)
        _formats(client, end_bias(url))
        _tools(client)


@pytest.mark.slow
def test_two_hundred_answers_at_32_a_time() -> None:
    with process(*OPTIONS) as (_, url):
        tally = asyncio.run(run(url, requests=200, concurrent=32))
    assert tally.problems == []
    assert tally.valid == 200 and tally.called == 40 and tally.accepted > 0


def _formats(client: Any, bias: float) -> None:
    asked = {"model": "tiny", "messages": [{"role": "user", "content": "How many?"}], "seed": 5}
    schema = SCHEMAS[1]
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}}
    reasoned = client.chat.completions.create(
        **asked,
        n=2,
        response_format=wanted,
        extra_body={"thinking": {"type": "enabled"}, "logit_bias": {str(think_end_id()): bias}},
    )
    for choice in reasoned.choices:
        jsonschema.validate(json.loads(choice.message.content), schema)
    assert any(choice.message.model_extra.get("reasoning_content") for choice in reasoned.choices)
    assert reasoned.usage.completion_tokens_details.reasoning_tokens > 2
    with client.chat.completions.create(**asked, response_format=wanted, stream=True) as stream:
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    jsonschema.validate(json.loads(streamed), schema)


def _tools(client: Any) -> None:
    asked = {"model": "tiny", "messages": [{"role": "user", "content": "How many?"}], "seed": 5}
    functions = [{"name": name, "parameters": PARAMETERS, "strict": True} for name in ("add", "take")]
    tools = [{"type": "function", "function": function} for function in functions]
    named = {"type": "function", "function": {"name": "take"}}
    for choice in ("required", named):
        answer = client.chat.completions.create(
            **asked, tools=tools, tool_choice=choice, parallel_tool_calls=False, max_tokens=200
        ).choices[0]
        assert answer.finish_reason == "tool_calls"
        (call,) = answer.message.tool_calls
        assert call.function.name in (("take",) if choice == named else ("add", "take"))
        jsonschema.validate(json.loads(call.function.arguments), PARAMETERS)
