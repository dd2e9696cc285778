"""From chat messages to the tokens that the model continues."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.server.chat_request import ChatCompletionRequest
from outrider.server.served_model import ServedModel
from outrider.text.encoding import effort_generation, render_chat


@dataclass(frozen=True)
class TokenizedChat:
    """starts_in_reasoning: the answer begins inside a thinking block."""

    token_ids: list[int]
    starts_in_reasoning: bool


async def tokenize_chat(
    served: ServedModel, body: ChatCompletionRequest, tools: Sequence[Mapping[str, Any]]
) -> TokenizedChat:
    """Raises PromptError, which names the field, and ConfigError for a model that knows no chat turns."""
    prompt = render_chat(
        body.message_dicts(),
        tools=tools or None,
        thinking=body.thinking_mode,
        effort=body.reasoning_effort,
        generation=effort_generation(served.config),
        response_format=None if body.response_format is None else body.response_format.told(),
        continue_final_message=body.continue_final_message,
    )
    ids = await asyncio.to_thread(served.tokenizer.encode_prompt, prompt)
    return TokenizedChat(ids, prompt.starts_in_reasoning)
