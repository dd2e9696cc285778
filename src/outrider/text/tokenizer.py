"""The checkpoint's own tokenizer, and text that grows token by token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import tokenizers

from outrider.config import ConfigError, ModelConfig
from outrider.text.encoding import ChatPrompt, render_chat
from outrider.text.protocol import ASSISTANT, BOS, THINK_END, USER

_UNFINISHED = "\ufffd"  # what a byte-level decoder gives for the first bytes of a character


def _byte_characters() -> dict[str, int]:
    """Character -> byte in the names of byte-level tokens: printable Latin-1 stands for itself, other bytes take the
    characters from U+0100 on, in order (GPT-2's table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTE_OF = _byte_characters()


class Tokenizer:
    """Wraps `tokenizer.json`. It adds nothing by itself: the prompt's builder writes the begin token."""

    def __init__(self, backend: tokenizers.Tokenizer, config: ModelConfig) -> None:
        self._backend = backend
        self._bos_token_id = config.bos_token_id

    @classmethod
    def load(cls, folder: Path, config: ModelConfig) -> Tokenizer:
        """Raises ConfigError: no tokenizer.json, unreadable, or ids beyond the model's vocabulary."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ConfigError(f"{path}: no such file; text needs the checkpoint's tokenizer")
        try:
            backend = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:
            raise ConfigError(f"{path}: cannot be read as a tokenizer ({error})") from None
        if backend.get_vocab_size() > config.vocab_size:
            raise ConfigError(
                f"{path}: {backend.get_vocab_size()} tokens, but vocab_size in config.json is {config.vocab_size}"
            )
        return cls(backend, config)

    def encode(self, text: str) -> list[int]:
        return self._backend.encode(text, add_special_tokens=False).ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of the ids, without the begin, end and padding tokens."""
        return self._backend.decode(list(token_ids), skip_special_tokens=True)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for, which need not be whole characters; its name for a token of its own.

        token_id: 0 <= token_id < vocab_size; b"" for an id that the tokenizer does not use.
        """
        name = self._backend.id_to_token(token_id)
        if name is None:
            return b""
        if token_id in self.added_token_ids:
            return name.encode()
        return bytes(_BYTE_OF[character] for character in name)

    @property
    def think_end_id(self) -> int | None:
        """The token `</think>`; None in a vocabulary without it."""
        return self._backend.token_to_id(THINK_END)

    def completion_prompt(self, text: str) -> list[int]:
        """Begin token, then the text as it stands."""
        return [self._bos_token_id, *self.encode(text)]

    def chat_prompt(self, text: str) -> list[int]:
        """One user turn and the header of an answer without thinking. Raises ConfigError as `encode_prompt` does."""
        return self.encode_prompt(render_chat([{"role": "user", "content": text}]))

    def encode_prompt(self, prompt: ChatPrompt) -> list[int]:
        """Ids of a prompt, begin token included.

        Only the protocol's own tokens become tokens of the protocol: "<｜Assistant｜>" in somebody's message is a piece
        of text, so nobody can end a turn from within. Raises ConfigError when the tokenizer knows no chat turns.
        """
        lacking = [token for token in (USER, ASSISTANT, THINK_END) if self._backend.token_to_id(token) is None]
        if lacking:
            raise ConfigError(
                f"chat: this checkpoint's tokenizer has no token {', '.join(lacking)}, so its model knows no chat "
                "turns; give the text without chat, to be continued"
            )
        ids: list[int] = []
        at = 0
        for start, end in prompt.token_spans:
            ids += self._encode_plain(prompt.text[at:start])
            ids += self._encode_token(prompt.text[start:end])
            at = end
        return ids + self._encode_plain(prompt.text[at:])

    def _encode_token(self, token: str) -> list[int]:
        if token == BOS:
            return [self._bos_token_id]
        token_id = self._backend.token_to_id(token)
        return self.encode(token) if token_id is None else [token_id]

    def _encode_plain(self, text: str) -> list[int]:
        """Ids of text in which nothing is a token of the protocol."""
        ids = self.encode(text)
        if self.added_token_ids.isdisjoint(ids):
            return ids
        return self._plain_backend.encode(text, add_special_tokens=False).ids

    @cached_property
    def added_token_ids(self) -> frozenset[int]:
        """Tokens that stand for themselves, not for bytes of text: control tokens and markup."""
        return frozenset(self._backend.get_added_tokens_decoder())

    @cached_property
    def _plain_backend(self) -> tokenizers.Tokenizer:
        """The same tokenizer without added tokens; made when a text first needs it (a second for the real one)."""
        fields = json.loads(self._backend.to_str())
        fields["added_tokens"], fields["post_processor"] = [], None
        return tokenizers.Tokenizer.from_str(json.dumps(fields))


class IncrementalDetokenizer:
    """Turns a stream of tokens into pieces of text that are final: no half characters, nothing taken back."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._pending: list[int] = []  # tokens from the last safe place on
        self._shown = 0  # characters of their text that were given out
        self._settled = 0  # leading pending tokens whose text is complete

    def push(self, token_ids: Sequence[int]) -> str:
        """Text that these tokens complete; "" while a character is unfinished."""
        self._pending += token_ids
        text = self._tokenizer.decode(self._pending)
        if text.endswith(_UNFINISHED):
            return ""
        piece = text[self._shown :]
        # keep the last settled tokens as context: what a token decodes to may depend on the one before
        self._pending, self._settled = self._pending[self._settled :], len(self._pending) - self._settled
        self._shown = len(self._tokenizer.decode(self._pending))
        return piece

    def finish(self) -> str:
        """What is left at the end, unfinished characters included (as replacement characters)."""
        return self._tokenizer.decode(self._pending)[self._shown :]
