"""What the engine is told: the model's `config.json` and the user's options, validated with field names.

`ModelConfig` holds the fields of DeepSeek-V4's official `config.json` that change a number or a shape; names are the
file's own. Everything unknown to V4 (V4.1, other ratios, other routing) is refused here, before any tensor is read.
"""

from __future__ import annotations

import json
from enum import IntEnum
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)


class ConfigError(ValueError):
    """A configuration that cannot be served; the message names the field, what was found and what to do."""


class LayerKind(IntEnum):
    """Attention kind of a layer, by its compression ratio (`compress_ratios`)."""

    WINDOW = 0  # sliding window only
    CSA = 4  # window + 1:4 overlapping compression, entries picked by the lightning indexer
    HCA = 128  # window + 1:128 disjoint compression, every entry attended


class JsonFields(BaseModel):
    """Fields read from JSON, where a number is a finite number: neither "4096" nor true nor NaN becomes one."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _number(cls, value: Any, info: ValidationInfo) -> Any:
        assert info.field_name is not None
        if cls.model_fields[info.field_name].annotation in (int, float) and isinstance(value, bool | str):
            raise ValueError("a number is expected")
        return value


class RopeScaling(JsonFields):
    """YaRN parameters (`rope_scaling`); applied only in layers with a compression ratio, and without mscale."""

    # newer tools write the kind as rope_type
    type: Literal["yarn"] = Field(default="yarn", validation_alias=AliasChoices("type", "rope_type"))
    factor: float = Field(gt=0)
    beta_fast: float = Field(gt=0)
    beta_slow: float = Field(gt=0)
    original_max_position_embeddings: int = Field(gt=0)


class QuantizationConfig(JsonFields):
    """Weight format of the linear layers (`quantization_config`)."""

    quant_method: Literal["fp8"]
    fmt: Literal["e4m3"] = "e4m3"
    activation_scheme: Literal["dynamic"] = "dynamic"
    scale_fmt: Literal["ue8m0"] | None = "ue8m0"
    weight_block_size: tuple[Literal[128], Literal[128]] = (128, 128)


class ModelConfig(JsonFields):
    """One DeepSeek-V4 model. Field names and meanings are those of the official `config.json` (Flash, Pro)."""

    model_type: Literal["deepseek_v4"]
    vocab_size: int = Field(gt=0, lt=2**31)
    hidden_size: int = Field(gt=0)
    num_hidden_layers: int = Field(gt=0)
    num_attention_heads: int = Field(gt=0)
    num_key_value_heads: Literal[1] = 1
    head_dim: int = Field(gt=0)
    qk_rope_head_dim: int = Field(gt=0)
    q_lora_rank: int = Field(gt=0)
    o_groups: int = Field(gt=0)
    o_lora_rank: int = Field(gt=0)
    attention_bias: Literal[False] = False
    sliding_window: int = Field(gt=0)
    compress_ratios: tuple[int, ...]
    rope_theta: float = Field(gt=0)
    compress_rope_theta: float = Field(gt=0)
    rope_scaling: RopeScaling | None = None
    max_position_embeddings: int = Field(gt=0)
    index_n_heads: int = Field(gt=0)
    index_head_dim: int = Field(gt=0)
    index_topk: int = Field(gt=0)
    n_routed_experts: int = Field(gt=0)
    n_shared_experts: Literal[1] = 1
    num_experts_per_tok: int = Field(gt=0)
    moe_intermediate_size: int = Field(gt=0)
    num_hash_layers: int = Field(ge=0)
    scoring_func: Literal["sqrtsoftplus"] = "sqrtsoftplus"
    topk_method: Literal["noaux_tc"] = "noaux_tc"
    norm_topk_prob: Literal[True] = True
    routed_scaling_factor: float = Field(gt=0)
    swiglu_limit: float = Field(gt=0)
    hidden_act: Literal["silu"] = "silu"
    hc_mult: int = Field(gt=0)
    hc_sinkhorn_iters: int = Field(gt=0)
    hc_eps: float = Field(gt=0)
    rms_norm_eps: float = Field(gt=0)
    num_nextn_predict_layers: int = Field(default=1, ge=0)
    tie_word_embeddings: Literal[False] = False
    bos_token_id: int = 0
    eos_token_id: int = 1
    expert_dtype: Literal["fp4", "fp8"] | None = None
    quantization_config: QuantizationConfig | None = None
    dspark_block_size: int | None = None
    dspark_markov_rank: int | None = None
    dspark_target_layer_ids: tuple[int, ...] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        layers = self.num_hidden_layers
        if len(self.compress_ratios) < layers:
            raise ValueError(f"compress_ratios: {len(self.compress_ratios)} entries for num_hidden_layers = {layers}")
        unknown = sorted({r for r in self.compress_ratios if r not in (0, 4, 128)})
        if unknown:
            raise ValueError(f"compress_ratios: found {unknown}; only 0, 4 and 128 exist in DeepSeek-V4")
        if any(self.compress_ratios[layers:]):
            raise ValueError("compress_ratios: the entries after the trunk (drafter layers) must be 0")
        if self.num_nextn_predict_layers > 1:
            raise ValueError(
                f"num_nextn_predict_layers: {self.num_nextn_predict_layers} MTP layers found, V4 ships one"
            )
        for group, size, name in (
            (self.o_groups, self.num_attention_heads, "num_attention_heads / o_groups"),
            (2, self.qk_rope_head_dim, "qk_rope_head_dim / 2"),
        ):
            if size % group:
                raise ValueError(f"{name}: {size} is not a multiple of {group}")
        if self.qk_rope_head_dim >= self.head_dim:
            raise ValueError("qk_rope_head_dim: must be smaller than head_dim")
        if self.kind_count(LayerKind.CSA):
            if self.index_head_dim & (self.index_head_dim - 1):
                raise ValueError("index_head_dim: the indexer's Hadamard rotation needs a power of two")
            if self.qk_rope_head_dim > self.index_head_dim:
                raise ValueError("index_head_dim: smaller than qk_rope_head_dim")
        if self.num_experts_per_tok > self.n_routed_experts:
            raise ValueError("num_experts_per_tok: larger than n_routed_experts")
        if self.num_hash_layers > layers:
            raise ValueError("num_hash_layers: larger than num_hidden_layers")
        if self.quantization_config is not None and self.expert_dtype is None:
            raise ValueError('expert_dtype: missing; a quantised checkpoint says "fp4" or "fp8"')
        for name in ("bos_token_id", "eos_token_id"):
            if not 0 <= getattr(self, name) < self.vocab_size:
                raise ValueError(f"{name}: {getattr(self, name)} is outside the vocabulary of {self.vocab_size}")
        return self

    @property
    def layer_kinds(self) -> tuple[LayerKind, ...]:
        """Kind of each trunk layer (the drafter's entry, always WINDOW, is not included)."""
        return tuple(LayerKind(r) for r in self.compress_ratios[: self.num_hidden_layers])

    def kind_count(self, kind: LayerKind) -> int:
        return sum(1 for r in self.compress_ratios[: self.num_hidden_layers] if r == kind)

    @property
    def nope_head_dim(self) -> int:
        """Dims of a head that are not rotated (they come first; the rotated ones are last)."""
        return self.head_dim - self.qk_rope_head_dim

    @property
    def kv_quant_block(self) -> int:
        """Block of the KV round trip: 64 at official sizes, the largest power of two that divides below."""
        return min(64, self.nope_head_dim & -self.nope_head_dim)

    @property
    def indexer_quant_block(self) -> int:
        """Block of the indexer's FP4 round trip (32 at official sizes)."""
        return min(32, self.index_head_dim)

    @property
    def is_dspark(self) -> bool:
        """True when `mtp.*` holds DSpark's three stages (0731 release, `-DSpark`) and not the MTP layer."""
        return self.dspark_block_size is not None


def load_model_config(path: Path) -> ModelConfig:
    """Reads and validates `config.json`.

    Raises ConfigError naming the file and the field: unreadable JSON, another model type, a value V4 does not have.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; a checkpoint folder holds config.json") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as JSON ({error})") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: expected a JSON object, found {type(raw).__name__}")
    return parse_model_config(raw, str(path))


def parse_model_config(raw: dict[str, Any], source: str = "config.json") -> ModelConfig:
    """Validates the fields of a `config.json`; `source` is the name that errors carry. Raises ConfigError."""
    found = raw.get("model_type")
    if found != "deepseek_v4":
        hint = " (V4.1 is another architecture and is not supported)" if found == "deepseek_v41" else ""
        raise ConfigError(f"{source}: model_type is {found!r}, this engine serves 'deepseek_v4'{hint}")
    try:
        return ModelConfig.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(f"{source}: {describe_validation_error(error)}") from None


def describe_validation_error(error: ValidationError) -> str:
    """One line for people: every wrong field, what was found, what is expected."""
    parts = []
    for item in error.errors():
        field = ".".join(str(p) for p in item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "missing":
            message = "missing"
        elif field and not isinstance(item["input"], dict):
            message = f"{message[0].lower()}{message[1:]} (found {item['input']!r})"
        parts.append(f"{field}: {message}" if field else message)
    return "; ".join(parts)


class SpeculativeConfig(JsonFields):
    """`speculative_config`, as users of other engines know it: `{"method": "mtp", "num_speculative_tokens": 2}`."""

    model_config = ConfigDict(extra="forbid")

    method: Literal["mtp"]
    num_speculative_tokens: int = Field(ge=1, le=16)


def parse_speculative_config(text: str) -> SpeculativeConfig:
    """Parses the JSON given to `--speculative-config`. Raises ConfigError with the field's name."""
    try:
        return SpeculativeConfig.model_validate(json.loads(text))
    except json.JSONDecodeError as error:
        raise ConfigError(f"--speculative-config is not JSON: {error}") from None
    except ValidationError as error:
        raise ConfigError(f"--speculative-config: {describe_validation_error(error)}") from None


class EngineConfig(BaseModel):
    """Limits of an engine, under the names other engines use.

    max_model_len: longest prompt and output together (None: the model's own limit); max_num_seqs: requests that run at
    a time; max_num_batched_tokens: rows of a step, drafts included; max_prefill_tokens: of them, for prompts while
    others decode; window_pages, entry_pages: size of the cache's pools (None: as many as max_num_seqs can use).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_model_len: int | None = Field(default=None, ge=1)
    max_num_seqs: int = Field(default=8, ge=1)
    max_num_batched_tokens: int = Field(default=256, ge=1)
    max_prefill_tokens: int = Field(default=256, ge=1)
    enable_prefix_caching: bool = True
    window_pages: int | None = Field(default=None, ge=2)
    entry_pages: int | None = Field(default=None, ge=2)

    @model_validator(mode="after")
    def _rows_for_everybody(self) -> Self:
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError("max_num_batched_tokens: smaller than max_num_seqs; every running request needs a row")
        return self

    def context_of(self, model: ModelConfig) -> int:
        """max_model_len for this model. Raises ConfigError when the model cannot reach that far."""
        limit = model.max_position_embeddings
        if self.max_model_len is not None and self.max_model_len > limit:
            raise ConfigError(f"max_model_len: {self.max_model_len} is more than max_position_embeddings, {limit}")
        return self.max_model_len or limit


class Numerics(BaseModel):
    """Which of the round trips that V4 was trained with are applied (spec: activation quantisation).

    The default is the CPU default: KV and indexer rows are rounded as a cache would store them, activations of the
    linear layers are not. `exact_qat()` is the reference implementation's arithmetic, `plain()` is Hugging Face's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kv_round_trip: bool = True
    indexer_round_trip: bool = True
    activation_fp8: bool = False

    @classmethod
    def exact_qat(cls) -> Numerics:
        return cls(activation_fp8=True)

    @classmethod
    def plain(cls) -> Numerics:
        return cls(kv_round_trip=False, indexer_round_trip=False)
