"""`outrider inspect`: totals of the released models, checkpoints and bare config files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.tiny import DSPARK, tiny_checkpoint, tiny_config

from outrider.checkpoint import CheckpointError
from outrider.cli.inspect import inspect, layer_runs, summarize
from outrider.config import ConfigError, LayerKind

CONFIGS = Path(__file__).parents[1] / "configs"


@pytest.mark.parametrize(
    ("name", "tensors", "size", "per_token", "layers"),
    [
        ("flash", 69_187, 159_609_485_896, 3850.25, "0-1 window; 2-41 alternating CSA 1:4, HCA 1:128; 42 CSA 1:4"),
        ("pro", 145_116, 864_704_792_696, 5511.4375, "0-1 HCA 1:128; 2-59 alternating CSA 1:4, HCA 1:128; 60 CSA 1:4"),
    ],
)
def test_released_models(name: str, tensors: int, size: int, per_token: float, layers: str) -> None:
    summary = summarize(str(CONFIGS / f"{name}.json"))
    assert (summary["total"]["tensors"], summary["total"]["bytes"]) == (tensors, size)
    assert summary["cache"]["fp8"]["per_token"] == per_token
    assert "; ".join(f"{run['layers']} {run['kind']}" for run in summary["layers"]) == layers
    assert summary["drafter"] == {"kind": "mtp", "description": "MTP, 1 layer"}
    assert summary["checked"] is False


def test_window_rows_of_flash() -> None:
    cache = summarize(str(CONFIGS / "flash.json"))["cache"]
    assert cache["fp8"]["window_per_sequence"] == 128 * 584 * 44  # 43 layers and the MTP layer


def test_memory_plan() -> None:
    memory = summarize(str(CONFIGS / "flash.json"))["memory"]
    rows = {row["kind"]: row["bytes_per_token"] for row in memory["cache"]}
    assert (rows["compressed"], rows["indexer"]) == (21 * 2048 / 4 + 20 * 2048 / 128, 21 * 512 / 4)
    assert memory["weights"] > 2 * 284e9 and memory["drafter_weights"] > 2 * 6.6e9
    assert memory["total"] == sum(memory[part] for part in ("weights", "drafter_weights", "cache_bytes", "workspace"))


def test_flash_for_people(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    inspect(str(CONFIGS / "flash.json"))
    text = capsys.readouterr().out
    for expected in ("no tensors were checked", "159,609,485,896", "69,187", "3.85 KB", "MTP, 1 layer", "drafter rows"):
        assert expected in text


def test_checkpoint_is_checked_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_checkpoint(tmp_path, max_shard_bytes=500_000)
    inspect(str(tmp_path), json_output=True)
    summary = json.loads(capsys.readouterr().out)
    assert summary["checked"] is True
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert summary["total"]["bytes"] == index["metadata"]["total_size"]
    assert summary["total"]["tensors"] == len(index["weight_map"])
    inspect(str(tmp_path))
    assert "every tensor checked" in capsys.readouterr().out


def test_unquantised_counts_stored_bytes(tmp_path: Path) -> None:
    tiny_checkpoint(tmp_path, tiny_config(quantization_config=None))
    summary = summarize(str(tmp_path))
    assert summary["total"]["bytes"] > 4 * summary["total"]["parameters"]  # float32, and the routing tables
    assert summary["weights"] == "BF16 or F32, not quantised"


def test_drafter_kinds(tmp_path: Path) -> None:
    tiny_checkpoint(tmp_path / "d", tiny_config(**DSPARK))
    assert summarize(str(tmp_path / "d"))["drafter"]["description"] == "DSpark, 3 stages, block 5"
    assert summarize(str(CONFIGS / "flash_dspark.json"))["total"]["tensors"] == 72_317
    tiny_checkpoint(tmp_path / "n", tiny_config(num_nextn_predict_layers=0))
    assert summarize(str(tmp_path / "n"))["drafter"]["kind"] == "none"


def test_folder_with_a_config_only_and_errors(tmp_path: Path) -> None:
    shutil.copy(CONFIGS / "flash.json", tmp_path / "config.json")
    assert summarize(str(tmp_path))["total"]["tensors"] == 69_187
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="too short"):
        summarize(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="JSON"):
        summarize(str(tmp_path))
    with pytest.raises(CheckpointError, match="no such folder"):
        summarize(str(tmp_path / "nowhere"))


def test_layer_runs() -> None:
    def runs(*ratios: int) -> list[tuple[str, str]]:
        return [(run["layers"], run["kind"]) for run in layer_runs(tuple(LayerKind(r) for r in ratios))]

    assert runs(0) == [("0", "window")]
    assert runs(4, 128) == [("0", "CSA 1:4"), ("1", "HCA 1:128")]
    assert runs(0, 0, 0, 4, 4, 128) == [("0-2", "window"), ("3-4", "CSA 1:4"), ("5", "HCA 1:128")]
    assert runs(4, 128, 4, 128, 128) == [("0-3", "alternating CSA 1:4, HCA 1:128"), ("4", "HCA 1:128")]
