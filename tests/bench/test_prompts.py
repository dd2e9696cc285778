"""Data sets: built in, from files, random; and what is refused, with the line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from outrider.bench.prompts import BenchPrompt, built_in, from_jsonl, from_texts, random_tokens, set_names
from outrider.config import ConfigError


def test_built_in_sets() -> None:
    kinds = [name for name in set_names() if name != "mixed"]
    assert {"chat", "code", "prose", "json"} <= set(kinds)
    assert all(len(built_in(kind)) == len(set(built_in(kind))) == 8 for kind in kinds)
    mixed = built_in("mixed")
    assert sorted(mixed) == sorted(text for kind in kinds for text in built_in(kind))
    assert {next(kind for kind in kinds if text in built_in(kind)) for text in mixed[: len(kinds)]} == set(kinds)
    with pytest.raises(ConfigError, match=r"'novels' is neither a file nor one of chat, .*mixed, random"):
        built_in("novels")


def test_few_texts_are_taken_again() -> None:
    assert [p.content for p in from_texts(["a", "b"], 5, 7)] == ["a", "b", "a", "b", "a"]


def test_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    lines: list[object] = [{"prompt": "a"}, {"question": "b", "max_tokens": 3}, {"prompt": "c"}]
    path.write_text("\n\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    assert from_jsonl(path, 2, 9) == [BenchPrompt("a", 9), BenchPrompt("b", 3)]
    assert [p.content for p in from_jsonl(path, 4, 9)] == ["a", "b", "c", "a"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"prompt": "a"}\n{', ":2: not JSON"),
        ("[1]", ":1: an object with a text"),
        ('{"prompt": 3}', ":1: an object with a text"),
        ('{"prompt": "a", "max_tokens": 0}', ":1: max_tokens"),
        ('{"prompt": "a", "max_tokens": true}', ":1: max_tokens"),
        ("\n", "it has no prompts"),
    ],
)
def test_bad_jsonl(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=words):
        from_jsonl(path, 5, 9)


def test_random_tokens() -> None:
    found = random_tokens(200, input_len=40, output_len=10, spread=0.5, seed=3)
    lengths = [len(prompt.content) for prompt in found]
    assert min(lengths) < 24 and max(lengths) > 56 and all(20 <= length <= 60 for length in lengths)
    assert all(5 <= prompt.max_tokens <= 15 for prompt in found)
    assert found == random_tokens(200, input_len=40, output_len=10, spread=0.5, seed=3)
    small = random_tokens(5, input_len=40, output_len=10, spread=0.0, seed=3, vocab_size=100)
    assert all(50 <= token < 100 for p in small for token in p.content if isinstance(token, int))  # fits a tiny model
    assert {len(prompt.content) for prompt in small} == {40}
    with pytest.raises(ConfigError, match="--length-spread"):
        random_tokens(1, input_len=4, output_len=1, spread=1.0, seed=0)
