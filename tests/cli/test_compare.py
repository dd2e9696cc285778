"""`outrider generate --compare`: both arms, the table, the JSON object, and what happens when texts differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import RunCli

from outrider.bench.distinct import distinct_share
from outrider.cli import compare
from outrider.cli.compare import Arm, Comparison, first_difference
from outrider.cli.timed_run import TimedRun
from outrider.speculative.statistics import SpeculationStatistics


def timed_run(token_ids: tuple[int, ...], decode_seconds: float = 1.0) -> TimedRun:
    statistics = SpeculationStatistics()
    statistics.record(3, 2, 3)
    statistics.record(3, 0, 1)
    return TimedRun(token_ids, "length", 5, statistics, 0.1, decode_seconds)


def test_json(cli: RunCli, model_folder: Path) -> None:
    sampled = ("--temperature", 1, "--seed", 3, "--max-tokens", 8, "--ignore-eos", "--pairs", 2)
    result = cli("generate", "Hello", "--model", model_folder, *sampled, "--compare", "--json")
    assert result.code == 0 and result.err == ""
    found = json.loads(result.out)
    assert found["identical"] is True and found["text_off"] == found["text_on"]
    assert found["tokens"] == {"off": 8, "on": 8} and found["first_difference"] is None
    assert found["speculative_config"] == {"method": "mtp", "num_speculative_tokens": 3, "adaptive": False}
    for arm in ("off", "on"):
        low, high = found["tokens_per_second_range"][arm]
        assert 0 < low <= found["tokens_per_second"][arm] <= high
    assert found["speedup"] == found["tokens_per_second"]["on"] / found["tokens_per_second"]["off"]
    assert 1 <= found["acceptance_length"] <= 4
    assert len(found["acceptance_per_position"]) == len(found["acceptance_given_previous"]) == 3
    assert 0 < found["distinct_4grams"] <= 1
    assert (found["seed"], found["pairs"], found["prompt_tokens"]) == (3, 2, 6)
    assert found["machine"]["threads"] >= 1 and found["machine"]["processor"]
    plain = cli("generate", "Hello", "--model", model_folder, *sampled, "--json")
    assert json.loads(plain.out)["text"] == found["text_off"]


def test_table(cli: RunCli, model_folder: Path) -> None:
    depth = '{"method": "mtp", "num_speculative_tokens": 1, "adaptive": false}'
    common = ("generate", "Hello", "--model", model_folder, "--max-tokens", 6, "--ignore-eos")
    result = cli(*common, "--compare", "--pairs", 2, "--speculative-config", depth)
    assert result.code == 0
    assert result.out.startswith(cli(*common).out)  # the text first, as it came
    for expected in ("up to 1 drafts", "decode only", "speed-up", "acceptance length", "identical", "2 alternating"):
        assert expected in result.out


def test_single_token_has_no_speed(cli: RunCli, model_folder: Path) -> None:
    command = ("generate", "Hello", "--model", model_folder, "--max-tokens", 1, "--compare", "--pairs", 2)
    found = json.loads(cli(*command, "--json").out)
    assert found["tokens_per_second"] == {"off": None, "on": None}
    assert found["speedup"] is None and found["tokens_per_second_range"] == {"off": None, "on": None}
    assert found["distinct_4grams"] is None and found["identical"] is True
    assert cli(*command).code == 0


def test_texts_that_differ_are_shown_and_fail(cli: RunCli, model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, other = timed_run((72, 105, 106)), timed_run((72, 105, 107))

    def broken(*_: object) -> Comparison:
        return Comparison(Arm(plain, [plain, plain]), Arm(plain, [plain, other]))

    monkeypatch.setattr(compare, "_run", broken)
    command = ("generate", "Hello", "--model", model_folder, "--compare")
    shown = cli(*command)
    assert shown.code == 1
    assert "NO" in shown.out and "differ from generated token 2 on: plain decoding gives 106" in shown.out
    found = json.loads((result := cli(*command, "--json")).out)
    assert result.code == 1 and found["identical"] is False
    assert found["first_difference"]["index"] == 2 and found["first_difference"]["other"]["id"] == 107


def test_medians_and_differences() -> None:
    tokens = tuple(range(11))
    off = Arm(timed_run(tokens), [timed_run(tokens, seconds) for seconds in (1.0, 2.0, 4.0)])
    on = Arm(timed_run(tokens), [timed_run(tokens, seconds) for seconds in (1.0, 0.5, 1.0)])
    assert (off.tokens_per_second, on.tokens_per_second) == (5.0, 10.0)
    assert Comparison(off, on).speedup == 2.0 and Comparison(off, on).difference is None
    assert first_difference((1, 2, 3), (1, 2, 3)) is None
    assert first_difference((1, 2, 3), (1, 9, 3)) == 1
    assert first_difference((1, 2), (1, 2, 3)) == 2
    assert first_difference((), (1,)) == 0


def test_distinct_share_of_a_loop() -> None:
    assert distinct_share(range(10)) == 1.0
    assert distinct_share([1, 2] * 20) == 2 / 37
    assert distinct_share([1, 2, 3]) is None
