"""What is asked: built-in sets, files, random tokens.

The kind of text decides how many drafts stand, so every result names it. Random tokens give loads of exact lengths, and
an acceptance that means nothing.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from outrider.config import ConfigError, shown
from outrider.text.tokenizer import Tokenizer

_SETS = Path(__file__).with_name("prompt_sets.toml")
RANDOM_TOKEN_IDS = range(256, 1000)  # ordinary tokens in DeepSeek's vocabulary, and in those of most others


@dataclass(frozen=True)
class BenchPrompt:
    """A text, or token ids that are taken as they are. max_tokens: of the answer."""

    content: str | tuple[int, ...]
    max_tokens: int

    def token_ids(self, tokenizer: Tokenizer | None, *, chat: bool) -> list[int]:
        """tokenizer: needed for a text."""
        if not isinstance(self.content, str):
            return list(self.content)
        assert tokenizer is not None
        return tokenizer.chat_prompt(self.content) if chat else tokenizer.completion_prompt(self.content)


def set_names() -> list[str]:
    """Names of the built-in sets; "mixed" takes from all of them in turn."""
    return [*_read_sets(), "mixed"]


def built_in(name: str) -> list[str]:
    """Texts of a built-in set. Raises ConfigError for an unknown name."""
    sets = _read_sets()
    if name == "mixed":
        return [text for row in zip(*sets.values(), strict=True) for text in row]
    if name not in sets:
        raise ConfigError(f"--dataset: {name!r} is neither a file nor one of {', '.join(set_names())}, random")
    return sets[name]


def _read_sets() -> dict[str, list[str]]:
    return {name: entry["prompts"] for name, entry in tomllib.loads(_SETS.read_text(encoding="utf-8")).items()}


def from_texts(texts: Sequence[str], count: int, max_tokens: int) -> list[BenchPrompt]:
    """`count` prompts, the texts again from the start when there are fewer."""
    return [BenchPrompt(texts[i % len(texts)], max_tokens) for i in range(count)]


def from_jsonl(path: Path, count: int, max_tokens: int) -> list[BenchPrompt]:
    """The first `count` lines; each is an object with "prompt" (or "question") and, if it wants, "max_tokens".

    A file with fewer lines is taken again from the start. Raises ConfigError with the line.
    """
    found: list[BenchPrompt] = []
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    found.append(_entry(line, f"{path}:{number}", max_tokens))
                if len(found) == count:
                    break
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 ({error.reason})") from None
    if not found:
        raise ConfigError(f"{path}: it has no prompts")
    return [found[i % len(found)] for i in range(count)]


def _entry(line: str, where: str, max_tokens: int) -> BenchPrompt:
    try:
        fields: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not JSON ({error})") from None
    text = fields.get("prompt", fields.get("question")) if isinstance(fields, dict) else None
    if not isinstance(text, str) or not text:
        raise ConfigError(f'{where}: an object with a text "prompt" (or "question") is expected')
    own = fields.get("max_tokens", max_tokens)
    if type(own) is not int or own < 1:
        raise ConfigError(f"{where}: max_tokens: a number of tokens is expected (found {shown(own)})")
    return BenchPrompt(text, own)


def random_tokens(
    count: int, *, input_len: int, output_len: int, spread: float, seed: int, vocab_size: int | None = None
) -> list[BenchPrompt]:
    """Random token ids; lengths are uniform in [(1 - spread) x, (1 + spread) x], at least 1.

    vocab_size: ids stay below it (None: those of `RANDOM_TOKEN_IDS` are taken to exist). Raises ConfigError.
    """
    if not 0 <= spread < 1:
        raise ConfigError(f"--length-spread: {shown(spread)} is outside [0, 1)")
    ids = RANDOM_TOKEN_IDS
    if vocab_size is not None and vocab_size < ids.stop:
        ids = range(vocab_size // 2, vocab_size)
    rng = Random(seed)

    def length(middle: int) -> int:
        return max(1, round(middle * rng.uniform(1 - spread, 1 + spread)))

    return [
        BenchPrompt(tuple(rng.choice(ids) for _ in range(length(input_len))), length(output_len)) for _ in range(count)
    ]
