"""Every kind of bad input ends with one sentence on stderr, nothing on stdout, and the right exit code."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import RunCli

import outrider.assets
from outrider.cli.main import describe
from outrider.engine import loading
from outrider.sampling.sampler import LogitsError

BAD_OPTIONS = [
    (["--nonsense"], "No such option: --nonsense"),
    (["--top-k", "many"], "--top-k"),
    (["--max-tokens", "1.5"], "--max-tokens"),
    (["--temperature", "-1"], "temperature: -1.0 is outside"),
    (["--temperature", "nan"], "temperature: nan is outside"),
    (["--top-k", "-1"], "top_k: -1 is outside"),
    (["--top-p", "0"], "top_p: 0.0 is outside"),
    (["--min-p", "2"], "min_p: 2.0 is outside"),
    (["--seed", "-1"], "seed: -1 is outside [0, 18446744073709551615]"),
    (["--seed", str(2**64)], "seed: 18446744073709551616 is outside"),
    (["--seed", "1" * 400], "seed: 1111"),
    (["--max-tokens", "0"], "max_tokens: 0 is outside"),
    (["--max-model-len", "0"], "max_model_len: input should be greater than or equal to 1 (found 0)"),
    (["--max-num-seqs", "0"], "max_num_seqs: input should be greater than or equal to 1"),
    (["--max-num-seqs", "9", "--max-num-batched-tokens", "8"], "max_num_batched_tokens: smaller than max_num_seqs"),
    (["--max-num-batched-tokens", str(1 << 40)], "max_num_batched_tokens: input should be less than or equal to"),
    (["--gpu-memory-utilization", "0"], "gpu_memory_utilization: input should be greater than 0"),
    (["--gpu-memory-utilization", "1.01"], "gpu_memory_utilization: input should be less than or equal to 1"),
    (["--gpu-memory-utilization", "nan"], "gpu_memory_utilization: input should be a finite number"),
    (["--kv-cache-dtype", "int8"], "kv_cache_dtype: input should be 'auto', 'fp8', 'bf16' or 'float32' (found 'int8')"),
    (["--indexer-dtype", "auto"], "indexer_dtype: input should be 'fp4', 'fp8', 'bf16' or 'float32' (found 'auto')"),
    (["--compare", "--pairs", "1"], "--pairs"),
    (["--speculative-config", "{"], "--speculative-config is not JSON"),
    (["--speculative-config", "[" * 5000], "--speculative-config cannot be read as JSON"),
    (["--speculative-config", '{"method": "mtp", "num_speculative_tokens": ' + "1" * 5000 + "}"], "cannot be read"),
    (["--speculative-config", "3"], "--speculative-config: "),
    (["--speculative-config", '{"method": "mtp"}'], "num_speculative_tokens: missing"),
    (["--speculative-config", '{"method": "eagle", "num_speculative_tokens": 2}'], "method: input should be 'mtp'"),
    (["--speculative-config", '{"method": "mtp", "num_speculative_tokens": 0}'], "num_speculative_tokens: "),
    (["--speculative-config", '{"method": "mtp", "num_speculative_tokens": 2, "x": 1}'], "x: "),
]


def refused(cli: RunCli, *arguments: object) -> str:
    """Runs a command that must be refused; returns its sentence."""
    result = cli(*arguments)
    assert result.code == 2, result
    assert result.out == ""
    assert result.err.startswith("outrider: ") and result.err.count("\n") == 1, result.err
    assert "Traceback" not in result.err
    return result.err


@pytest.mark.parametrize(("options", "expected"), BAD_OPTIONS, ids=[expected for _, expected in BAD_OPTIONS])
def test_bad_option(cli: RunCli, options: list[str], expected: str) -> None:
    assert expected in refused(cli, "generate", "Hello", *options)


def test_bad_command_lines(cli: RunCli) -> None:
    assert "No such command" in refused(cli, "nonsense")
    assert "prompt" in refused(cli, "generate")
    assert cli().code == 0 and "generate" in cli("--help").out
    assert cli("--version").out.startswith("outrider ")


def test_prompt(cli: RunCli, model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "prompt: it is empty" in refused(cli, "generate", "", "--model", model_folder)
    assert "prompt: not UTF-8 (byte 0xff after 3 characters)" in refused(cli, "generate", "née\udcff")
    for data, expected in ((b"", "empty"), (b"ab\xe2\x28", "standard input is not UTF-8 (byte 0xe2 at 2)")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        assert expected in refused(cli, "generate", "-")


def test_context(cli: RunCli, model_folder: Path) -> None:
    command = ("generate", "abcdefgh", "--model", model_folder, "--max-model-len")
    assert "prompt: its 9 tokens leave no room in a context of 9" in refused(cli, *command, 9)
    assert "prompt: its 9 tokens leave no room" in refused(cli, *command, 8, "--json")
    assert "max_model_len: 65537 is more than max_position_embeddings, 65536" in refused(cli, *command, 65537)


def test_checkpoint_that_is_not_there(cli: RunCli, tmp_path: Path) -> None:
    assert "nowhere: no such folder" in refused(cli, "generate", "Hello", "--model", tmp_path / "nowhere")
    assert "config.json: no such file" in refused(cli, "generate", "Hello", "--model", tmp_path)
    assert "nowhere" in refused(cli, "inspect", tmp_path / "nowhere")


def test_damaged_checkpoint(cli: RunCli, model_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(model_folder, folder)
    weights = next(folder.glob("*.safetensors"))
    data = weights.read_bytes()
    weights.write_bytes(data[:-1])
    assert "cut short by 1 byte" in refused(cli, "generate", "Hello", "--model", folder)
    weights.write_bytes(data)
    (folder / "tokenizer.json").write_text("{")
    assert "tokenizer.json: cannot be read" in refused(cli, "generate", "Hello", "--model", folder)
    (folder / "tokenizer.json").unlink()
    assert "tokenizer.json: no such file" in refused(cli, "generate", "Hello", "--model", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "hc_mult": 0}))
    assert "config.json: hc_mult: " in refused(cli, "generate", "Hello", "--model", folder)


def test_speculation_without_a_drafter(cli: RunCli, model_without_mtp: Path) -> None:
    assert cli("generate", "Hello", "--model", model_without_mtp, "--max-tokens", 2).code == 0
    assert "no mtp.* tensors" in refused(cli, "generate", "Hello", "--model", model_without_mtp, "--compare")


def test_no_model_named_and_none_ships(cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outrider.assets, "_TINY", tmp_path)
    assert "--model: this installation holds no model" in refused(cli, "generate", "Hello")


def test_model_larger_than_the_machine(cli: RunCli, model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("generate", "Hello", "--model", model_folder, "--max-tokens", 1)
    for available, words in ((1_000_000, "The weights alone are too large"), (10_000_000, "Lower max_")):
        monkeypatch.setattr(loading, "available_memory", lambda available=available: available)
        error = refused(cli, *command)
        assert "does not fit into memory: weights" in error and words in error
    monkeypatch.setattr(loading, "available_memory", lambda: 20_000_000)
    assert cli(*command).code == 0
    assert "2 caches, together" in refused(cli, *command, "--compare", "--gpu-memory-utilization", 0.6)
    assert "gpu_memory_utilization 0.2 of 20.00 MB" in refused(cli, *command, "--gpu-memory-utilization", 0.2)
    monkeypatch.setattr(loading, "available_memory", lambda: None)
    assert cli(*command).code == 0


def test_chat_without_chat_tokens(cli: RunCli, model_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(model_folder, folder)
    text = (folder / "tokenizer.json").read_text(encoding="utf-8")
    (folder / "tokenizer.json").write_text(text.replace("<｜User｜>", "<｜Person｜>"), encoding="utf-8")
    assert cli("generate", "Hello", "--model", folder, "--max-tokens", 1).code == 0
    error = refused(cli, "generate", "Hello", "--model", folder, "--chat")
    assert "chat: this checkpoint's tokenizer has no token <｜User｜>, so its model knows no chat turns" in error


def test_what_is_told_and_what_is_a_bug() -> None:
    assert describe(LogitsError("not\nfinite")) == "not finite"
    assert describe(PermissionError(13, "Permission denied", "/x/config.json")) == "/x/config.json: Permission denied"
    assert "out of memory" in str(describe(RuntimeError("DefaultCPUAllocator: can't allocate memory: ...")))
    assert describe(RuntimeError("boom")) is None
    assert describe(AssertionError()) is None


# ------------------------------------------------------------------------------------------------ real processes


def start(*arguments: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "outrider", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)


def endless(model_folder: Path) -> subprocess.Popen[bytes]:
    """A generation that has begun to print."""
    process = start("generate", "Hello", "--model", model_folder, "--max-tokens", 60_000, "--ignore-eos")
    assert process.stdout is not None
    assert process.stdout.read(1)
    return process


def test_closed_pipe(model_folder: Path) -> None:
    process = endless(model_folder)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == b""


def test_interrupt(model_folder: Path) -> None:
    process = endless(model_folder)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip() == b""


def test_bytes_of_the_command_line_that_are_not_utf8() -> None:
    environment = {**os.environ, "PYTHONUTF8": "1"}
    command = [os.fsencode(sys.executable), b"-m", b"outrider", b"generate", b"ab\xff"]
    done = subprocess.run(command, capture_output=True, env=environment, timeout=60, check=False)
    assert done.returncode == 2 and done.stdout == b""
    assert b"prompt: not UTF-8 (byte 0xff after 2 characters)" in done.stderr


def test_help_and_bad_options_do_not_wait_for_torch() -> None:
    code = "import sys; from outrider.cli.main import run; {}; sys.exit('torch' in sys.modules)"
    for call in ("run(['--help'])", "run(['generate', '--help'])", "run(['generate', 'x', '--top-p', '0'])"):
        assert (
            subprocess.run([sys.executable, "-c", code.format(call)], capture_output=True, check=False).returncode == 0
        )
