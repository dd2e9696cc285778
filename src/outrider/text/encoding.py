"""DeepSeek-V4's prompt grammar: from chat messages to the text that the model continues.

    prompt    = begin [effort prefix] {system text [tools] [response format]} turns header
    user turn = <｜User｜> texts and <tool_result>s, a blank line between them
    header    = <｜Assistant｜> (<think> | </think>)
    answer    = header [reasoning </think>] content [tool block] end

Nothing stands between the parts. The rules are those of `encode_messages`, as DeepSeek published it with the model and
vLLM ships it. DeepSeek's later package `deepseek-recipe` agrees but for calls without arguments, system messages after
the first turn, and two answers in a row; it is followed where `encode_messages` gives no answer a header to follow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from outrider.config import ModelConfig
from outrider.text.chat_prompt import ChatPrompt, PromptBuilder
from outrider.text.conversation import Call, PromptError, Turn, read_turns
from outrider.text.protocol import (
    ASSISTANT,
    BOS,
    DSML,
    EFFORT_PREFIXES,
    EOS,
    JSON_OBJECT,
    REMINDER,
    RESPONSE_FORMAT_TEMPLATE,
    TASKS,
    THINK,
    THINK_END,
    TOOLS_TEMPLATE,
    USER,
    Generation,
)

__all__ = ["ChatPrompt", "Generation", "PromptError", "Thinking", "effort_generation", "encode_chat", "render_chat"]

Thinking = Literal["chat", "thinking"]


def effort_generation(config: ModelConfig) -> Generation:
    """What the reasoning efforts mean to a checkpoint.

    The release of 31 July is known by the structure of its drafter; the preview of April has a plain MTP layer.
    """
    return "0731" if config.is_dspark else "preview"


def encode_chat(
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    thinking: Thinking = "chat",
    effort: str | None = None,
    generation: Generation = "preview",
    response_format: Mapping[str, Any] | None = None,
    drop_thinking: bool = True,
    continue_final_message: bool = False,
) -> str:
    """Text of `render_chat`, which says what the arguments are."""
    return render_chat(
        messages,
        tools=tools,
        thinking=thinking,
        effort=effort,
        generation=generation,
        response_format=response_format,
        drop_thinking=drop_thinking,
        continue_final_message=continue_final_message,
    ).text


def render_chat(
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    thinking: Thinking = "chat",
    effort: str | None = None,
    generation: Generation = "preview",
    response_format: Mapping[str, Any] | None = None,
    drop_thinking: bool = True,
    continue_final_message: bool = False,
) -> ChatPrompt:
    """The whole prompt, begin token included; `Tokenizer.encode_prompt` turns it into tokens.

    messages: as in OpenAI's chat API (`role`, `content` as text or text parts, `tool_calls`, `tool_call_id`), with
    `reasoning_content` (or `reasoning`) in assistant messages, and DeepSeek's role `latest_reminder` and field `task`.
    A `developer` message is what DeepSeek makes of it: a user turn that later turns forget when reasoning is dropped.
    tools: `{"type": "function", "function": {...}}` entries, put under the first system message.
    effort: None or one of none, minimal, low, medium, high, xhigh, max; "none" is chat mode whatever `thinking` says.
    generation: which of two meanings the efforts have; `effort_generation` says it of a checkpoint.
    response_format: as in OpenAI's API; the model is told of a JSON schema, or to answer in JSON.
    drop_thinking: leave out the reasoning before the last user turn (never done when there are tools).
    continue_final_message: the last message is an assistant's, and the model goes on writing it: its content, or where
    it has none, its reasoning.

    Raises PromptError, which names the field.
    """
    if effort is not None and effort != "none" and effort not in EFFORT_PREFIXES[generation]:
        levels = ", ".join(["none", *filter(None, EFFORT_PREFIXES[generation])])
        raise PromptError("reasoning_effort", f"found {effort!r}; one of {levels} is expected")
    thinks = thinking == "thinking" and effort != "none"
    turns = read_turns(messages)
    if continue_final_message and (turns[-1].role != "assistant" or turns[-1].calls):
        raise PromptError("messages", "the message to continue must be the last one, an assistant's without tool calls")
    if turns[-1].role == "latest_reminder":
        raise PromptError("messages", "a reminder must be followed by a user message")
    if (tools or _told_format(response_format)) and all(turn.role != "system" for turn in turns):
        turns.insert(0, Turn("system"))
    forgets = thinks and drop_thinking and not tools
    # after an answer that is not continued a new one begins, as if an empty user turn stood between them
    answers_again = turns[-1].role == "assistant" and turns[-1].task is None and not continue_final_message
    if forgets:
        turns = _without_earlier_reasoning(turns, len(turns) if answers_again else _last_user(turns))

    prompt = _Prompt(turns, thinks, forgets, len(turns) if answers_again else _last_user(turns))
    try:
        prompt.builder.token(BOS)
        if thinks:
            prompt.builder.markup(EFFORT_PREFIXES[generation][effort])
        for index in range(len(turns)):
            prompt.turn(index, tools, response_format, continue_final_message and index == len(turns) - 1)
        if answers_again:
            prompt.header(len(turns))
        rendered = prompt.builder.finish(prompt.in_reasoning)
        rendered.text.encode("utf-8")
    except UnicodeEncodeError:
        raise PromptError("messages", "a text or a tool holds half a surrogate pair, which is no character") from None
    except RecursionError:
        raise PromptError("tools", "nested too deeply") from None
    return rendered


def _last_user(turns: Sequence[Turn]) -> int:
    return max((i for i, turn in enumerate(turns) if turn.role in ("user", "developer")), default=-1)


def _without_earlier_reasoning(turns: Sequence[Turn], last: int) -> list[Turn]:
    return [
        replace(turn, reasoning="") if i < last else turn
        for i, turn in enumerate(turns)
        if i >= last or turn.role != "developer"
    ]


def _told_format(response_format: Mapping[str, Any] | None) -> str:
    """What the system text says about the format of answers. Raises PromptError."""
    kind = None if response_format is None else response_format.get("type")
    if response_format is None or kind == "text":
        return ""
    if kind == "json_object":
        return JSON_OBJECT
    described = response_format.get("json_schema")
    schema = described.get("schema") if isinstance(described, Mapping) else None
    if kind != "json_schema":
        raise PromptError("response_format.type", f"found {kind!r}; text, json_object or json_schema is expected")
    if not isinstance(schema, Mapping):
        raise PromptError("response_format.json_schema.schema", "a JSON schema is expected")
    return RESPONSE_FORMAT_TEMPLATE.replace("{schema}", _json(schema))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


class _Prompt:
    """A prompt under way: the turns, how they are rendered, and whether its end is inside a thinking block."""

    def __init__(self, turns: Sequence[Turn], thinks: bool, forgets: bool, last_user: int) -> None:
        self.builder = PromptBuilder()
        self.in_reasoning = False
        self._turns = turns
        self._thinks = thinks
        self._forgets = forgets
        self._last_user = last_user
        self._instructed = next((i for i, turn in enumerate(turns) if turn.role == "system"), None)

    def header(self, index: int) -> None:
        """Opens the answer that follows the turns before `index`, or the one after turn `index`."""
        self.in_reasoning = self._thinks and (not self._forgets or index >= self._last_user)
        self.builder.token(ASSISTANT)
        self.builder.token(THINK if self.in_reasoning else THINK_END)

    def turn(
        self,
        index: int,
        tools: Sequence[Mapping[str, Any]] | None,
        response_format: Mapping[str, Any] | None,
        continued: bool,
    ) -> None:
        turn, builder = self._turns[index], self.builder
        if turn.role == "system":
            builder.text(turn.content)
            if index == self._instructed:
                self._instructions(tools, response_format)
        elif turn.role == "user":
            builder.token(USER)
            results = (f"<tool_result>{b.text}</tool_result>" if b.is_result else b.text for b in turn.blocks)
            builder.text("\n\n".join(results))
        elif turn.role == "assistant":
            self._answer(index, continued)
        else:
            builder.token(USER if turn.role == "developer" else REMINDER)
            builder.text(turn.content)
        self._transition(index)

    def _instructions(
        self, tools: Sequence[Mapping[str, Any]] | None, response_format: Mapping[str, Any] | None
    ) -> None:
        if tools:
            self.builder.text("\n\n")
            schemas = "\n".join(_json(_function(tool, i)) for i, tool in enumerate(tools))
            filled = {"dsml_token": DSML, "thinking_start_token": THINK, "thinking_end_token": THINK_END}
            for piece in re.split(r"(\{\w+\})", TOOLS_TEMPLATE):
                if piece == "{tool_schemas}":
                    self.builder.text(schemas)
                else:
                    self.builder.markup(filled.get(piece.strip("{}"), piece))
        told = _told_format(response_format)
        if told:
            self.builder.text("\n\n" + told)

    def _answer(self, index: int, continued: bool) -> None:
        turn, builder = self._turns[index], self.builder
        answers_task = index > 0 and self._turns[index - 1].task is not None
        if self._thinks and not answers_task and (not self._forgets or index > self._last_user):
            builder.text(turn.reasoning)
            if not continued or turn.content:
                builder.token(THINK_END)
                self.in_reasoning = False
        builder.text(turn.content)
        if turn.calls:
            builder.markup(f"\n\n<{DSML}tool_calls>\n")
            for call in turn.calls:
                self._call(call)
            builder.markup(f"</{DSML}tool_calls>")
        if not continued:
            builder.token(EOS)

    def _call(self, call: Call) -> None:
        builder = self.builder
        builder.markup(f"<{DSML}invoke name=")
        builder.text(f'"{call.name}">\n')
        for i, (name, value) in enumerate(call.arguments.items()):
            is_string = isinstance(value, str)
            builder.markup(("\n" if i else "") + f"<{DSML}parameter name=")
            builder.text(f'"{name}" string="{"true" if is_string else "false"}">')
            builder.text(value if is_string else _json(value))
            builder.markup(f"</{DSML}parameter>")
        builder.markup(f"\n</{DSML}invoke>\n")

    def _transition(self, index: int) -> None:
        """What stands between a turn and an answer: a task's token, or the answer's header."""
        turn = self._turns[index]
        following = self._turns[index + 1].role if index + 1 < len(self._turns) else None
        if following not in (None, "assistant", "latest_reminder"):
            return
        if turn.task is not None:
            if turn.task == "action":
                self.builder.token(ASSISTANT)
                self.builder.token(THINK if self._thinks else THINK_END)
            self.builder.token(TASKS[turn.task])
            self.in_reasoning = False
        elif turn.role in ("user", "developer") or (turn.role == "system" and following != "latest_reminder"):
            self.header(index)


def _function(tool: Mapping[str, Any], index: int) -> Mapping[str, Any]:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping):
        raise PromptError(f"tools[{index}].function", "an object with a name is expected")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise PromptError(f"tools[{index}].function.name", "a name is expected")
    return function
