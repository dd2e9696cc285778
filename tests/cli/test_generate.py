"""`outrider generate`: text, JSON, seeds, drafts in colour, and what it reports."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import cast

import pytest
from tests.cli.conftest import RunCli
from tests.tiny_tokenizer import tiny_tokenizer

from outrider.cli.terminal import GREEN, RESET, TextStream, progress_bar
from outrider.config import parse_model_config
from outrider.engine.request import Request, StepOutput
from outrider.text.tokenizer import Tokenizer

MTP = '{"method": "mtp", "num_speculative_tokens": 3, "adaptive": false}'


def test_text_and_json_agree(cli: RunCli, model_folder: Path) -> None:
    options = ("generate", "Hello, the world", "--model", model_folder, "--max-tokens", 12)
    text = cli(*options)
    assert (text.code, text.err) == (0, "")
    answer = cli(*options, "--json")
    assert answer.code == 0 and answer.out.count("\n") == 1
    found = json.loads(answer.out)
    assert found["text"] + "\n" == text.out
    assert len(found["token_ids"]) == 12 and found["finish_reason"] == "length"
    assert found["prompt_tokens"] == 1 + len(tiny_tokenizer().encode("Hello, the world").ids)
    assert found["statistics"] is None and found["seed"] >= 0
    assert found["tokens_per_second"] > 0 and found["time_to_first_token"] > 0
    assert set(found["versions"]) == {"outrider", "torch", "python"}


def test_the_seed_decides(cli: RunCli, model_folder: Path) -> None:
    def tokens(*extra: object) -> list[int]:
        sampled = ("--temperature", 1, "--max-tokens", 10, "--json")
        result = cli("generate", "Once", "--model", model_folder, *sampled, *extra)
        found: list[int] = json.loads(result.out)["token_ids"]
        return found

    plain = tokens("--seed", 7)
    assert tokens("--seed", 7) == plain
    assert tokens("--seed", 7, "--speculative-config", MTP) == plain
    assert tokens("--seed", 8) != plain
    assert tokens() != tokens()  # one is drawn, and another the next time


def test_filters_reach_the_sampler(cli: RunCli, model_folder: Path) -> None:
    greedy = cli("generate", "Once", "--model", model_folder, "--max-tokens", 6)
    for option, value in (("--top-k", 1), ("--top-p", 1e-6), ("--min-p", 1)):
        command = ("generate", "Once", "--model", model_folder, "--max-tokens", 6, "--temperature", 1)
        assert cli(*command, option, value).out == greedy.out


@pytest.mark.parametrize(
    "options",
    [
        ("--max-num-seqs", 3, "--max-num-batched-tokens", 7),
        ("--gpu-memory-utilization", 0.5, "--enable-prefix-caching"),
        ("--no-enable-prefix-caching", "--max-model-len", 60),
    ],
)
def test_limits_change_no_token(cli: RunCli, model_folder: Path, options: tuple[object, ...]) -> None:
    command = ("generate", "Once upon a time", "--model", model_folder, "--max-tokens", 9)
    for speculation in ((), ("--speculative-config", MTP)):
        assert cli(*command, *options, *speculation).out == cli(*command).out


def test_roundings_reach_the_model(cli: RunCli, model_folder: Path) -> None:
    def text(*options: object) -> str:
        sampled = ("--temperature", 1, "--seed", 2, "--max-tokens", 120, "--ignore-eos")
        result = cli("generate", "a" * 60, "--model", model_folder, *sampled, *options)
        assert result.code == 0, result.err
        return result.out

    default = text()
    assert text("--kv-cache-dtype", "bf16") != default
    assert text("--indexer-dtype", "fp8") != default


def test_chat_wraps_a_turn(cli: RunCli, model_folder: Path) -> None:
    command = ("generate", "Hi", "--model", model_folder, "--max-tokens", 2, "--json")
    plain, chat = cli(*command), cli(*command, "--chat")
    assert json.loads(chat.out)["prompt_tokens"] == json.loads(plain.out)["prompt_tokens"] + 3


def test_prompt_from_standard_input(cli: RunCli, model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def prompt_tokens(data: bytes, *extra: str) -> int:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        result = cli("generate", "-", "--model", model_folder, "--max-tokens", 1, "--json", *extra)
        count: int = json.loads(result.out)["prompt_tokens"]
        return count

    assert prompt_tokens("né".encode()) == 4
    assert prompt_tokens(b"ab\n") == 4  # a text is continued as it stands
    assert prompt_tokens(b"ab\r\n", "--chat") == 6  # begin, user, a, b, assistant, end of thinking


def test_stats_go_to_stderr(cli: RunCli, model_folder: Path) -> None:
    command = ("generate", "Hi", "--model", model_folder, "--max-tokens", 6, "--stats")
    plain = cli(*command)
    assert "6 generated (length)" in plain.err and "tokens/s" in plain.err and "acceptance" not in plain.err
    drafted = cli(*command, "--speculative-config", MTP)
    assert drafted.out == plain.out and "acceptance length" in drafted.err
    assert "memory: weights" in plain.err and "drafter" in drafted.err and "in all" in plain.err
    single = cli(*command, "--max-tokens", 1)
    assert "then - tokens/s" in single.err


def test_accepted_drafts_are_green_when_asked_for(cli: RunCli, model_folder: Path) -> None:
    sampled = ("--temperature", 1, "--max-tokens", 12, "--ignore-eos", "--speculative-config", MTP)
    for seed in (4, 7, 8, 10, 11):  # a random drafter is right now and then, since it shares the noise
        command = ("generate", "Hi", "--model", model_folder, *sampled, "--seed", seed)
        shown, plain = cli(*command, "--show-drafts"), cli(*command)
        assert GREEN not in plain.out  # no terminal here
        assert shown.out.replace(GREEN, "").replace(RESET, "") == plain.out
        if GREEN in shown.out:
            return
    pytest.fail("no draft was ever accepted")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def tokenizer(model_folder: Path) -> Tokenizer:
    config = parse_model_config(json.loads((model_folder / "config.json").read_text()))
    return Tokenizer.load(model_folder, config)


def step(token_ids: tuple[int, ...], accepted_drafts: int) -> StepOutput:
    """What a stream is given; it does not look at the request."""
    return StepOutput(cast(Request, None), token_ids, accepted_drafts, None)


def test_a_step_is_split_at_the_last_accepted_draft(tokenizer: Tokenizer) -> None:
    out = io.StringIO()
    stream = TextStream(tokenizer, out, colour=True)
    a, b, c = tokenizer.encode("abc")
    stream.push_step(step((a,), 0))
    stream.push_step(step((b, c), 1))
    stream.finish()
    assert out.getvalue() == f"a{GREEN}b{RESET}c\n"


def test_control_characters_do_not_reach_a_terminal(tokenizer: Tokenizer) -> None:
    for out, expected in ((Terminal(), "\ufffd[2J\n\tx\ufffd\n"), (io.StringIO(), "\x1b[2J\n\tx\x9b\n")):
        stream = TextStream(tokenizer, out, colour=False)
        stream.push_step(step(tuple(tokenizer.encode("\x1b[2J\n\tx\x9b")), 0))
        stream.finish()
        assert out.getvalue() == expected


def test_exact_qat_changes_numbers_only(cli: RunCli, model_folder: Path) -> None:
    result = cli("generate", "Hi", "--model", model_folder, "--max-tokens", 3, "--exact-qat", "--json")
    assert result.code == 0 and len(json.loads(result.out)["token_ids"]) == 3


def test_context_ends_the_text(cli: RunCli, model_folder: Path) -> None:
    command = ("generate", "abcd", "--model", model_folder, "--max-model-len", 8, "--ignore-eos", "--json")
    for extra in ((), ("--speculative-config", MTP)):
        found = json.loads(cli(*command, *extra).out)
        assert (found["prompt_tokens"], len(found["token_ids"]), found["finish_reason"]) == (5, 3, "length")


def test_bar_is_drawn_for_people_only(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress_bar("loading", hidden=True) as advance:
        assert advance is None
    with progress_bar("loading", hidden=False, byte_count=True) as advance:
        assert advance is not None
        advance(500, 2000)
    assert "loading" in terminal.getvalue() and "2.0 kB" in terminal.getvalue()
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress_bar("loading", hidden=False) as advance:
        assert advance is None
