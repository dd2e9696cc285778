"""The tensor table against the published totals of the released checkpoints."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.oracle_setup import make_cfg, official_shapes
from tests.tiny import DSPARK, tiny_config

from outrider.checkpoint.names import Part, TensorSpec, detect_drafter, expected_tensors
from outrider.config import ConfigError, load_model_config, parse_model_config

CONFIGS = Path(__file__).parents[1] / "configs"


@cache
def released(name: str) -> dict[str, TensorSpec]:
    return expected_tensors(load_model_config(CONFIGS / f"{name}.json"))


def table(**overrides: Any) -> dict[str, TensorSpec]:
    return expected_tensors(parse_model_config(tiny_config(**overrides)))


@pytest.mark.parametrize(
    ("name", "tensors", "size"),
    [
        ("flash", 69_187, 159_609_485_896),
        ("pro", 145_116, 864_704_792_696),
        ("flash_dspark", 72_317, 166_878_536_440),
    ],
)
def test_totals_equal_the_published_ones(name: str, tensors: int, size: int) -> None:
    specs = released(name)
    assert len(specs) == tensors
    assert sum(spec.nbytes for spec in specs.values()) == size


def test_flash_by_dtype_and_its_mtp_layer() -> None:
    specs = released("flash").values()
    assert Counter(spec.dtype for spec in specs) == {
        "BF16": 433,
        "F32": 417,
        "F8_E4M3": 375,
        "F8_E8M0": 34_167,
        "I64": 3,
        "I8": 33_792,
    }
    mtp = [spec for spec in specs if spec.part is Part.MTP]
    assert (len(mtp), sum(spec.nbytes for spec in mtp)) == (1_575, 3_593_787_756)
    assert all(spec.name.startswith("mtp.0.") for spec in mtp)


def test_pro_mtp_layer_and_dspark_stages() -> None:
    mtp = [spec for spec in released("pro").values() if spec.part is Part.MTP]
    assert (len(mtp), sum(spec.nbytes for spec in mtp)) == (2_343, 13_956_587_692)
    stages = Counter(name[:5] for name in released("flash_dspark") if name.startswith("mtp."))
    assert stages == {"mtp.0": 1_568, "mtp.1": 1_565, "mtp.2": 1_572}


def test_shapes_of_flash_spot_checks() -> None:
    specs = released("flash")
    expected = {
        "layers.0.attn.wq_a.weight": ("F8_E4M3", (1024, 4096)),
        "layers.0.attn.wq_a.scale": ("F8_E8M0", (8, 32)),
        "layers.42.attn.wo_a.weight": ("F8_E4M3", (8192, 4096)),
        "layers.2.attn.compressor.ape": ("F32", (4, 1024)),
        "layers.3.attn.compressor.wgate.weight": ("BF16", (512, 4096)),
        "layers.2.attn.indexer.compressor.wkv.weight": ("BF16", (256, 4096)),
        "layers.2.ffn.gate.tid2eid": ("I64", (129280, 6)),
        "layers.3.ffn.gate.bias": ("F32", (256,)),
        "layers.9.ffn.experts.255.w2.weight": ("I8", (4096, 1024)),
        "layers.9.ffn.experts.255.w2.scale": ("F8_E8M0", (4096, 64)),
        "layers.9.ffn.shared_experts.w2.weight": ("F8_E4M3", (4096, 2048)),
        "layers.9.hc_ffn_fn": ("F32", (24, 16384)),
        "mtp.0.e_proj.scale": ("F8_E8M0", (32, 32)),
        "mtp.0.ffn.gate.bias": ("F32", (256,)),
    }
    for name, (dtype, shape) in expected.items():
        assert (specs[name].dtype, specs[name].shape) == (dtype, shape), name
    for absent in (
        "layers.0.attn.compressor.ape",
        "layers.3.attn.indexer.wq_b.weight",
        "layers.0.ffn.gate.bias",
        "layers.3.ffn.gate.tid2eid",
        "mtp.0.ffn.gate.tid2eid",
        "mtp.0.embed.weight",
    ):
        assert absent not in specs
    assert specs["layers.9.ffn.experts.255.w2.weight"].logical_shape == (4096, 2048)


def test_logical_names_and_shapes_equal_the_oracle() -> None:
    config = tiny_config()
    expected = official_shapes(make_cfg(config))
    for specs in (table(), table(quantization_config=None)):
        logical = {name: spec.logical_shape for name, spec in specs.items() if not spec.is_scale}
        assert logical == {name: tuple(shape) for name, shape in expected.items()}


def test_base_checkpoints_have_fp8_experts_and_float32_scales_everywhere() -> None:
    specs = table(expert_dtype="fp8")
    assert specs["layers.0.ffn.experts.0.w1.weight"].dtype == "F8_E4M3"
    assert specs["layers.0.ffn.experts.0.w1.scale"].shape == (1, 1)
    assert {spec.dtype for spec in specs.values() if spec.is_scale} == {"F32"}


def test_unquantised_checkpoints_have_no_scales_and_take_either_float() -> None:
    specs = table(quantization_config=None)
    assert not any(spec.is_scale for spec in specs.values())
    assert {frozenset(spec.dtypes) for spec in specs.values()} == {
        frozenset({"BF16", "F32"}),
        frozenset({"I64", "I32"}),
    }


def test_without_drafter() -> None:
    assert not any(name.startswith("mtp.") for name in table(num_nextn_predict_layers=0))
    config = parse_model_config(tiny_config())
    assert not any(name.startswith("mtp.") for name in expected_tensors(config, "none"))


def test_the_drafter_is_recognised_by_its_tensors_even_when_incomplete() -> None:
    assert detect_drafter(["embed.weight", "layers.0.attn_norm.weight"]) == "none"
    mtp, dspark = list(table()), list(table(**DSPARK))
    assert detect_drafter(mtp) == "mtp"
    assert detect_drafter(dspark) == "dspark"
    assert detect_drafter(n for n in mtp if n != "mtp.0.enorm.weight") == "mtp"
    assert detect_drafter(n for n in dspark if "main_" not in n) == "dspark"


def test_odd_sizes_are_refused_for_fp4() -> None:
    with pytest.raises(ConfigError, match="moe_intermediate_size: 63 is odd"):
        table(moe_intermediate_size=63)
    assert table(moe_intermediate_size=63, expert_dtype="fp8")
