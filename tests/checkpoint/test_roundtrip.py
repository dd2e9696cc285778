"""Writer and reader together: every format, sharding, stored input, determinism, and a third party's reader."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from tests.tiny import DSPARK, random_tensors, tiny_checkpoint, tiny_config
from torch import Tensor

from outrider.checkpoint import Checkpoint, CheckpointError, write_checkpoint
from outrider.checkpoint.names import expected_tensors
from outrider.config import parse_model_config
from outrider.ops import formats

# every layer kind and both routings, in fewer tensors
SMALL: dict[str, Any] = {"num_hidden_layers": 4, "compress_ratios": [0, 4, 128, 4, 0], "n_routed_experts": 3}
SMALL_DSPARK = {**SMALL, **DSPARK, "compress_ratios": [0, 4, 128, 4, 0, 0, 0], "dspark_target_layer_ids": [1, 2, 3]}


def round_tripped(name: str, tensor: Tensor, config: dict[str, Any]) -> Tensor:
    """What a tensor must be after having been stored."""
    spec = expected_tensors(parse_model_config(config))[name]
    if spec.dtype == "I64":
        return tensor
    if spec.scale is None:
        return tensor.bfloat16().float() if spec.dtype == "BF16" else tensor
    if spec.dtype == "I8":
        return formats.dequantize_fp4_block(*formats.quantize_fp4_block(tensor))
    base = config["expert_dtype"] == "fp8"
    return formats.dequantize_fp8_block(*formats.quantize_fp8_block(tensor, float32_scale=base))


@pytest.mark.parametrize("overrides", [{}, {"expert_dtype": "fp8"}, {"hidden_size": 160}, SMALL_DSPARK])
@pytest.mark.parametrize("max_shard_bytes", [2**30, 400_000])
def test_quantised(tmp_path: Path, overrides: dict[str, Any], max_shard_bytes: int) -> None:
    config = tiny_config(**{**SMALL, **overrides})
    tiny_checkpoint(tmp_path, config, seed=3, max_shard_bytes=max_shard_bytes)
    checkpoint = Checkpoint.open(tmp_path)
    given = random_tensors(config, seed=3)
    loaded = dict(checkpoint.iter_weights())
    assert set(loaded) == {n for n in given if checkpoint.drafter == "mtp" or not n.startswith("mtp.")}
    for name, weight in loaded.items():
        assert torch.equal(weight, round_tripped(name, given[name], config)), name
        assert weight.dtype == (torch.int64 if name.endswith("tid2eid") else torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_unquantised_keeps_each_dtype(tmp_path: Path, dtype: torch.dtype) -> None:
    config = tiny_config(quantization_config=None)
    given = {n: t if n.endswith(("tid2eid", "_fn")) else t.to(dtype) for n, t in random_tensors(config).items()}
    write_checkpoint(tmp_path, parse_model_config(config), given)
    checkpoint = Checkpoint.open(tmp_path)
    for name, weight in checkpoint.iter_weights():
        assert torch.equal(weight, given[name].to(weight.dtype))
        assert checkpoint.read(name).dtype == given[name].dtype
    assert checkpoint.tensors()["embed.weight"].dtype == ("F32" if dtype == torch.float32 else "BF16")
    assert checkpoint.tensors()["layers.0.hc_attn_fn"].dtype == "F32"


def test_shards_stay_below_the_limit_and_the_index_is_complete(tmp_path: Path) -> None:
    tiny_checkpoint(tmp_path, max_shard_bytes=300_000)
    files = sorted(tmp_path.glob("*.safetensors"))
    assert len(files) > 3
    assert all(file.stat().st_size <= 300_000 for file in files)
    assert files[0].name == f"model-00001-of-{len(files):05d}.safetensors"
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    specs = expected_tensors(parse_model_config(tiny_config()))
    assert set(index["weight_map"]) == set(specs)
    assert index["metadata"]["total_size"] == sum(spec.nbytes for spec in specs.values())
    for name, spec in specs.items():
        if spec.scale:
            assert index["weight_map"][name] == index["weight_map"][spec.scale]


def test_a_tensor_larger_than_the_limit_gets_its_own_file(tmp_path: Path) -> None:
    tiny_checkpoint(tmp_path, tiny_config(**SMALL), max_shard_bytes=1)
    checkpoint = Checkpoint.open(tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) == len(checkpoint.weight_names())
    assert len(list(checkpoint.iter_weights())) == len(checkpoint.weight_names())


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        tiny_checkpoint(tmp_path / folder, tiny_config(**SMALL), seed=5, max_shard_bytes=600_000)
    names = sorted(file.name for file in (tmp_path / "a").iterdir())
    assert names == sorted(file.name for file in (tmp_path / "b").iterdir())
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_rewriting_replaces_every_file_of_the_old_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    tiny_checkpoint(tmp_path, max_shard_bytes=300_000)
    tiny_checkpoint(tmp_path, seed=1)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    tiny_checkpoint(tmp_path, seed=2, max_shard_bytes=600_000)
    assert not (tmp_path / "model.safetensors").exists()
    assert torch.equal(Checkpoint.open(tmp_path).load_weight("norm.weight"),
                       random_tensors(tiny_config(), 2)["norm.weight"].bfloat16().float())  # fmt: skip


def test_a_failed_write_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_checkpoint(tmp_path, seed=1, max_shard_bytes=600_000)
    before = {f.name: f.read_bytes() for f in tmp_path.iterdir()}

    def fail(fd: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        tiny_checkpoint(tmp_path, seed=2, max_shard_bytes=600_000)
    assert {f.name: f.read_bytes() for f in tmp_path.iterdir()} == before


def test_default_config_json_describes_the_same_model(tmp_path: Path) -> None:
    config = parse_model_config(tiny_config())
    write_checkpoint(tmp_path, config, random_tensors(config))
    assert Checkpoint.open(tmp_path).config == config
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["DeepseekV4ForCausalLM"]
    with pytest.raises(CheckpointError, match="different models"):
        write_checkpoint(tmp_path, config, random_tensors(config), config_json=tiny_config(sliding_window=32))


def test_converter_path_stored_tensors_go_through_unchanged(tmp_path: Path) -> None:
    """A converter hands over what it read, MTP's e_proj and h_proj included; bytes stay as they were."""
    config = tiny_config(**SMALL)
    tiny_checkpoint(tmp_path / "a", config, max_shard_bytes=200_000)
    source = Checkpoint.open(tmp_path / "a")
    stored = {name: source.read(name) for name in source.tensors()}
    assert stored["mtp.0.e_proj.weight"].dtype == stored["mtp.0.h_proj.weight"].dtype == torch.float8_e4m3fn
    assert stored["mtp.0.e_proj.scale"].dtype == torch.uint8
    write_checkpoint(tmp_path / "b", source.config, stored, config_json=config, max_shard_bytes=200_000)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
    # some stored, some float: each weight decides for itself
    stored["mtp.0.e_proj.weight"] = source.load_weight("mtp.0.e_proj.weight")
    del stored["mtp.0.e_proj.scale"]
    stored["mtp.0.h_proj.weight"] = stored["mtp.0.h_proj.weight"].view(torch.uint8)
    stored["layers.0.ffn.experts.0.w1.weight"] = stored["layers.0.ffn.experts.0.w1.weight"].view(torch.int8)
    write_checkpoint(tmp_path / "c", source.config, stored)
    copy = Checkpoint.open(tmp_path / "c")
    for name in source.weight_names():
        assert torch.equal(copy.load_weight(name), source.load_weight(name)), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("mtp.0.e_proj.weight"), "mtp.0.e_proj.weight: missing"),
        (lambda t: t.update({"mtp.0.eh_proj.weight": torch.zeros(1)}), "eh_proj.weight: not a tensor of this model"),
        (lambda t: t.update({"norm.weight": torch.zeros(63)}), r"norm.weight: shape \[63\], expected \[64\]"),
        (lambda t: t.update({"norm.weight": torch.zeros(64).half()}), "norm.weight: float16, expected float32"),
        (lambda t: t["head.weight"].fill_(float("nan")), "head.weight: holds NaN or infinity"),
        (lambda t: t["layers.0.attn.wkv.weight"][0].fill_(float("inf")), "wkv.weight: holds NaN or infinity"),
        (lambda t: t["layers.0.ffn.gate.tid2eid"][7].fill_(3), "tid2eid: row 7 names an expert twice"),
        (lambda t: t["layers.1.ffn.gate.tid2eid"][9, 1].fill_(8), "row 9 names experts .* valid ids are 0 to 7"),
        (lambda t: t.update({"layers.0.attn.wkv.scale": torch.zeros(1, 1)}), "expected float8_e8m0fnu or uint8"),
        (lambda t: t.update({"layers.0.attn.wkv.scale": torch.zeros(1, 1).byte()}), "wkv.weight: float32, expected"),
    ],
)
def test_the_writer_names_what_is_wrong(tmp_path: Path, change: Any, message: str) -> None:
    config = parse_model_config(tiny_config())
    tensors = random_tensors(config)
    change(tensors)
    with pytest.raises(CheckpointError, match=message):
        write_checkpoint(tmp_path / "out", config, tensors)
    assert not (tmp_path / "out").exists()


