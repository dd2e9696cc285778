"""Questions, prompts, answers and records of `outrider eval`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.tiny import tiny_config
from tests.tiny_tokenizer import write_tiny_tokenizer

from outrider.config import ConfigError, parse_model_config
from outrider.evaluation.answers import flexible_match, strict_match
from outrider.evaluation.prompting import few_shot_prompt
from outrider.evaluation.questions import Question, from_file, generated, read_questions
from outrider.evaluation.records import Record, Records
from outrider.evaluation.run import differences
from outrider.evaluation.summary import accuracy, arm_summary
from outrider.text.tokenizer import Tokenizer

REFERENCE = "It is 1,000 + 8 = <<1000+8=1008>>1008.\n#### 1,008"


def questions_file(path: Path, count: int, first: int = 0) -> Path:
    lines = [{"question": f"What is {i} + 1?", "answer": f"#### {i + 1}"} for i in range(first, first + count)]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "strict", "flexible"),
    [
        ("So it is 1008.\n#### 1008", True, True),
        ("#### 1,008.", True, True),
        ("The answer is $1,008.", False, True),
        ("#### 1008\n\nand 7 more", True, False),
        ("#### 7\n#### 1008", False, True),  # the first counts
        ("1008 of 9", False, False),
        ("#### -1008", False, False),
        ("none . , at all", False, False),
        ("", False, False),
    ],
)
def test_which_number_counts(text: str, strict: bool, flexible: bool) -> None:
    assert (strict_match(text, REFERENCE), flexible_match(text, REFERENCE)) == (strict, flexible)


def test_examples_are_never_asked(tmp_path: Path) -> None:
    path = questions_file(tmp_path / "q.jsonl", 5)
    own = from_file(path, None, 2, None)
    assert [q.question for q in own.examples] == ["What is 0 + 1?", "What is 1 + 1?"]
    assert len(own.questions) == 3 and not set(own.examples) & set(own.questions)
    other = from_file(path, questions_file(tmp_path / "e.jsonl", 3, first=50), 2, 4)
    assert len(other.questions) == 4 and other.examples[0].question == "What is 50 + 1?"
    assert own.digest != other.digest == from_file(path, tmp_path / "e.jsonl", 2, 4).digest
    arithmetic = generated(2, 6)
    assert len(arithmetic.questions) == 6 and not set(arithmetic.examples) & set(arithmetic.questions)
    with pytest.raises(ConfigError, match="--shots: 9"):
        from_file(path, None, 9, None)
    with pytest.raises(ConfigError, match="--examples names a file"):
        from_file(path, None, 5, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", ":1: not JSON"),
        ('{"question": "a"}', ":1: an object with texts"),
        ('\n{"question": "a", "answer": "no number"}', ":2: answer: its last line"),
        ("", "no questions"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_questions(path)


def test_fewer_examples_when_they_do_not_fit(tmp_path: Path) -> None:
    write_tiny_tokenizer(tmp_path)
    tokenizer = Tokenizer.load(tmp_path, parse_model_config(tiny_config()))
    question, examples = Question("And 2 + 2?", "#### 4"), [Question("A" * 40, "#### 1"), Question("B" * 40, "#### 2")]
    whole = few_shot_prompt(question, examples, tokenizer, most_tokens=1000, chat=False)
    assert whole is not None and whole.shots == 2
    text = tokenizer.decode(whole.token_ids)
    assert text == f"Question: {'A' * 40}\nAnswer: #### 1\n\nQuestion: {'B' * 40}\nAnswer: #### 2\n\n" + (
        "Question: And 2 + 2?\nAnswer:"
    )
    exactly = len(whole.token_ids)
    fewer = few_shot_prompt(question, examples, tokenizer, most_tokens=exactly - 1, chat=False)
    assert fewer is not None and fewer.shots == 1 and "A" * 40 in tokenizer.decode(fewer.token_ids)
    assert few_shot_prompt(question, examples, tokenizer, most_tokens=exactly, chat=False) == whole
    assert few_shot_prompt(question, examples, tokenizer, most_tokens=5, chat=False) is None
    chat = few_shot_prompt(question, [], tokenizer, most_tokens=1000, chat=True)
    assert chat is not None and list(chat.token_ids) == tokenizer.chat_prompt("And 2 + 2?")


def record(arm: str, index: int, token_ids: tuple[int, ...] = (1, 2), *, right: bool = True) -> Record:
    return Record(arm, index, "t é", token_ids, "stop", 0, strict=right, flexible=right, drafts=2, accepted=3)


def test_records_are_continued(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    records = Records(path, {"model": "m", "shots": 8})
    records.add(record("off", 0))
    records.add(record("off", 1, right=False))
    path.write_bytes(path.read_bytes()[:-9])  # the last write was cut
    again = Records(path, {"model": "m", "shots": 8})
    assert again.done == {("off", 0): record("off", 0)}
    again.add(record("off", 1))
    assert Records(path, {"model": "m", "shots": 8}).done == {("off", i): record("off", i) for i in (0, 1)}
    with pytest.raises(ConfigError, match="made with shots 8, and now it is 4"):
        Records(path, {"model": "m", "shots": 4})
    path.write_text("hello\n")
    with pytest.raises(ConfigError, match="not a file of outrider eval's records"):
        Records(path, {})


def test_differences_between_arms() -> None:
    records = Records(None, {})
    for item in (record("off", 0), record("off", 1, (5, 6, 7)), record("on", 0), record("on", 1, (5, 6))):
        records.add(item)
    assert list(differences(records, ["off", "on"], 2)) == [(1, "on", 2)]


def test_summary() -> None:
    assert accuracy([True, False, False, False, False]) == pytest.approx({"value": 0.2, "standard_error": 0.2})
    assert accuracy([True])["standard_error"] is None
    too_long = Record("off", 1, "", (), "too long", 0, strict=False, flexible=False)
    found = arm_summary([record("off", 0), too_long], shots=8)
    assert found["exact_match"]["value"] == 0.5 and found["acceptance_length"] == 2.5
    assert (found["fewer_shots"], found["least_shots"], found["too_long"]) == (1, 0, 1)
