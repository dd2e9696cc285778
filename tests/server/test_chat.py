"""/v1/chat/completions: answers, streams that add up to them, log-probabilities, reasoning and tool calls apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.server.serving import QUESTION, Api, shipped

from outrider.server.chat import _Message
from outrider.server.chat_request import ChatCompletionRequest
from outrider.server.continuation import Growth
from outrider.text.encoding import encode_chat
from outrider.text.output_parser import OutputParser

PATH = "/v1/chat/completions"
ASKED = [{"role": "user", "content": QUESTION}]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]
THINK_END_ID = shipped()[1].think_end_id
NO_THINK_END = {str(THINK_END_ID): -100, "1": -100}
CALL = (
    'One moment.\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="add">\n'
    '<｜DSML｜parameter name="to" string="true">you 你</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="n" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
    '<｜DSML｜invoke name="list">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>'
)


def answer(api: Api, **body: Any) -> dict[str, Any]:
    response = api.post(PATH, {"messages": ASKED, "temperature": 0, **body})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def test_the_shipped_model_answers(api: Api) -> None:
    found = answer(api)
    choice = found["choices"][0]
    assert choice["message"]["role"] == "assistant" and choice["message"]["content"]
    assert choice["finish_reason"] == "stop"
    assert found["usage"]["speculation"]["acceptance_length"] > 1
    plain = answer(api, speculation="off")
    assert plain["choices"][0]["message"] == choice["message"]
    assert plain["usage"]["speculation"]["num_draft_tokens"] == 0


def test_a_stream_adds_up_to_the_answer(api: Api) -> None:
    body = {"n": 2, "temperature": 1.0, "seed": 9, "max_completion_tokens": 20, "logprobs": True, "top_logprobs": 2}
    whole = answer(api, **body)
    events = api.stream(PATH, {"messages": ASKED, **body})
    for choice in whole["choices"]:
        own = [c for event in events for c in event["choices"] if c["index"] == choice["index"]]
        assert own[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(c["delta"].get("content", "") for c in own) == choice["message"]["content"]
        assert (own[-1]["delta"], own[-1]["finish_reason"]) == ({}, choice["finish_reason"])
        streamed = [entry for c in own if c["logprobs"] for entry in c["logprobs"]["content"]]
        assert streamed == choice["logprobs"]["content"]
        assert b"".join(bytes(entry["bytes"]) for entry in streamed).decode().startswith(choice["message"]["content"])
        assert all(len(entry["top_logprobs"]) == 2 for entry in streamed)


def test_parts_of_a_message_and_a_begun_answer(api: Api) -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]
    assert answer(api, messages=parts)["choices"][0]["message"] == answer(api)["choices"][0]["message"]
    whole = answer(api, logprobs=True)["choices"][0]
    text, first = whole["message"]["content"], whole["logprobs"]["content"][0]["token"]
    begun = [*ASKED, {"role": "assistant", "content": first}]
    assert answer(api, messages=begun, continue_final_message=True)["choices"][0]["message"][
        "content"
    ] == text.removeprefix(first)


def test_thinking_is_asked_for_in_three_ways(api: Api) -> None:
    def tokens(**fields: Any) -> list[int]:
        found: list[int] = api.post("/tokenize", {"messages": ASKED, **fields}).json()["tokens"]
        return found

    plain = tokens()
    thinking = tokens(reasoning_effort="high")
    assert plain != thinking
    assert tokens(thinking={"type": "enabled"}) == tokens(chat_template_kwargs={"thinking": True})
    for off in ({"thinking": {"type": "disabled"}}, {"reasoning_effort": "none"}):
        assert tokens(**off) == plain


def streamed(
    text: str, *, reason: str = "stop", by_model: bool = True, thinking: bool = False, parallel: bool = True
) -> tuple[Any, Any, str]:
    """(message, what its deltas add up to, finish reason) of a text that comes letter by letter."""
    message = _Message(OutputParser(thinking, True), None, parallel_calls=parallel)
    total: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": {}}
    growths = [Growth(text=letter) for letter in text]
    for growth in [*growths, Growth(finish_reason="length" if reason == "length" else "stop", ended_by_model=by_model)]:
        for delta in message.push(growth):
            for key in ("content", "reasoning_content"):
                total[key] += delta.get(key, "")
            for call in delta.get("tool_calls", ()):
                own = total["tool_calls"].setdefault(call["index"], {"arguments": ""})
                own["name"] = call["function"].get("name", own.get("name"))
                own["arguments"] += call["function"]["arguments"]
    return message.body(), total, message.finish_reason(reason)


def test_tool_calls() -> None:
    body, total, reason = streamed(CALL)
    assert reason == "tool_calls"
    assert body["content"] == total["content"] == "One moment."
    first, second = (call["function"] for call in body["tool_calls"])
    assert first["name"] == "add" and json.loads(first["arguments"]) == {"to": "you 你", "n": 3}
    assert second["name"] == "list" and json.loads(second["arguments"]) == {}
    assert list(total["tool_calls"].values()) == [first, second]
    assert len({call["id"] for call in body["tool_calls"]}) == 2
    assert len(streamed(CALL, parallel=False)[0]["tool_calls"]) == 1


@pytest.mark.parametrize("reason", ["length", "stop"])
@pytest.mark.parametrize("cut", range(CALL.index('string="false"'), CALL.index("</｜DSML｜invoke>"), 7))
def test_a_call_that_was_cut_is_not_returned(cut: int, reason: str) -> None:
    """Cut by a limit or by the client's own stop rule."""
    body, total, found = streamed(CALL[:cut], reason=reason, by_model=False)
    assert found == reason and "tool_calls" not in body
    for call in total["tool_calls"].values():
        with pytest.raises(json.JSONDecodeError):
            json.loads(call["arguments"])