def test_int32_routing_tables_and_bf16_input_are_taken(tmp_path: Path) -> None:
    config = parse_model_config(tiny_config())
    tensors = {n: t.int() if n.endswith("tid2eid") else t.bfloat16() for n, t in random_tensors(config).items()}
    write_checkpoint(tmp_path, config, tensors)
    checkpoint = Checkpoint.open(tmp_path)
    assert checkpoint.tensors()["layers.0.ffn.gate.tid2eid"].dtype == "I64"
    assert torch.equal(checkpoint.load_weight("layers.0.ffn.gate.tid2eid"), tensors["layers.0.ffn.gate.tid2eid"].long())


def test_the_safetensors_library_reads_our_files(tmp_path: Path) -> None:
    tiny_checkpoint(tmp_path)
    checkpoint = Checkpoint.open(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
        assert set(file.keys()) == set(checkpoint.tensors())
        for name in file.keys():  # noqa: SIM118
            theirs = file.get_tensor(name)
            assert torch.equal(theirs.view(torch.uint8), checkpoint.read(name).view(torch.uint8)), name


def test_progress_counts_bytes_and_weights_come_one_at_a_time(tmp_path: Path) -> None:
    tiny_checkpoint(tmp_path, max_shard_bytes=400_000)
    checkpoint = Checkpoint.open(tmp_path)
    seen: list[tuple[int, int]] = []
    for number, _ in enumerate(checkpoint.iter_weights(progress=lambda done, total: seen.append((done, total)))):
        assert len(seen) == number
    total = sum(checkpoint.stored_bytes(name) for name in checkpoint.tensors())
    assert seen[-1] == (total, total) and seen == sorted(seen)
    some = ["norm.weight", "layers.3.attn.wkv.weight"]
    assert {name for name, _ in checkpoint.iter_weights(some)} == set(some)


def test_mtp_asked_for_and_absent(tmp_path: Path) -> None:
    complete = Checkpoint.open(tiny_checkpoint(tmp_path / "with", tiny_config(**SMALL)))
    complete.require_drafter("mtp")
    with pytest.raises(CheckpointError, match="method 'dspark' is not supported"):
        complete.require_drafter("dspark")
    without = Checkpoint.open(tiny_checkpoint(tmp_path / "without", tiny_config(num_nextn_predict_layers=0)))
    assert without.drafter == "none" and without.drafter_description == "none"
    with pytest.raises(CheckpointError, match=r"'mtp' was asked for, but the checkpoint has no mtp\.\* tensors"):
        without.require_drafter("mtp")


@pytest.mark.parametrize("announced", [0, 1])
def test_the_tensors_decide_and_not_the_config(tmp_path: Path, announced: int) -> None:
    tiny_checkpoint(tmp_path, tiny_config(**SMALL, num_nextn_predict_layers=1 - announced))
    config = tiny_config(**SMALL, num_nextn_predict_layers=announced)
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert Checkpoint.open(tmp_path).drafter == ("none" if announced else "mtp")


def test_dspark_loads_its_trunk_and_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tiny_checkpoint(tmp_path, tiny_config(**SMALL_DSPARK))
    with caplog.at_level(logging.INFO, logger="outrider"):
        checkpoint = Checkpoint.open(tmp_path)
    assert len(caplog.records) == 1
    assert "DSpark, 3 stages, block 5" in caplog.text and "speculation is off" in caplog.text
    assert checkpoint.drafter == "dspark"
    assert not any(name.startswith("mtp.") for name in checkpoint.weight_names())
    with pytest.raises(CheckpointError, match="DSpark, 3 stages, block 5"):
        checkpoint.require_drafter("mtp")


def test_transformers_loads_an_unquantised_checkpoint(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = tiny_config(quantization_config=None, expert_dtype=None)
    tiny_checkpoint(tmp_path, config, max_shard_bytes=2_000_000)
    model, info = transformers.DeepseekV4ForCausalLM.from_pretrained(
        tmp_path, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    expected = random_tensors(config)
    assert torch.equal(model.lm_head.weight, expected["head.weight"])
    assert torch.equal(model.model.layers[2].self_attn.q_a_proj.weight, expected["layers.2.attn.wq_a.weight"])
