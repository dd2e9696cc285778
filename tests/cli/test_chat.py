"""`outrider chat`: turns that remember, answers of an engine and of a server, and what is said of speculation."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import RunCli
from tests.server.process import SPECULATION, process
from tests.server.serving import QUESTION

from outrider.cli.chat import _Conversation, describe
from outrider.cli.chat_turns import Account, ChatError, Messages, Piece
from outrider.cli.terminal import GREEN, RESET


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def test_an_engine_and_a_server_give_the_same_answers(cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--seed", 3, "--max-tokens", 40, "--show-drafts")
    typed(monkeypatch, QUESTION, "And twice as many?")
    by_engine = cli("chat", *options, "--max-model-len", 512)
    with process("--speculative-config", SPECULATION) as (_, url):
        typed(monkeypatch, QUESTION, "And twice as many?")
        by_server = cli("chat", "--url", url, "--api-key", "sesame", *options)
        typed(monkeypatch, "Hi")
        refused = cli("chat", "--url", url, "--api-key", "wrong")
    assert (by_engine.code, by_server.code) == (0, 0)
    assert by_engine.out == by_server.out and GREEN in by_engine.out
    for result in (by_engine, by_server):
        first, second = result.err.splitlines()
        assert "tokens a pass, drafts accepted by position" in first and "tokens (" in second
    assert refused.code == 2 and "the API key is missing or wrong" in refused.err


def test_a_model_without_a_drafter(cli: RunCli, monkeypatch: pytest.MonkeyPatch, model_without_mtp: Path) -> None:
    typed(monkeypatch, "hi", "")
    result = cli("chat", model_without_mtp, "--max-tokens", 5)
    assert result.code == 0 and "no drafts" in result.err


def test_a_question_that_does_not_fit_is_forgotten(
    cli: RunCli, monkeypatch: pytest.MonkeyPatch, model_folder: Path
) -> None:
    typed(monkeypatch, "word " * 200, "hi")
    result = cli("chat", model_folder, "--max-model-len", 64, "--max-tokens", 3)
    problem, account = result.err.splitlines()
    assert result.code == 0 and "leave no room" in problem and "/new begins" in problem
    assert account.startswith("3 tokens (length)")


def test_nobody_at_the_address(cli: RunCli) -> None:
    result = cli("chat", "--url", "http://127.0.0.1:1")
    assert result.code == 2 and result.err.startswith("outrider: http://127.0.0.1:1: no server answers")
    assert cli("chat", "model", "--url", "http://127.0.0.1:1").err.startswith("outrider: --url: ")


class Scripted:
    """Notes what it was told, and does what the last message says."""

    def __init__(self) -> None:
        self.heard: list[list[dict[str, str]]] = []

    def answer(self, messages: Messages, account: Account) -> Iterator[Piece]:
        self.heard.append([dict(message) for message in messages])
        yield Piece("so", reasoning=True)
        yield Piece("yes ")
        yield Piece("indeed", drafted=True)
        if messages[-1]["content"] == "stop":
            raise KeyboardInterrupt
        if messages[-1]["content"] == "fail":
            raise ChatError("the engine has \x1b[2Jended")
        account.tokens, account.finish_reason = 3, "stop"


def test_a_conversation(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    typed(monkeypatch, "one", "fail", "stop", "three", "/new", "four")
    answers = Scripted()
    _Conversation(answers, "Be brief.", colour=True).run()
    system = {"role": "system", "content": "Be brief."}
    answer = {"role": "assistant", "content": "yes indeed", "reasoning_content": "so"}
    asked = [{"role": "user", "content": text} for text in ("one", "fail", "stop", "three", "four")]
    assert answers.heard == [
        [system, asked[0]],
        [system, asked[0], answer, asked[1]],
        [system, asked[0], answer, asked[2]],
        [system, asked[0], answer, asked[2], answer, asked[3]],
        [system, asked[4]],
    ]
    found = capsys.readouterr()
    assert f"yes {GREEN}indeed{RESET}" in found.out
    assert "the engine has \ufffd[2Jended (/new" in found.err and "stopped after" in found.err


def test_the_line_under_an_answer() -> None:
    account = Account(11, "stop", 4, 2.5, [4, 4], [3, 1])
    assert describe(account, 0.5, 2.0) == (
        "11 tokens (stop), the first after 0.50 s, then 5 tokens/s; 2.50 tokens a pass, drafts accepted by position "
        "0.75 0.25"
    )
