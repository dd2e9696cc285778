"""Finding a checkpoint: local paths, and hub ids without a network."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants
from tests.tiny import tiny_checkpoint

from outrider.checkpoint import Checkpoint, CheckpointError
from outrider.checkpoint.locate import locate, locate_config


@pytest.fixture
def offline_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache and no network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "cache"


def cached_snapshot(cache: Path) -> Path:
    """The folder of a snapshot of `some/model`, laid out as the hub's client does."""
    repo = cache / "models--some--model"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text("0" * 40)
    return repo / "snapshots" / ("0" * 40)


def test_cached_snapshot_is_used_offline(offline_cache: Path) -> None:
    snapshot = cached_snapshot(offline_cache)
    tiny_checkpoint(snapshot)
    assert Checkpoint.open("some/model").folder == snapshot
    assert locate_config("some/model") == (snapshot / "config.json", True)


def test_not_cached_and_offline_is_one_clear_sentence(offline_cache: Path) -> None:
    for function in (locate, locate_config):
        with pytest.raises(CheckpointError, match="some/model: no such local folder, not in the hub cache") as caught:
            function("some/model")
        assert "\n" not in str(caught.value)


def test_interrupted_download_says_what_is_missing(offline_cache: Path) -> None:
    snapshot = cached_snapshot(offline_cache)
    tiny_checkpoint(snapshot, max_shard_bytes=500_000)
    sorted(snapshot.glob("model-*"))[1].unlink()
    with pytest.raises(CheckpointError, match=r"model-00002-of-\d+.safetensors: this shard is missing"):
        Checkpoint.open("some/model")


def test_only_json_and_safetensors_are_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: dict[str, object] = {}

    def download(repo: str, **options: object) -> str:
        asked.update(options, repo=repo)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert locate("some/model") == tmp_path
    assert asked == {"repo": "some/model", "allow_patterns": ["*.json", "*.safetensors"], "local_files_only": False}


def test_errors_of_the_hub_become_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(repo: str, **options: object) -> str:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(CheckpointError, match="the hub answered with RuntimeError: first line") as caught:
        locate("some/model")
    assert "second line" not in str(caught.value)


@pytest.mark.parametrize("text", ["nowhere", "./some/model", "/some/model", "a/b/c", "../x", "some/../model", ""])
def test_what_is_no_hub_id_is_a_missing_folder(text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="no such folder"):
        locate(text)


def test_local_paths(tmp_path: Path) -> None:
    tiny_checkpoint(tmp_path / "a")
    assert locate(tmp_path / "a") == tmp_path / "a"
    assert locate_config(tmp_path / "a") == (tmp_path / "a" / "config.json", True)
    assert locate_config(tmp_path / "a" / "config.json") == (tmp_path / "a" / "config.json", False)
    (tmp_path / "a" / "model.safetensors").unlink()
    assert locate_config(str(tmp_path / "a")) == (tmp_path / "a" / "config.json", False)
