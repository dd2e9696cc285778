"""Tokenizer and incremental detokeniser: pieces add up to the whole, and no character is ever cut in two."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tests.tiny import tiny_config
from tests.tiny_tokenizer import tiny_tokenizer

from outrider.config import ConfigError, parse_model_config
from outrider.text.tokenizer import IncrementalDetokenizer, Tokenizer

CONFIG = parse_model_config(tiny_config())
TOKENIZER = Tokenizer(tiny_tokenizer(), CONFIG)
VOCABULARY = tiny_tokenizer().get_vocab_size()
# characters of one to four bytes; the replacement character is one that a text may really hold
TEXTS = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("the é☃😀\ufffd\u200d")), max_size=40
)


def stream(token_ids: list[int], cuts: list[int]) -> list[str]:
    """Pieces of a stream whose steps have the lengths in `cuts`, over and over (1 where there are none)."""
    detokenizer = IncrementalDetokenizer(TOKENIZER)
    pieces, at, step = [], 0, 0
    while at < len(token_ids):
        count = cuts[step % len(cuts)] if cuts else 1
        pieces.append(detokenizer.push(token_ids[at : at + count]))
        at, step = at + count, step + 1
    return [*pieces, detokenizer.finish()]


@given(TEXTS, st.lists(st.integers(1, 5), max_size=6))
def test_pieces_add_up_and_are_never_half_characters(text: str, cuts: list[int]) -> None:
    pieces = stream(TOKENIZER.encode(text), cuts)
    assert "".join(pieces) == text == TOKENIZER.decode(TOKENIZER.encode(text))
    shown = ""
    for piece in pieces:
        shown += piece
        assert text.startswith(shown)


@given(st.lists(st.integers(0, CONFIG.vocab_size - 1), max_size=40), st.lists(st.integers(1, 5), max_size=6))
def test_any_tokens_at_all(token_ids: list[int], cuts: list[int]) -> None:
    """Broken bytes, control tokens and ids without an entry: what a model may emit."""
    assert "".join(stream(token_ids, cuts)) == TOKENIZER.decode(token_ids)


def test_unfinished_character_waits_and_is_given_at_the_end() -> None:
    smile = TOKENIZER.encode("😀")
    assert len(smile) == 2  # three bytes, one byte
    detokenizer = IncrementalDetokenizer(TOKENIZER)
    assert detokenizer.push(smile[:1]) == ""
    assert detokenizer.push(smile[1:]) == "😀"
    assert detokenizer.finish() == ""
    assert detokenizer.push(TOKENIZER.encode("x")) == "x"
    assert detokenizer.push(smile[:1]) == ""
    assert detokenizer.finish() == "\ufffd"


def test_prompts() -> None:
    assert TOKENIZER.completion_prompt("the") == [CONFIG.bos_token_id, *TOKENIZER.encode("the")]
    assert TOKENIZER.completion_prompt("") == [CONFIG.bos_token_id]
    ids = TOKENIZER.chat_prompt("Hi")
    names = [tiny_tokenizer().id_to_token(i) for i in ids]
    assert names == ["<｜begin▁of▁sentence｜>", "<｜User｜>", "H", "i", "<｜Assistant｜>", "</think>"]


def test_chat_without_chat_tokens() -> None:
    bare = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={"a": 0}, merges=[]))
    with pytest.raises(ConfigError, match=r"chat: .* no token <｜User｜>, <｜Assistant｜>, </think>, so"):
        Tokenizer(bare, CONFIG).chat_prompt("a")


def test_control_tokens_are_not_text_and_markup_is() -> None:
    think = TOKENIZER.encode("</think>")
    assert len(think) == 1
    assert TOKENIZER.decode([CONFIG.bos_token_id, *think, CONFIG.eos_token_id]) == "</think>"


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer\.json: no such file"):
        Tokenizer.load(tmp_path, CONFIG)
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {}}))
    with pytest.raises(ConfigError, match=r"tokenizer\.json: cannot be read as a tokenizer"):
        Tokenizer.load(tmp_path, CONFIG)
    backend = tiny_tokenizer()
    backend.add_tokens([tokenizers.AddedToken(f"<extra {i}>") for i in range(CONFIG.vocab_size)])
    backend.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ConfigError, match=f"{VOCABULARY + CONFIG.vocab_size} tokens, but vocab_size"):
        Tokenizer.load(tmp_path, CONFIG)
