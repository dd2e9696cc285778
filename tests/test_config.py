"""Every kind of bad configuration is refused, in a message that names the field; the official ones are accepted."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from tests import oracle
from tests.tiny import DSPARK, tiny_config

from outrider.config import (
    ConfigError,
    EngineConfig,
    LayerKind,
    ModelConfig,
    Numerics,
    SpeculativeConfig,
    load_model_config,
    parse_engine_config,
    parse_model_config,
    parse_numerics,
    parse_speculative_config,
)

CONFIGS = Path(__file__).parent / "configs"
FLASH: dict[str, Any] = json.loads((CONFIGS / "flash.json").read_text(encoding="utf-8"))
FIELDS = ModelConfig.model_fields
NUMBERS = [name for name, field in FIELDS.items() if field.annotation in (int, float)]
WHOLE_NUMBERS = [name for name, field in FIELDS.items() if field.annotation is int]
CHOICES = [name for name, field in FIELDS.items() if get_origin(field.annotation) is Literal]
MAY_BE_ZERO = {"num_hash_layers", "num_nextn_predict_layers", "bos_token_id", "eos_token_id"}


def flash(**changes: Any) -> dict[str, Any]:
    return {**FLASH, **changes}


def refusal(raw: dict[str, Any], source: str = "there/config.json") -> str:
    """The message, without the source that every message begins with."""
    with pytest.raises(ConfigError) as error:
        parse_model_config(raw, source)
    message = str(error.value)
    assert message.startswith(f"{source}: ")
    assert "\n" not in message
    return message.removeprefix(f"{source}: ")


# -------- what is accepted


@pytest.mark.parametrize(
    ("name", "layers", "counts", "dspark"),
    [("flash", 43, (2, 21, 20), False), ("pro", 61, (0, 30, 31), False), ("flash_dspark", 43, (2, 21, 20), True)],
)
def test_the_official_configs(name: str, layers: int, counts: tuple[int, int, int], dspark: bool) -> None:
    config = load_model_config(CONFIGS / f"{name}.json")
    assert config.num_hidden_layers == len(config.layer_kinds) == layers
    assert tuple(config.kind_count(kind) for kind in LayerKind) == counts
    assert config.layer_kinds[-3:] == (LayerKind.CSA, LayerKind.HCA, LayerKind.CSA)
    assert (config.nope_head_dim, config.kv_quant_block, config.indexer_quant_block) == (448, 64, 32)
    assert config.is_dspark == dspark
    raw = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))
    read = config.model_dump(mode="json", exclude_none=True)
    assert {field: raw[field] for field in read if field in raw} == {f: v for f, v in read.items() if f in raw}


@pytest.mark.parametrize("raw", [tiny_config(), tiny_config(quantization_config=None), tiny_config(**DSPARK)])
def test_the_tiny_configs(raw: dict[str, Any]) -> None:
    config = parse_model_config(raw)
    assert parse_model_config(config.model_dump(mode="json", exclude_none=True)) == config
    assert (config.kv_quant_block, config.indexer_quant_block) == (16, 32)


def test_fields_that_are_always_the_same_may_be_left_out() -> None:
    config = parse_model_config(oracle.TINY_CONFIG)
    assert (config.scoring_func, config.norm_topk_prob, config.quantization_config) == ("sqrtsoftplus", True, None)


def test_fields_of_other_programs_are_ignored() -> None:
    assert parse_model_config(flash(use_cache=False, torch_dtype="float16", what=1)) == parse_model_config(FLASH)


def test_the_drafters_entry_may_be_missing() -> None:
    config = parse_model_config(flash(compress_ratios=FLASH["compress_ratios"][:-1]))
    assert config.layer_kinds == parse_model_config(FLASH).layer_kinds


def test_the_kind_of_rope_scaling_under_its_newer_name() -> None:
    scaling = {name: value for name, value in FLASH["rope_scaling"].items() if name != "type"}
    assert parse_model_config(flash(rope_scaling={**scaling, "rope_type": "yarn"})) == parse_model_config(FLASH)
    message = refusal(flash(rope_scaling={**scaling, "rope_type": "linear"}))
    assert message.startswith("rope_scaling.")
    assert "'linear'" in message


# -------- what is refused


@pytest.mark.parametrize("name", [name for name, field in FIELDS.items() if field.is_required()])
def test_a_missing_field(name: str) -> None:
    message = refusal({field: value for field, value in FLASH.items() if field != name})
    assert message.startswith("model_type is None" if name == "model_type" else f"{name}: missing")


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ["64", "many", True, None, [64], {}, math.nan, math.inf], ids=repr)
def test_a_number_of_the_wrong_type(name: str, value: Any) -> None:
    message = refusal(flash(**{name: value}))
    assert message.startswith(f"{name}: ")
    assert ";" not in message


@pytest.mark.parametrize("name", WHOLE_NUMBERS)
def test_a_fraction_where_a_whole_number_belongs(name: str) -> None:
    assert refusal(flash(**{name: 2.5})).startswith(f"{name}: ")


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_out_of_range(name: str) -> None:
    for value in [-1] if name in MAY_BE_ZERO else [0, -1]:
        message = refusal(flash(**{name: value}))
        assert message.startswith(f"{name}: ")
        assert str(value) in message


@pytest.mark.parametrize("name", WHOLE_NUMBERS)
@pytest.mark.parametrize("value", [10**9, 10**30, 10**4000], ids=["10^9", "10^30", "10^4000"])
def test_a_number_that_no_machine_could_hold(name: str, value: int) -> None:
    message = refusal(flash(**{name: value}))
    assert message.startswith(f"{name}: ")
    assert len(message) < 300


def test_more_experts_than_can_be_listed() -> None:
    assert parse_model_config(flash(n_routed_experts=4096)).n_routed_experts == 4096
    layers = {"num_hidden_layers": 128, "compress_ratios": [0] * 129}
    message = refusal(flash(n_routed_experts=4096, **layers))
    assert message.startswith("n_routed_experts: 4096 in each of num_hidden_layers = 128 layers")


def test_every_field_is_either_a_number_or_a_choice_or_tested_by_name() -> None:
    """A new field must be added to one of the tests here."""
    others = {"compress_ratios", "rope_scaling", "expert_dtype", "quantization_config"}
    others |= {"dspark_block_size", "dspark_markov_rank", "dspark_target_layer_ids"}
    assert {*NUMBERS, *CHOICES, *others} == set(FIELDS)


@pytest.mark.parametrize("name", [name for name in CHOICES if name != "model_type"])
def test_another_architecture(name: str) -> None:
    """Routing, heads and activations that V4 does not have, e.g. scoring_func "softmax"."""
    (right,) = get_args(FIELDS[name].annotation)
    for wrong in (not right,) if isinstance(right, bool) else (right + 1,) if isinstance(right, int) else ("softmax",):
        message = refusal(flash(**{name: wrong}))
        assert message.startswith(f"{name}: ")
        assert repr(wrong) in message
        assert repr(right) in message


@pytest.mark.parametrize("found", ["deepseek_v41", "deepseek_v3", "DeepSeek_V4", "", None, 4, ["deepseek_v4"]])
def test_another_model_type(found: Any) -> None:
    message = refusal(flash(model_type=found))
    assert message.startswith(f"model_type is {found!r}")
    assert "'deepseek_v4'" in message
    assert ("V4.1" in message) == (found == "deepseek_v41")


RATIOS = FLASH["compress_ratios"]


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        ({"compress_ratios": RATIOS[:40]}, "compress_ratios: 40 entries"),
        ({"compress_ratios": []}, "compress_ratios: 0 entries"),
        ({"compress_ratios": [8, *RATIOS[1:]]}, "compress_ratios: found [8]"),
        ({"compress_ratios": [*RATIOS[:2], 64, 32, *RATIOS[4:]]}, "compress_ratios: found [32, 64]"),
        ({"compress_ratios": [-4, *RATIOS[1:]]}, "compress_ratios: found [-4]"),
        ({"compress_ratios": [*RATIOS[:-1], 4]}, "compress_ratios: the entries after the trunk"),
        ({"compress_ratios": [*RATIOS, 128]}, "compress_ratios: the entries after the trunk"),
        ({"compress_ratios": [0.5, *RATIOS[1:]]}, "compress_ratios.0: "),
        ({"compress_ratios": "0, 4"}, "compress_ratios: "),
        ({"compress_ratios": None}, "compress_ratios: "),
        ({"num_nextn_predict_layers": 2}, "num_nextn_predict_layers: 2"),
        ({"o_groups": 7}, "num_attention_heads / o_groups: 64 is not a multiple of 7"),
        ({"o_groups": 128}, "num_attention_heads / o_groups: "),
        ({"qk_rope_head_dim": 63}, "qk_rope_head_dim / 2: 63"),
        ({"qk_rope_head_dim": 512}, "qk_rope_head_dim: "),
        ({"index_head_dim": 96}, "index_head_dim: "),
        ({"index_head_dim": 32}, "index_head_dim: smaller than qk_rope_head_dim"),
        ({"num_experts_per_tok": 257}, "num_experts_per_tok: "),
        ({"num_hash_layers": 44}, "num_hash_layers: "),
        ({"vocab_size": 2**31}, "vocab_size: "),
        ({"eos_token_id": 129280}, "eos_token_id: 129280"),
        ({"bos_token_id": -1}, "bos_token_id: -1"),
        ({"expert_dtype": "int4"}, "expert_dtype: "),
        ({"expert_dtype": None}, "expert_dtype: missing"),
        ({"quantization_config": "fp8"}, "quantization_config: "),
        ({"quantization_config": {}}, "quantization_config.quant_method: missing"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config.quant_method: "),
        ({"quantization_config": {"quant_method": "fp8", "fmt": "e5m2"}}, "quantization_config.fmt: "),
        ({"quantization_config": {"quant_method": "fp8", "scale_fmt": "e4m3"}}, "quantization_config.scale_fmt: "),
        (
            {"quantization_config": {"quant_method": "fp8", "activation_scheme": "static"}},
            "quantization_config.activation_scheme: ",
        ),
        (
            {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 64]}},
            "quantization_config.weight_block_size.1: ",
        ),
        (
            {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128]}},
            "quantization_config.weight_block_size.1: missing",
        ),
        ({"rope_scaling": "yarn"}, "rope_scaling: "),
        ({"rope_scaling": {**FLASH["rope_scaling"], "type": "linear"}}, "rope_scaling.type: "),
        ({"rope_scaling": {**FLASH["rope_scaling"], "factor": 0}}, "rope_scaling.factor: "),
        ({"rope_scaling": {**FLASH["rope_scaling"], "factor": "16"}}, "rope_scaling.factor: "),
        ({"rope_scaling": {**FLASH["rope_scaling"], "beta_fast": math.nan}}, "rope_scaling.beta_fast: "),
        (
            {"rope_scaling": {"type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1}},
            "rope_scaling.original_max",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_fields_that_contradict_each_other_or_v4(changes: dict[str, Any], start: str) -> None:
    assert refusal(flash(**changes)).startswith(start)


def test_all_wrong_fields_are_named_at_once() -> None:
    message = refusal({**flash(hidden_size="wide", o_groups=-1, hidden_act="gelu"), "vocab_size": None})
    assert [part.split(":")[0] for part in message.split("; ")] == [
        "vocab_size",
        "hidden_size",
        "o_groups",
        "hidden_act",
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no such file"),
        (b"{", "cannot be read as JSON"),
        (b"\xff\xfe", "cannot be read as JSON"),
        (b"[1]", "expected a JSON object, found list"),
        (b'{"model_type": "llama"}', "model_type is 'llama'"),
        (b"[" * 200_000, "brackets are nested too deeply"),
        (b'{"model_type": "deepseek_v4", "x": ' + b'{"x":' * 200_000, "brackets are nested too deeply"),
        (b'{"model_type": ' + b"[" * 800 + b"]" * 800 + b"}", "model_type is [[[[[["),
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", "cannot be read as JSON"),
        (b'{"model_type": ' + b"9" * 4000 + b"}", "(4000 characters)"),
    ],
)
def test_a_file_that_is_no_config(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "config.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        load_model_config(path)
    assert str(path) in str(error.value)
    assert words in str(error.value)
    assert len(str(error.value)) < 400


def test_a_config_cannot_be_changed() -> None:
    config = parse_model_config(FLASH)
    with pytest.raises(ValueError, match="frozen"):
        config.hidden_size = 1


# -------- speculative_config


def test_speculative_config() -> None:
    for depth in (1, 2, 16):
        parsed = parse_speculative_config(json.dumps({"method": "mtp", "num_speculative_tokens": depth}))
        assert parsed == SpeculativeConfig(method="mtp", num_speculative_tokens=depth)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not JSON"),
        ("mtp", "is not JSON"),
        ("{'method': 'mtp'}", "is not JSON"),
        ("[1]", "valid dictionary"),
        ('"mtp"', "valid dictionary"),
        ("{}", "method: missing; num_speculative_tokens: missing"),
        ('{"num_speculative_tokens": 2}', ": method: missing"),
        ('{"method": "mtp"}', ": num_speculative_tokens: missing"),
        ('{"method": "eagle", "num_speculative_tokens": 2}', ": method: input should be 'mtp' (found 'eagle')"),
        ('{"method": "mtp", "num_speculative_tokens": 0}', ": num_speculative_tokens: "),
        ('{"method": "mtp", "num_speculative_tokens": -1}', ": num_speculative_tokens: "),
        ('{"method": "mtp", "num_speculative_tokens": 17}', ": num_speculative_tokens: "),
        ('{"method": "mtp", "num_speculative_tokens": 1.5}', ": num_speculative_tokens: "),
        ('{"method": "mtp", "num_speculative_tokens": "2"}', ": num_speculative_tokens: a number is expected"),
        ('{"method": "mtp", "num_speculative_tokens": true}', ": num_speculative_tokens: a number is expected"),
        ('{"method": "mtp", "num_speculative_tokens": null}', ": num_speculative_tokens: "),
        ('{"method": "mtp", "num_speculative_tokens": NaN}', ": num_speculative_tokens: "),
        ('{"method": "mtp", "num_speculative_tokens": 2, "model": "x"}', ": model: "),
    ],
)
def test_a_bad_speculative_config(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_speculative_config(text)
    assert str(error.value).startswith("--speculative-config")
    assert words in str(error.value)


def test_numerics() -> None:
    assert Numerics() == Numerics(kv_cache_dtype="auto", indexer_dtype="fp4", activation_fp8=False)
    assert Numerics.exact_qat() == Numerics(activation_fp8=True)
    assert Numerics.plain() == Numerics(kv_cache_dtype="float32", indexer_dtype="float32")
    with pytest.raises(ConfigError, match=r"kv_cache_dtype: input should be 'auto', .* \(found 'fp4'\)"):
        parse_numerics({"kv_cache_dtype": "fp4"})
    with pytest.raises(ConfigError, match="kv_dtype"):
        parse_numerics({"kv_dtype": "fp8"})


# -------- engine options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_model_len": 0}, "max_model_len: "),
        ({"max_num_seqs": 0}, "max_num_seqs: "),
        ({"max_num_seqs": 9, "max_num_batched_tokens": 8}, "max_num_batched_tokens: smaller"),
        ({"gpu_memory_utilization": 0}, "gpu_memory_utilization: "),
        ({"gpu_memory_utilization": 1.5}, "gpu_memory_utilization: "),
        ({"gpu_memory_utilization": math.nan}, "gpu_memory_utilization: "),
        ({"seed": -1}, "seed: "),
        ({"seed": 1 << 64}, "seed: "),
        ({"window_pages": 1}, "window_pages: "),
        ({"max_sequences": 3}, "max_sequences: "),
    ],
)
def test_a_bad_engine_option(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_engine_config(options)
    assert str(error.value).startswith(words)


def test_a_context_beyond_the_models() -> None:
    model = parse_model_config(tiny_config())
    assert EngineConfig().context_of(model) == 65536 and EngineConfig(max_model_len=7).context_of(model) == 7
    with pytest.raises(ConfigError, match="max_model_len: 65537 is more than max_position_embeddings"):
        EngineConfig(max_model_len=65537).context_of(model)