def test_reasoning() -> None:
    body, total, reason = streamed("17 + 4 is 21.</think>21", thinking=True)
    assert body == {"role": "assistant", "content": "21", "reasoning_content": "17 + 4 is 21."}
    assert (total["content"], total["reasoning_content"], reason) == ("21", "17 + 4 is 21.", "stop")


def test_reasoning_tokens_end_with_their_end_token() -> None:
    message = _Message(OutputParser(True, False), 9, parallel_calls=True)
    for text, ids in (("one", [1, 2]), (" two", [3]), ("</think>2", [9, 4]), ("1", [5])):
        message.push(Growth(text=text, token_ids=ids))
    message.push(Growth(finish_reason="stop", ended_by_model=True))
    assert message.reasoning_tokens == 4
    assert message.body()["content"] == "21"


def test_usage_tells_the_tokens_of_reasoning(api: Api) -> None:
    assert answer(api)["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}
    usage = answer(api, reasoning_effort="high", max_tokens=20, logit_bias=NO_THINK_END)["usage"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] == usage["completion_tokens"] == 20
    body = {
        "messages": ASKED,
        "reasoning_effort": "high",
        "max_tokens": 20,
        "temperature": 0,
        "logit_bias": NO_THINK_END,
    }
    events = api.stream(PATH, {**body, "stream_options": {"include_usage": True}})
    assert events[-1]["usage"]["completion_tokens_details"] == {"reasoning_tokens": 20}


def test_developer_messages_are_system_messages_of_the_published_encoders() -> None:
    """OpenAI's newer name of the role: prompts are those that the published encoders make of `system`."""
    path = Path(__file__).parents[1] / "text" / "dialogues.json"
    checked = 0
    for dialogue in json.loads(path.read_text(encoding="utf-8")):
        request = dialogue["request"]
        roles = {message["role"] for message in request["messages"]}
        if "system" not in roles or "developer" in roles or any("task" in message for message in request["messages"]):
            continue
        messages = [m | {"role": "developer"} if m["role"] == "system" else m for m in request["messages"]]
        body = ChatCompletionRequest.model_validate({"messages": messages})
        assert encode_chat(**{**request, "messages": body.message_dicts()}) == dialogue["expected"], dialogue["name"]
        checked += 1
    assert checked >= 30


def test_drafts_are_marked_when_asked_for(api: Api) -> None:
    text = answer(api)["choices"][0]["message"]["content"]
    body = {"messages": ASKED, "temperature": 0, "stream_options": {"include_usage": True, "include_drafts": True}}
    *events, last = api.stream(PATH, body)
    choices = [choice for event in events for choice in event["choices"]]
    assert "".join(choice["delta"].get("content", "") for choice in choices) == text
    drafted = [choice["delta"]["content"] for choice in choices if choice.get("drafted")]
    own = [c["delta"]["content"] for c in choices if c["delta"].get("content") and not c["drafted"]]
    statistics = last["usage"]["speculation"]
    assert 0 < len(drafted) <= statistics["num_drafts"] and len(own) <= statistics["num_steps"] + 1
    assert own and len("".join(drafted)) + len("".join(own)) == len(text)
    plain = api.stream(PATH, {**body, "speculation": "off"})
    assert not any(choice.get("drafted") for event in plain for choice in event["choices"])
    assert not any("drafted" in c for e in api.stream(PATH, {"messages": ASKED}) for c in e["choices"])
