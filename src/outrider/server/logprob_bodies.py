"""Log-probabilities in the two shapes of OpenAI's API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outrider.sampling.logprobs import TokenLogprobs
from outrider.text.tokenizer import Tokenizer

_LOWEST = -9999.0  # JSON has no -inf


def completion_logprobs(
    tokenizer: Tokenizer,
    token_ids: Sequence[int],
    logprobs: Sequence[TokenLogprobs | None],
    offsets: Sequence[int],
) -> dict[str, Any]:
    """Of /v1/completions. logprobs: None for the first token of a prompt, before which nothing stands."""
    return {
        "tokens": [_name(tokenizer, token) for token in token_ids],
        "token_logprobs": [
            None if own is None else _finite(own[token]) for token, own in zip(token_ids, logprobs, strict=True)
        ],
        "top_logprobs": [None if own is None else _best(tokenizer, own) for own in logprobs],
        "text_offset": list(offsets),
    }


def chat_logprobs(
    tokenizer: Tokenizer, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs | None], count: int
) -> dict[str, Any]:
    """Of /v1/chat/completions."""
    content = []
    for token, own in zip(token_ids, logprobs, strict=True):
        assert own is not None  # it is no prompt's first token
        best = sorted(own.items(), key=lambda item: -item[1])[:count]
        top = [_entry(tokenizer, other, value) for other, value in best]
        content.append({**_entry(tokenizer, token, own[token]), "top_logprobs": top})
    return {"content": content, "refusal": None}


def _best(tokenizer: Tokenizer, own: TokenLogprobs) -> dict[str, float]:
    """By name; of two tokens with one name the likelier one counts."""
    named: dict[str, float] = {}
    for token, value in sorted(own.items(), key=lambda item: item[1]):
        named[_name(tokenizer, token)] = _finite(value)
    return named


def _entry(tokenizer: Tokenizer, token: int, value: float) -> dict[str, Any]:
    data = tokenizer.token_bytes(token)
    return {"token": data.decode("utf-8", "replace"), "logprob": _finite(value), "bytes": list(data)}


def _name(tokenizer: Tokenizer, token: int) -> str:
    """A token's text; `bytes:\\xf0\\x9f` for one that is not whole characters."""
    data = tokenizer.token_bytes(token)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def _finite(value: float) -> float:
    return max(value, _LOWEST)
