"""`outrider bench`: results, their plots, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import RunCli

from outrider.bench import in_process
from outrider.bench.window import RequestTiming, Window

QUICK = ("--rounds", 2, "--dataset", "random", "--input-len", 12, "--length-spread", 0.5, "--output-len", 6)


def test_latency(cli: RunCli, model_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "latency.json"
    arms = ("--arms", "off,fixed:2", "--batch-size", "1,3")
    shown = cli("bench", "latency", "--model", model_folder, *QUICK, *arms, "--output", path)
    assert shown.code == 0 and shown.err == ""
    assert "fixed:2" in shown.out and "the same: yes" in shown.out and str(path) in shown.out
    report = json.loads(path.read_text())
    assert report["kind"] == "latency" and report["same_output"] is True
    assert report["arms"]["off"] is None and report["arms"]["fixed:2"]["num_speculative_tokens"] == 2
    assert [cell["concurrency"] for cell in report["cells"]] == [1, 3]
    assert report["command"].startswith("outrider") and report["versions"]["torch"] and report["machine"]["processor"]
    off, fixed = (report["cells"][1]["arms"][name] for name in ("off", "fixed:2"))
    assert off["num_requests"] == fixed["num_requests"] == 6  # two rounds
    assert off["output_tokens"] == fixed["output_tokens"] and off["ratio"]["median"] == 1
    assert off["acceptance_length"] is None and 1 <= fixed["acceptance_length"] <= 3
    assert len(fixed["acceptance_per_position"]) == 2 and fixed["cached_prompt_tokens"] == 0
    draw(cli, path, tmp_path)


def draw(cli: RunCli, path: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert cli("bench", "plot", path).code == 0
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    drawn = path.with_suffix(".svg").read_text()
    assert drawn.lstrip().startswith("<?xml")
    assert cli("bench", "plot", path, "-o", tmp_path / "again").code == 0
    assert (tmp_path / "again.svg").read_text() == drawn  # no dates, no random names


def test_a_config_without_weights(cli: RunCli, model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((model_folder / "config.json").read_text())
    quick = ("--rounds", 1, "--input-len", 12, "--output-len", 3, "--batch-size", 1, "--arms", "off,fixed:1", "--json")
    shown = cli("bench", "latency", "--model", tmp_path, "--load-format", "dummy", *quick)
    assert shown.code == 0, shown.err
    report = json.loads(shown.out)
    assert report["engine"]["load_format"] == "dummy" and report["dataset"]["name"] == "random"
    refused = cli("bench", "latency", "--model", tmp_path, "--load-format", "random", *quick)
    assert refused.code == 2 and "load_format: " in refused.err


def test_throughput(cli: RunCli, model_folder: Path) -> None:
    options = ("--arms", "off,auto:2", "--num-prompts", 3, "--max-num-seqs", 2, "--json")
    result = cli("bench", "throughput", "--model", model_folder, *QUICK, *options)
    report = json.loads(result.out)
    assert result.code == 0 and report["kind"] == "throughput" and report["engine"]["max_num_seqs"] == 2
    assert report["arms"]["auto:2"]["adaptive"] is True
    assert report["cells"][0]["arms"]["auto:2"]["num_requests"] == 6


def test_answers_that_differ_fail(cli: RunCli, model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def broken(*_: Any, **__: Any) -> Window:
        seen.append(None)
        return Window((RequestTiming(0.0, 1.0, 2.0, 3, 2, (1, len(seen))),), 2.0, None, None)

    monkeypatch.setattr(in_process, "run_window", broken)
    result = cli("bench", "latency", "--model", model_folder, *QUICK, "--batch-size", 1)
    assert result.code == 1 and "the same: NO" in result.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("latency", "--arms", "on"), "--arms: 'on' is none of off"),
        (("latency", "--batch-size", "1,x"), "--batch-size: '1,x' is no list"),
        (("latency", "--batch-size", "0"), "--batch-size: '0' is no list"),
        (("serve", "--request-rate", "-1"), "--request-rate: '-1' is no list"),
        (("latency", "--dataset", "novels"), "--dataset: 'novels' is neither"),
        (("latency", "--output", "/nowhere/x.json"), "--output: /nowhere is no folder"),
        (("serve", "--base-url", "http://127.0.0.1:9/v1", "--arms", "off"), "does not answer"),
        (("serve", "--base-url", "http://x/v1", "--model", "y"), "--base-url: --model"),
        (("serve", "--model", "/nowhere", "--arms", "off"), "the server did not start: /nowhere: no such folder"),
        (("plot", "/nowhere.json"), "'/nowhere.json' does not exist"),
    ],
)
def test_refusals(cli: RunCli, arguments: tuple[str, ...], words: str) -> None:
    result = cli("bench", *arguments)
    assert result.code == 2 and words in result.err and result.out == ""


def test_plot_of_something_else(cli: RunCli, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for text in ("{", "[]", '{"cells": []}', '{"cells": [{}]}'):
        path.write_text(text)
        result = cli("bench", "plot", path)
        assert result.code == 2 and str(path) in result.err


def test_server_of_its_own(cli: RunCli, model_folder: Path) -> None:
    load = ("--concurrency", 2, "--num-prompts", 2, "--rounds", 1, "--dataset", "chat", "--output-len", 4)
    result = cli("bench", "serve", "--model", model_folder, *load, "--arms", "off,fixed:2", "--json")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    off, fixed = (report["cells"][0]["arms"][name] for name in ("off", "fixed:2"))
    assert report["same_output"] is True and report["model"] == str(model_folder)
    assert off["output_tokens"] == fixed["output_tokens"] > 0 and off["num_failed"] == 0
    assert off["acceptance_length"] is None and fixed["acceptance_length"] >= 1  # from the servers' metrics
    assert len(fixed["acceptance_per_position"]) == 2 and fixed["cached_prompt_tokens"] == 0
