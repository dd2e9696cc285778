"""Whatever is wrong with a request, the answer is a 4xx in OpenAI's shape that names the parameter."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.server.serving import Api, serving

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
HELLO = [{"role": "user", "content": "Hello"}]


def refused(api: Api, path: str, body: dict[str, Any], status: int = 400) -> dict[str, Any]:
    response = api.post(path, body)
    assert response.status_code == status, response.text
    assert set(response.json()) == {"error"}
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"] and "\n" not in error["message"]
    return error


BAD_FIELDS = [
    ({"temperature": -1}, "temperature"),
    ({"temperature": "0"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"temperature": 5e-324}, "temperature"),
    ({"repetition_penalty": 5e-324}, "repetition_penalty"),
    ({"top_p": 0}, "top_p"),
    ({"top_k": 2**40}, "top_k"),
    ({"n": 0}, "n"),
    ({"n": 129}, "n"),
    ({"n": 100}, "n"),  # more than the server ever holds
    ({"n": 1.5}, "n"),
    ({"seed": 2**64}, "seed"),
    ({"seed": "1"}, "seed"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 10**30}, "max_tokens"),
    ({"min_tokens": 9, "max_tokens": 8}, "min_tokens"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a"] * 17}, "stop"),
    ({"stop_token_ids": [4096]}, "stop_token_ids"),
    ({"logit_bias": {"4096": 1}}, "logit_bias"),
    ({"logit_bias": {"-1": 1}}, "logit_bias"),
    ({"logit_bias": {"book": 1}}, "logit_bias"),
    ({"logit_bias": {"5": 101}}, "logit_bias.5"),
    ({"frequency_penalty": 1e9}, "frequency_penalty"),
    ({"speculation": 4}, "speculation"),
    ({"speculation": -1}, "speculation"),
    ({"speculation": "on"}, "speculation"),
    ({"stream_options": {"include_usages": True}}, "stream_options.include_usages"),
    ({"max_token": 5}, "max_token"),
    ({"model": 3}, "model"),
]


@pytest.mark.parametrize(("fields", "param"), BAD_FIELDS, ids=[json.dumps(fields) for fields, _ in BAD_FIELDS])
def test_bad_field(api: Api, fields: dict[str, Any], param: str) -> None:
    error = refused(api, COMPLETIONS, {"prompt": "x", **fields})
    assert error["param"] in (param, param.partition(".")[0])
    assert error["param"] in error["message"]
    assert error["type"] == "invalid_request_error"
    assert api.idle()


@pytest.mark.parametrize("prompt", [[], [[]], [1, "a"], [[1], "a"], [True], [1.5], 3, None, [[1], []], {"a": 1}])
def test_bad_prompt(api: Api, prompt: Any) -> None:
    assert refused(api, COMPLETIONS, {"prompt": prompt})["param"] == "prompt"


@pytest.mark.parametrize("prompt", [[4096], [-1], [2**70]])
def test_tokens_outside_the_vocabulary(api: Api, prompt: list[int]) -> None:
    assert refused(api, COMPLETIONS, {"prompt": prompt})["param"] == "prompt"
    assert refused(api, "/detokenize", {"tokens": prompt})["param"] in ("tokens", "tokens[0]")


def test_a_prompt_that_leaves_no_room(api: Api) -> None:
    error = refused(api, COMPLETIONS, {"prompt": [5] * 512, "stream": True})
    assert (error["param"], error["code"]) == ("prompt", "context_length_exceeded")
    assert "512 tokens leave no room in a context of 512" in error["message"]
    error = refused(api, CHAT, {"messages": [{"role": "user", "content": "books " * 600}]})
    assert (error["param"], error["code"]) == ("messages", "context_length_exceeded")


CHAT_CASES: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
    ({"messages": HELLO, "max_completion_tokens": 0}, "max_completion_tokens"),
    ({"messages": HELLO, "top_logprobs": 3}, "top_logprobs"),
    ({"messages": HELLO, "logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"messages": HELLO, "reasoning_effort": "enormous"}, "reasoning_effort"),
    ({"messages": HELLO, "tool_choice": "required"}, "tool_choice"),
    ({"messages": HELLO, "functions": []}, "functions"),
    ({"messages": HELLO, "tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    ({"prompt": "x"}, "messages"),
]


@pytest.mark.parametrize(("body", "param"), CHAT_CASES, ids=[json.dumps(body)[:60] for body, _ in CHAT_CASES])
def test_bad_chat(api: Api, body: dict[str, Any], param: str) -> None:
    error = refused(api, CHAT, body)
    assert error["param"] == param and param in error["message"]


def test_unknown_fields_are_named_and_those_without_effect_are_not_missed(api: Api) -> None:
    error = refused(api, COMPLETIONS, {"prompt": "x", "maxtokens": 3})
    assert error["message"] == "Unrecognized request argument supplied: maxtokens"
    assert error["code"] == "unknown_parameter"
    body = {
        "prompt": "x",
        "max_tokens": 1,
        "user": "u",
        "metadata": {"a": "b"},
        "store": False,
        "seed": None,
        "n": None,
    }
    assert api.post(COMPLETIONS, body).status_code == 200


def test_a_model_that_is_not_here(api: Api) -> None:
    error = refused(api, COMPLETIONS, {"model": "gpt", "prompt": "x"}, 404)
    assert (error["param"], error["code"]) == ("model", "model_not_found")
    assert api.get("/v1/models/gpt").status_code == 404
    assert api.get("/v1/models/alias").json()["id"] == "alias"
    assert api.post(COMPLETIONS, {"model": "alias", "prompt": "x", "max_tokens": 1}).json()["model"] == "alias"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b"null",
        b'{"prompt": "x", "temperature": NaN}',
        b'{"prompt": "\\ud800", "max_tokens": 1}',
        b'{"prompt": "x", "\\ud800": 1}',
        b'{"prompt": "x", "n": ' + b"1" * 5000 + b"}",
        b"[" * 100_000,
        b'{"metadata": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001,
        b'{"prompt": "\xff"}',
    ],
    ids=range(12),
)
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT, "/tokenize"])
def test_bodies_that_are_no_request(api: Api, path: str, content: bytes) -> None:
    response = api.send("POST", path, content=content, headers={"content-type": "application/json"})
    assert response.status_code in (400, 415), response.text
    assert response.json()["error"]["message"]


def test_other_content_types_paths_and_methods(api: Api) -> None:
    response = api.send("POST", COMPLETIONS, content=b'{"prompt": "x"}', headers={"content-type": "text/plain"})
    assert response.status_code == 415 and "application/json" in response.json()["error"]["message"]
    assert api.get("/nowhere").json()["error"]["type"] == "not_found_error"
    assert api.get(COMPLETIONS).status_code == 405
    assert api.get("/docs").status_code == 404


def test_bodies_are_bounded_in_size_and_time() -> None:
    with serving(max_body_bytes=1000, body_seconds=0.05) as api:
        response = api.post(COMPLETIONS, {"prompt": "x" * 1000})
        assert response.status_code == 413 and response.json()["error"]["message"].startswith("the body is larger")

        async def endless() -> Any:
            while True:
                yield b" " * 100

        async def slow() -> Any:
            await asyncio.sleep(10)
            yield b"{}"

        for body, status in ((endless(), 413), (slow(), 408)):
            assert api.send("POST", COMPLETIONS, content=body).status_code == status


def test_api_key() -> None:
    with serving(api_key="sesame") as api:
        for headers in ({}, {"authorization": "Bearer sesam"}, {"authorization": "sesame"}):
            response = api.get("/v1/models", headers=headers)
            assert response.status_code == 401
            assert response.json()["error"]["code"] == "invalid_api_key"
            assert "sesam" not in response.text
        assert api.get("/v1/models", headers={"authorization": "Bearer sesame"}).status_code == 200
        assert all(api.get(path).status_code == 200 for path in ("/health", "/metrics", "/version"))
