"""From chat messages to the tokens that the model continues."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from outrider.server.chat_request import ChatCompletionRequest
from outrider.server.served_model import ServedModel
from outrider.text.encoding import encode_chat


async def chat_prompt_ids(
    served: ServedModel, body: ChatCompletionRequest, tools: Sequence[Mapping[str, Any]]
) -> list[int]:
    """Raises PromptError, which names the field."""
    text = encode_chat(
        body.message_dicts(),
        tools=tools or None,
        thinking=body.thinking_mode,
        effort=body.reasoning_effort,
        continue_final_message=body.continue_final_message,
    )
    return await asyncio.to_thread(served.tokenizer.encode, text)
