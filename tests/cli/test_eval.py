"""`outrider eval`: arms that must agree, runs that go on, and the table of roundings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import RunCli

SMALL = ("--limit", 2, "--max-tokens", 6, "--max-model-len", 512)


def test_arms_agree_and_records_are_continued(cli: RunCli, model_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    command = ("eval", "--model", model_folder, *SMALL, "--arms", "off,fixed:2", "--records", path)
    result = cli(*command, "-o", tmp_path / "summary.json")
    assert result.code == 0 and "answers of all arms are the same: yes" in result.out
    report = json.loads((tmp_path / "summary.json").read_text())
    assert report["same_answers"] is True and report["num_questions"] == 2 and report["resumed"] == 0
    assert report["arms"]["off"]["output_tokens"] == report["arms"]["fixed:2"]["output_tokens"] > 0
    lines = path.read_text().splitlines(keepends=True)
    assert len(lines) == 5
    path.write_text("".join(lines[:-1]))
    again = json.loads(cli(*command, "--json").out)
    assert again["resumed"] == 3 and again["arms"] == report["arms"] and path.read_text() == "".join(lines)
    refused = cli(*command, "--shots", 1)
    assert refused.code == 2 and "records.jsonl: made with" in refused.err


def test_answers_that_differ_fail(cli: RunCli, model_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    command = ("eval", "--model", model_folder, *SMALL, "--arms", "off,fixed:2", "--records", path)
    cli(*command)
    lines = path.read_text().splitlines()
    last = json.loads(lines[-1])
    last["token_ids"][1] += 1
    path.write_text("\n".join([*lines[:-1], json.dumps(last)]) + "\n")
    result = cli(*command)
    assert result.code == 1 and "the same: NO" in result.out and "fixed:2 departs at token 1" in result.out


def test_prompts_that_do_not_fit_are_named(cli: RunCli, model_folder: Path) -> None:
    command = ("eval", "--model", model_folder, "--limit", 2, "--max-tokens", 4, "--arms", "off", "--shots", 3)
    fewer = cli(*command, "--max-model-len", 700)
    assert fewer.code == 0 and "prompts got fewer than 3 examples" in fewer.out
    none = json.loads(cli(*command, "--max-model-len", 16, "--json").out)
    assert none["arms"]["off"]["too_long"] == 2 and none["arms"]["off"]["exact_match"]["value"] == 0


def test_quantisation(cli: RunCli, model_folder: Path) -> None:
    command = ("eval", "--quantisation", "--model", model_folder, *SMALL, "--shots", 0, "--depth", 1)
    report = json.loads(cli(*command, "--json").out)
    rows = report["variants"]
    assert rows["float32"]["logits_error"] == 0 and rows["float32"]["argmax_agreement"] == 1
    assert rows["FP4 experts"]["logits_error"] == 0  # they are FP4 in this checkpoint
    for name in ("FP8 KV, rotated dims as computed", "FP4 indexer", "FP8 activations", "default"):
        assert 0 < rows[name]["logits_error"] < 1, name
    assert rows["as trained (--exact-qat)"]["acceptance_length"] >= 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("/nowhere.jsonl",), "/nowhere.jsonl: No such file"),
        (("--examples", "x.jsonl"), "--examples: the arithmetic set brings its own"),
        (("--quantisation", "--exact-qat"), "--quantisation: it chooses the rounding itself"),
        (("--arms", "fast"), "--arms: 'fast'"),
    ],
)
def test_refusals(cli: RunCli, arguments: tuple[str, ...], words: str) -> None:
    result = cli("eval", *arguments)
    assert result.code == 2 and words in result.err
