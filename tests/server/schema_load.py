"""Many answers under JSON schemas at a time, with speculation: `python -m tests.server.schema_load`.

Starts a server of the shipped model and sends `requests` chats, `concurrent` of them at a time, with a fifth of them
reasoning first, a fifth calling a function. Every answer must be JSON that follows its schema, as `jsonschema` sees
it. Prints one JSON object; exits with 1 if an answer did not follow.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

import httpx
import jsonschema
from tests.server.process import SPECULATION, process

from outrider.assets import shipped_model
from outrider.checkpoint.reader import Checkpoint
from outrider.engine.loading import load_tokenizer

KEY = {"Authorization": "Bearer sesame"}
SCHEMAS: list[dict[str, Any]] = [
    {
        "type": "object",
        "properties": {
            "total": {"type": "integer", "minimum": 0, "maximum": 9999},
            "kind": {"enum": ["add", "take"]},
            "steps": {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 1, "maxItems": 3},
        },
        "required": ["total", "kind", "steps"],
        "additionalProperties": False,
    },
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 5},
    {
        "$defs": {"item": {"type": "object", "properties": {"name": {"type": "string", "pattern": "^[a-z]{1,6}$"}}}},
        "type": "object",
        "properties": {
            "first": {"$ref": "#/$defs/item", "additionalProperties": False},
            "second": {"anyOf": [{"type": "null"}, {"type": "integer", "minimum": -5, "maximum": 5}]},
        },
        "required": ["second"],
        "additionalProperties": False,
    },
]


@cache
def think_end_id() -> int:
    checkpoint = Checkpoint.open(shipped_model())
    found = load_tokenizer(checkpoint).think_end_id
    assert found is not None
    return found


def end_bias(url: str) -> float:
    """For `logit_bias`: with it, reasoning of the shipped model ends after about ten tokens, whatever its weights.

    From the log-probability of the end behind a few beginnings of its reasoning.
    """
    with httpx.Client(base_url=url.removesuffix("/v1"), headers=KEY, timeout=60) as client:
        asked = {"messages": [{"role": "user", "content": "Tom has 3 books."}], "thinking": {"type": "enabled"}}
        prompt = client.post("/tokenize", json=asked).json()["tokens"]
        text = client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 16, "temperature": 1, "seed": 1})
        said = {"prompt": text.json()["choices"][0]["text"], "add_special_tokens": False}
        begun = client.post("/tokenize", json=said).json()["tokens"]
        prompts = [[*prompt, *begun[:length], think_end_id()] for length in (2, 5, 8)]
        body = {"prompt": prompts, "max_tokens": 0, "echo": True, "logprobs": 0}
        choices = client.post("/v1/completions", json=body).json()["choices"]
        ends = [choice["logprobs"]["token_logprobs"][-1] for choice in choices]
    return round(min(100.0, -sum(ends) / len(ends) - 2.0), 1)


@dataclass
class Tally:
    """What came of the requests."""

    requests: int
    concurrent: int
    seconds: float = 0.0
    valid: int = 0
    reasoned: int = 0
    called: int = 0
    drafts: int = 0
    accepted: int = 0
    problems: list[str] = field(default_factory=list)


async def run(url: str, requests: int, concurrent: int) -> Tally:
    """url: of the API, /v1 included."""
    tally = Tally(requests, concurrent)
    bias = await asyncio.to_thread(end_bias, url)
    places = asyncio.Semaphore(concurrent)
    begin = time.monotonic()
    async with httpx.AsyncClient(timeout=300, headers=KEY, limits=httpx.Limits(max_connections=None)) as client:

        async def one(number: int) -> None:
            async with places:
                try:
                    await _ask(client, url, number, bias, tally)
                except Exception as error:
                    tally.problems.append(f"request {number}: {error!r}"[:500])

        await asyncio.gather(*(one(number) for number in range(requests)))
    tally.seconds = round(time.monotonic() - begin, 1)
    return tally


async def _ask(client: httpx.AsyncClient, url: str, number: int, bias: float, tally: Tally) -> None:
    rng = random.Random(number)
    schema = SCHEMAS[number % len(SCHEMAS)]
    calls, reasons = number % 5 == 3, number % 5 == 4
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": f"Tom has {rng.randrange(99)} books. He gives 3 away."}],
        "temperature": rng.choice((0, 0.7, 1.0)),
        "seed": number,
    }
    if calls:
        schema = {"type": "object", "properties": {"answer": SCHEMAS[1]}, "required": ["answer"]}
        function = {"name": "give", "parameters": schema}
        body |= {"tools": [{"type": "function", "function": function}], "tool_choice": "required"}
        body["parallel_tool_calls"] = False
    else:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    if reasons:
        body["temperature"] = 1.0
        # the shipped model has not learnt to end its reasoning
        body |= {"thinking": {"type": "enabled"}, "logit_bias": {str(think_end_id()): bias}}
    response = await client.post(f"{url}/chat/completions", json=body)
    assert response.status_code == 200, response.text
    found = response.json()
    choice = found["choices"][0]
    assert choice["finish_reason"] == ("tool_calls" if calls else "stop"), choice
    message = choice["message"]
    texts = [call["function"]["arguments"] for call in message["tool_calls"]] if calls else [message["content"]]
    for text in texts:
        jsonschema.validate(json.loads(text), schema)
    tally.valid += 1
    tally.called += calls
    tally.reasoned += bool(message.get("reasoning_content"))
    speculation = found["usage"]["speculation"]
    tally.drafts += speculation["num_draft_tokens"]
    tally.accepted += speculation["num_accepted_tokens"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--concurrent", type=int, default=32)
    options = parser.parse_args()
    with process("--speculative-config", SPECULATION, "--max-num-seqs", "32", "--max-model-len", "1024") as (_, url):
        tally = asyncio.run(run(url, options.requests, options.concurrent))
    print(json.dumps(asdict(tally), indent=1))
    sys.exit(bool(tally.problems))


if __name__ == "__main__":
    main()
