"""Damaged checkpoints: each is refused before any data is used, and the error names the file and the tensor."""

from __future__ import annotations

import json
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.checkpoint import damage
from tests.tiny import DSPARK, random_tensors, tiny_checkpoint, tiny_config

from outrider.checkpoint import Checkpoint, CheckpointError
from outrider.checkpoint.names import expected_tensors
from outrider.config import ConfigError, parse_model_config

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
EXPERT = "layers.2.ffn.experts.3.w2"


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("originals")
    return {
        "single": tiny_checkpoint(root / "single"),
        "sharded": tiny_checkpoint(root / "sharded", max_shard_bytes=400_000),
        "base": tiny_checkpoint(root / "base", tiny_config(expert_dtype="fp8")),
        "dspark": tiny_checkpoint(root / "dspark", tiny_config(**DSPARK)),
    }


@pytest.fixture
def copy(originals: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(originals[name], tmp_path / name))


def refusal(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        Checkpoint.open(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def cut(path: Path, count: int) -> None:
    path.write_bytes(path.read_bytes()[:-count])


def first_shard(folder: Path) -> Path:
    return min(folder.glob("model-*.safetensors"))


def last_tensor(path: Path) -> str:
    header, _ = damage.read_parts(path)
    header.pop("__metadata__")
    return max(header, key=lambda name: header[name]["data_offsets"][1])


SINGLE_CASES: dict[str, tuple[Callable[[Path], object], str]] = {
    "one byte cut": (lambda p: cut(p, 1), "cut short by 1 byte; .* is incomplete"),
    "half the file cut": (
        lambda p: cut(p, p.stat().st_size // 2),
        r"cut short by [\d,]+ bytes; .* more tensors are",
    ),
    "cut inside the header": (
        lambda p: cut(p, p.stat().st_size - 100),
        r"header claims [\d,]+ bytes, the file has 100 b",
    ),
    "empty file": (lambda p: p.write_bytes(b""), "0 bytes long, too short"),
    "five bytes": (lambda p: p.write_bytes(b"\1\0\0\0\0"), "5 bytes long, too short"),
    "one byte more": (lambda p: p.write_bytes(p.read_bytes() + b"\0"), "1 byte too many after the last tensor"),
    "header length lies, too long": (
        lambda p: p.write_bytes(struct.pack("<Q", 2**62) + p.read_bytes()[8:]),
        "header claims 4,611,686,018,427,387,904 bytes",
    ),
    "header length lies, too short": (
        lambda p: p.write_bytes(struct.pack("<Q", 50) + p.read_bytes()[8:]),
        "header is not valid JSON",
    ),
    "header is a list": (lambda p: p.write_bytes(struct.pack("<Q", 2) + b"[]"), "header is not a JSON object"),
    "header is not text": (lambda p: p.write_bytes(struct.pack("<Q", 2) + b"\xff\xfe"), "header is not valid JSON"),
    "pickle instead": (lambda p: p.write_bytes(b"PK\3\4" + bytes(400)), "header claims"),
    "tensor deleted": (lambda p: damage.remove_tensor(p, f"{EXPERT}.weight"), rf"{EXPERT}.weight: missing"),
    "scale deleted": (lambda p: damage.remove_tensor(p, f"{EXPERT}.scale"), rf"{EXPERT}.scale: missing"),
    "drafter tensor deleted": (lambda p: damage.remove_tensor(p, "mtp.0.enorm.weight"), "mtp.0.enorm.weight: missing"),
    "shared expert of the drafter deleted": (
        lambda p: damage.remove_tensor(p, "mtp.0.ffn.shared_experts.w1.weight"),
        "mtp.0.ffn.shared_experts.w1.weight: missing",
    ),
    "head deleted": (lambda p: damage.remove_tensor(p, "head.weight"), "head.weight: missing"),
    "gap where a tensor was": (
        lambda p: damage.edit_header(p, lambda h: h.pop("norm.weight")),
        "leaves a gap before it",
    ),
    "wrong shape": (
        lambda p: damage.edit_header(p, lambda h: h["embed.weight"].update(shape=[64, 512])),
        r"embed.weight: shape \[64, 512\], expected \[512, 64\]",
    ),
    "wrong dtype of the same width": (
        lambda p: damage.edit_header(p, lambda h: h["embed.weight"].update(dtype="F16")),
        "embed.weight: dtype F16, expected BF16",
    ),
    "scales as plain bytes": (
        lambda p: damage.edit_header(p, lambda h: h[f"{EXPERT}.scale"].update(dtype="U8")),
        f"{EXPERT}.scale: dtype U8, expected F8_E8M0",
    ),
    "unknown dtype": (
        lambda p: damage.edit_header(p, lambda h: h["embed.weight"].update(dtype="F3")),
        "embed.weight: unknown dtype 'F3'",
    ),
    "shape and bytes disagree": (
        lambda p: damage.edit_header(p, lambda h: h["norm.weight"].update(shape=[63])),
        r"norm.weight: BF16 \[63\] takes 126 bytes, the header gives it 128",
    ),
    "negative size": (
        lambda p: damage.edit_header(p, lambda h: h["norm.weight"].update(shape=[-64])),
        "norm.weight: malformed shape",
    ),
    "entry without offsets": (
        lambda p: damage.edit_header(p, lambda h: h["norm.weight"].pop("data_offsets")),
        "norm.weight: malformed shape or data_offsets",
    ),
    "entry is a number": (
        lambda p: damage.edit_header(p, lambda h: h.update({"norm.weight": 3})),
        "norm.weight: malformed header entry",
    ),
    "two tensors share bytes": (
        lambda p: damage.edit_header(
            p, lambda h: h["layers.0.attn_norm.weight"].update(data_offsets=h["norm.weight"]["data_offsets"])
        ),
        "overlaps the tensor before it",
    ),
    "stray tensor": (
        lambda p: damage.add_tensor(p, "layers.6.attn_norm.weight", "BF16", [64], bytes(128)),
        "layers.6.attn_norm.weight: not a tensor of this model",
    ),
    "stray drafter tensor": (
        lambda p: damage.add_tensor(p, "mtp.0.eh_proj.weight", "BF16", [64], bytes(128)),
        "mtp.0.eh_proj.weight: not a tensor of this model",
    ),
}


@pytest.mark.parametrize("case", SINGLE_CASES)
def test_single_file(case: str, copy: Callable[[str], Path]) -> None:
    folder = copy("single")
    action, message = SINGLE_CASES[case]
    action(folder / SINGLE)
    error = refusal(folder)
    assert re.search(message, error), error
    assert SINGLE in error or "missing" in error


def test_a_name_listed_twice_in_one_header(copy: Callable[[str], Path]) -> None:
    folder = copy("single")
    header, data = damage.read_parts(folder / SINGLE)
    text = json.dumps(header)[:-1] + ', "norm.weight": ' + json.dumps(header["norm.weight"]) + "}"
    (folder / SINGLE).write_bytes(struct.pack("<Q", len(text)) + text.encode() + data)
    assert f"{SINGLE}: norm.weight: listed twice in the header" in refusal(folder)


def test_any_cut_of_a_shard_names_the_file_and_a_tensor(copy: Callable[[str], Path]) -> None:
    folder = copy("sharded")
    shard = first_shard(folder)
    name = last_tensor(shard)
    cut(shard, 1)
    error = refusal(folder)
    assert error.startswith(f"{folder}: {shard.name}: cut short by 1 byte; {name} is incomplete")
    assert "Download" in error


def test_missing_shard_is_one_problem_and_not_hundreds(copy: Callable[[str], Path]) -> None:
    folder = copy("sharded")
    shard = first_shard(folder)
    shard.unlink()
    error = refusal(folder)
    assert f"{shard.name}: this shard is missing" in error and "embed.weight first" in error
    assert "problems" not in error


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read as JSON"),
        ("", "cannot be read as JSON"),
        ("[]", "has no weight_map"),
        ('{"weight_map": {}}', "has no weight_map"),
        ('{"weight_map": {"a": 3}}', "a: 3 is not the name of a safetensors file"),
        ('{"weight_map": {"a": "../secret.safetensors"}}', "is not the name of a safetensors file in this folder"),
        ('{"weight_map": {"a": "pytorch_model.bin"}}', "is not the name of a safetensors file"),
    ],
)
def test_broken_index(copy: Callable[[str], Path], content: str, message: str) -> None:
    folder = copy("sharded")
    (folder / INDEX).write_text(content)
    error = refusal(folder)
    assert message in error and INDEX in error


def test_index_and_shards_disagree(copy: Callable[[str], Path]) -> None:
    folder = copy("sharded")
    files = sorted(path.name for path in folder.glob("model-*.safetensors"))
    damage.edit_index(folder, lambda i: i["weight_map"].update({"embed.weight": files[1]}))
    assert refusal(folder).startswith(f"{folder}: embed.weight: {INDEX} says {files[1]}, found in {files[0]}")
    damage.edit_index(folder, lambda i: i["weight_map"].pop("embed.weight"))
    assert f"{files[0]}: embed.weight: not listed in {INDEX}" in refusal(folder)
    damage.edit_index(folder, lambda i: i["weight_map"].update({"embed.weight": files[0], "ghost": files[2]}))
    assert f"{files[2]}: ghost: listed in {INDEX}, not in the file" in refusal(folder)


def test_tensor_deleted_from_a_shard_is_reported_once(copy: Callable[[str], Path]) -> None:
    folder = copy("sharded")
    shard = first_shard(folder)
    damage.remove_tensor(shard, "embed.weight")
    error = refusal(folder)
    assert error.startswith(f"{folder}: {shard.name}: embed.weight: listed in {INDEX}, not in the file")
    damage.edit_index(folder, lambda i: i["weight_map"].pop("embed.weight"))
    assert "embed.weight: missing" in refusal(folder)


def test_duplicated_tensor_across_shards(copy: Callable[[str], Path]) -> None:
    folder = copy("sharded")
    first, second = sorted(folder.glob("model-*.safetensors"))[:2]
    damage.add_tensor(second, "embed.weight", "BF16", [512, 64], bytes(512 * 64 * 2))
    assert refusal(folder).startswith(f"{folder}: embed.weight: stored twice, in {first.name} and in {second.name}")


def test_many_problems_show_ten_and_a_count(copy: Callable[[str], Path]) -> None:
    folder = copy("single")
    for expert in range(8):
        for part in ("w1", "w3"):
            damage.remove_tensor(folder / SINGLE, f"layers.4.ffn.experts.{expert}.{part}.scale")
    with pytest.raises(CheckpointError) as caught:
        Checkpoint.open(folder)
    assert len(caught.value.problems) == 16
    assert ": 16 problems: " in str(caught.value) and "; and 6 more. Download" in str(caught.value)


def test_nan_scales_are_named_while_loading(copy: Callable[[str], Path]) -> None:
    folder = copy("single")
    damage.poke(folder / SINGLE, f"{EXPERT}.scale", b"\xff", at=5)
    checkpoint = Checkpoint.open(folder)
    message = rf"{SINGLE}: {EXPERT}.scale: 1 of 128 block scales are NaN"
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load_weight(f"{EXPERT}.weight")
    with pytest.raises(CheckpointError, match=message):
        list(checkpoint.iter_weights())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_float32_scales_that_are_not_finite_are_named(copy: Callable[[str], Path], value: float) -> None:
    folder = copy("base")
    damage.poke(folder / SINGLE, f"{EXPERT}.scale", struct.pack("<f", value))
    with pytest.raises(CheckpointError, match=f"{EXPERT}.scale: 1 of 1 block scales"):
        Checkpoint.open(folder).load_weight(f"{EXPERT}.weight")


@pytest.mark.parametrize(
    ("name", "content"),
    [("layers.3.attn.wkv.weight", b"\x7f"), ("norm.weight", b"\xc0\x7f"), ("layers.2.ffn.gate.bias", b"\0\0\xc0\xff")],
)
def test_nan_values_are_named_while_loading(copy: Callable[[str], Path], name: str, content: bytes) -> None:
    folder = copy("single")
    damage.poke(folder / SINGLE, name, content, at=8)
    with pytest.raises(CheckpointError, match=f"{name}: holds NaN"):
        Checkpoint.open(folder).load_weight(name)


@pytest.mark.parametrize(
    ("ids", "message"),
    [((3, 3), "row 2 names an expert twice"), ((8, 0), "row 2 names experts"), ((-1, 0), "row 2 names experts")],
)
def test_routing_table_values(copy: Callable[[str], Path], ids: tuple[int, int], message: str) -> None:
    folder = copy("single")
    damage.poke(folder / SINGLE, "layers.1.ffn.gate.tid2eid", struct.pack("<2q", *ids), at=32)
    with pytest.raises(CheckpointError, match=f"layers.1.ffn.gate.tid2eid: {message}"):
        Checkpoint.open(folder).load_weight("layers.1.ffn.gate.tid2eid")


def test_int32_routing_tables_are_read(copy: Callable[[str], Path]) -> None:
    folder = copy("single")
    name = "layers.1.ffn.gate.tid2eid"
    table = Checkpoint.open(folder).load_weight(name)
    damage.remove_tensor(folder / SINGLE, name)
    damage.add_tensor(folder / SINGLE, name, "I32", list(table.shape), table.int().numpy().tobytes())
    assert Checkpoint.open(folder).load_weight(name).equal(table)


def test_file_cut_after_it_was_opened(copy: Callable[[str], Path]) -> None:
    folder = copy("single")
    checkpoint = Checkpoint.open(folder)
    cut(folder / SINGLE, 4)
    with pytest.raises(CheckpointError, match="the file ends early"):
        list(checkpoint.iter_weights())


def test_every_drafter_tensor_is_needed(copy: Callable[[str], Path]) -> None:
    """DSpark's tensors are not loaded, but a missing or mis-sized one still means a damaged download."""
    folder = copy("dspark")
    for name in ("mtp.0.main_proj.weight", "mtp.1.attn_norm.weight", "mtp.2.markov_head.markov_w2.weight"):
        damage.remove_tensor(folder / SINGLE, name)
        assert f"{name}: missing" in refusal(folder)
    name = "mtp.2.confidence_head.proj.weight"
    damage.edit_header(folder / SINGLE, lambda h: h[name].update(shape=[80, 1]))
    assert f"{name}: shape [80, 1], expected [1, 80]" in refusal(folder)


def test_stripped_drafter_leaves_a_usable_trunk(copy: Callable[[str], Path]) -> None:
    folder = copy("single")
    for name in expected_tensors(parse_model_config(tiny_config())):
        if name.startswith("mtp."):
            damage.remove_tensor(folder / SINGLE, name)
    checkpoint = Checkpoint.open(folder)
    assert checkpoint.drafter == "none"
    assert len(list(checkpoint.iter_weights())) == len(random_tensors(tiny_config(num_nextn_predict_layers=0)))


def test_folders_that_hold_no_checkpoint(copy: Callable[[str], Path], tmp_path: Path) -> None:
    folder = copy("single")
    shutil.copy(copy("sharded") / INDEX, folder)
    assert f"holds both {INDEX} and {SINGLE}" in refusal(folder)
    (folder / INDEX).unlink()
    (folder / SINGLE).unlink()
    assert f"holds neither {INDEX} nor {SINGLE}" in refusal(folder)
    (folder / "pytorch_model.bin").write_bytes(b"")
    assert "never from pickles" in refusal(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ConfigError, match="no such file"):
        Checkpoint.open(folder)
    with pytest.raises(CheckpointError, match="no such folder, and not a hub id"):
        Checkpoint.open(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="give the folder"):
        (tmp_path / "file").write_text("")
        Checkpoint.open(tmp_path / "file")


def test_a_config_of_another_model_is_refused_first(copy: Callable[[str], Path]) -> None:
    folder = copy("single")
    (folder / "config.json").write_text(json.dumps(tiny_config(model_type="deepseek_v41")))
    with pytest.raises(ConfigError, match="another architecture"):
        Checkpoint.open(folder)
    (folder / "config.json").write_text(json.dumps(tiny_config(num_hidden_layers=5, compress_ratios=[0, 0, 4, 128, 4])))
    assert "layers.5.attn_norm.weight: not a tensor of this model" in refusal(folder)
