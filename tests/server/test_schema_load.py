"""Answers under grammars over a socket: several schemas at a time, and the openai client unmodified.

200 requests, 32 at a time: `python -m tests.server.schema_load`.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import jsonschema
import openai
from tests.server.process import SPECULATION, process
from tests.server.schema_load import END_BIAS, SCHEMAS, run, think_end_id
from tests.server.test_grammars import PARAMETERS


def test_answers_under_schemas_are_valid_with_speculation_and_the_openai_client_reads_them() -> None:
    with process("--speculative-config", SPECULATION, "--max-num-seqs", "8", "--max-model-len", "1024") as (_, url):
        tally = asyncio.run(run(url, requests=10, concurrent=5))
        assert tally.problems == []
        assert tally.valid == 10 and tally.called == 2 and tally.accepted > 0
        client: Any = openai.OpenAI(base_url=url, api_key="sesame", max_retries=0)
        _formats(client)
        _tools(client)


def _formats(client: Any) -> None:
    asked = {"model": "tiny", "messages": [{"role": "user", "content": "How many?"}], "seed": 5}
    schema = SCHEMAS[1]
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}}
    reasoned = client.chat.completions.create(
        **asked,
        response_format=wanted,
        extra_body={"thinking": {"type": "enabled"}, "logit_bias": {str(think_end_id()): END_BIAS}},
    )
    jsonschema.validate(json.loads(reasoned.choices[0].message.content), schema)
    assert reasoned.choices[0].message.model_extra["reasoning_content"]
    assert reasoned.usage.completion_tokens_details.reasoning_tokens > 1
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
