"""From what the user typed to the tokens that the model continues."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from outrider.config import ConfigError, EngineConfig, ModelConfig

if TYPE_CHECKING:
    from outrider.text.tokenizer import Tokenizer


def read_prompt(argument: str, *, chat: bool) -> str:
    """The prompt's text: the argument, or standard input for "-".

    As it stands, but for one thing: a chat turn read from standard input loses its last line end. Raises ConfigError
    when it is empty or not UTF-8.
    """
    text = _read_stdin() if argument == "-" else argument
    if argument == "-" and chat:
        text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise ConfigError("prompt: it is empty")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:  # bytes of the command line that are not UTF-8 arrive as lone surrogates
        byte = ord(text[error.start]) & 0xFF
        raise ConfigError(f"prompt: not UTF-8 (byte 0x{byte:02x} after {error.start} characters)") from None
    return text


def _read_stdin() -> str:
    data = sys.stdin.buffer.read()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = data[error.start]
        raise ConfigError(f"prompt: standard input is not UTF-8 (byte 0x{byte:02x} at {error.start})") from None


def encode_prompt(text: str, tokenizer: Tokenizer, *, chat: bool) -> list[int]:
    """Begin token and text, or one user turn and the header of the answer."""
    return tokenizer.chat_prompt(text) if chat else tokenizer.completion_prompt(text)


def context_length(config: ModelConfig, options: EngineConfig, prompt_tokens: int, max_tokens: int) -> int:
    """Positions that this request may take, so that the cache is no larger than it needs to be.

    Raises ConfigError before any weight is read: a limit outside the model's, or a prompt that leaves no room.
    """
    limit = options.context_of(config)
    if prompt_tokens >= limit:
        raise ConfigError(f"prompt: its {prompt_tokens} tokens leave no room in a context of {limit}")
    return min(limit, prompt_tokens + max_tokens)
