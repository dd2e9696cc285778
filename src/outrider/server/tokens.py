"""/tokenize and /detokenize."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from pydantic import Field

from outrider.server.chat_prompt import tokenize_chat
from outrider.server.chat_request import ChatCompletionRequest
from outrider.server.errors import invalid
from outrider.server.fields import ApiModel
from outrider.server.served_model import ServedModel


class TokenizeRequest(ApiModel):
    """add_special_tokens: put the begin token in front, as /v1/completions does."""

    model: str | None = None
    prompt: str
    add_special_tokens: bool = True


class DetokenizeRequest(ApiModel):
    model: str | None = None
    tokens: Annotated[list[int], Field(max_length=1 << 22)]


async def tokenize(served: ServedModel, body: TokenizeRequest | ChatCompletionRequest) -> dict[str, Any]:
    """The tokens of a text, or those that a chat would begin with."""
    served.require_name(body.model)
    if isinstance(body, ChatCompletionRequest):
        ids = (await tokenize_chat(served, body, body.offered_tools)).token_ids
    else:
        encode = served.tokenizer.completion_prompt if body.add_special_tokens else served.tokenizer.encode
        ids = await asyncio.to_thread(encode, body.prompt)
    return {"count": len(ids), "max_model_len": served.max_model_len, "tokens": ids}


async def detokenize(served: ServedModel, body: DetokenizeRequest) -> dict[str, Any]:
    """The text, without begin, end and padding tokens. Raises ApiError for ids outside the vocabulary."""
    served.require_name(body.model)
    size = served.config.vocab_size
    for position, token in enumerate(body.tokens):
        if not 0 <= token < size:
            raise invalid(f"tokens[{position}]", f"{token} is outside the vocabulary of {size}")
    return {"prompt": await asyncio.to_thread(served.tokenizer.decode, body.tokens)}
