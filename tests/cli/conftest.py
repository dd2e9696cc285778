"""A tiny model with a tokenizer, and a way to run a command line in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.tiny import tiny_checkpoint, tiny_config
from tests.tiny_tokenizer import write_tiny_tokenizer

from outrider.cli.main import run

# one layer of each kind: the command line does not care, and every step costs half as much
THREE_LAYERS = {"num_hidden_layers": 3, "compress_ratios": [0, 4, 128, 0], "num_hash_layers": 1}


class Result(NamedTuple):
    code: int
    out: str
    err: str


RunCli = Callable[..., Result]


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny_checkpoint(tmp_path_factory.mktemp("model"), tiny_config(**THREE_LAYERS))
    write_tiny_tokenizer(folder)
    return folder


@pytest.fixture(scope="session")
def model_without_mtp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = tiny_config(**THREE_LAYERS, num_nextn_predict_layers=0)
    folder = tiny_checkpoint(tmp_path_factory.mktemp("no_mtp"), config)
    write_tiny_tokenizer(folder)
    return folder


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> RunCli:
    """cli("generate", "text", ...) -> exit code, stdout, stderr."""

    def call(*arguments: object) -> Result:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call
