"""DeepSeek-V4's prompt grammar: from chat messages to the text that the model continues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

Thinking = Literal["chat", "thinking"]
Generation = Literal["preview", "0731"]


class PromptError(ValueError):
    """Messages or tools that cannot be rendered. param: where, e.g. `messages[2].content`, as OpenAI's errors name it."""

    def __init__(self, param: str, problem: str) -> None:
        super().__init__(f"{param}: {problem}")
        self.param = param


def encode_chat(
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    thinking: Thinking = "chat",
    effort: str | None = None,
    generation: Generation = "0731",
    response_format: Mapping[str, Any] | None = None,
    drop_thinking: bool = True,
    continue_final_message: bool = False,
) -> str:
    """The whole prompt, begin token included (tokenize it as it stands, adding nothing).

    messages: as in OpenAI's chat API (`role`, `content` as text or text parts, `tool_calls`, `tool_call_id`), with
    `reasoning_content` in assistant messages. tools: `{"type": "function", "function": {...}}` entries.
    effort: None or one of none, minimal, low, medium, high, xhigh, max; "none" is chat mode whatever `thinking` says.
    generation: which of the two meanings the efforts have, `effort_generation(config)` says it of a checkpoint.
    response_format: as in OpenAI's API. drop_thinking: leave out the reasoning of turns before the last user message
    (never done when there are tools). continue_final_message: the last message is an assistant's and is to be continued.

    Raises PromptError, which names the field.
    """
    raise NotImplementedError
