"""What the engine is told: the model's `config.json` and the user's options, validated with field names.

`ModelConfig` holds the fields of DeepSeek-V4's official `config.json` that change a number or a shape; names are the
file's own. Everything unknown to V4 (V4.1, other ratios, other routing) is refused here, before any tensor is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

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


# Upper bounds of what a tensor's or a list's size is computed from, several times beyond any released model: a damaged
# config.json is refused by name, and not by the machine when it runs out of memory.
_Width = Annotated[int, Field(gt=0, le=1 << 17)]
_Count = Annotated[int, Field(gt=0, le=1 << 12)]
_Positions = Annotated[int, Field(gt=0, le=1 << 27)]
MAX_EXPERTS_IN_ALL = 1 << 18


class LayerKind(IntEnum):
    """Attention kind of a layer, by its compression ratio (`compress_ratios`)."""

    WINDOW = 0  # sliding window only
    CSA = 4  # window + 1:4 overlapping compression, entries picked by the lightning indexer
    HCA = 128  # window + 1:128 disjoint compression, every entry attended


def shown(value: object) -> str:
    """repr of what was found, short enough for a sentence."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deeply, or a number of too many digits
        return f"an unreadable {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


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
    original_max_position_embeddings: _Positions


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
    vocab_size: int = Field(gt=0, le=1 << 24)
    hidden_size: _Width
    num_hidden_layers: _Count
    num_attention_heads: _Count
    num_key_value_heads: Literal[1] = 1
    head_dim: _Width
    qk_rope_head_dim: _Width
    q_lora_rank: _Width
    o_groups: _Count
    o_lora_rank: _Width
    attention_bias: Literal[False] = False
    sliding_window: _Width
    compress_ratios: tuple[int, ...]
    rope_theta: float = Field(gt=0)
    compress_rope_theta: float = Field(gt=0)
    rope_scaling: RopeScaling | None = None
    max_position_embeddings: _Positions
    index_n_heads: _Count
    index_head_dim: _Width
    index_topk: _Width
    n_routed_experts: _Count
    n_shared_experts: Literal[1] = 1
    num_experts_per_tok: _Count
    moe_intermediate_size: _Width
    num_hash_layers: int = Field(ge=0, le=1 << 12)
    scoring_func: Literal["sqrtsoftplus"] = "sqrtsoftplus"
    topk_method: Literal["noaux_tc"] = "noaux_tc"
    norm_topk_prob: Literal[True] = True
    routed_scaling_factor: float = Field(gt=0)
    swiglu_limit: float = Field(gt=0)
    hidden_act: Literal["silu"] = "silu"
    hc_mult: int = Field(gt=0, le=64)
    hc_sinkhorn_iters: _Count
    hc_eps: float = Field(gt=0)
    rms_norm_eps: float = Field(gt=0)
    num_nextn_predict_layers: int = Field(default=1, ge=0)
    tie_word_embeddings: Literal[False] = False
    bos_token_id: int = 0
    eos_token_id: int = 1
    expert_dtype: Literal["fp4", "fp8"] | None = None
    quantization_config: QuantizationConfig | None = None
    dspark_block_size: _Count | None = None
    dspark_markov_rank: _Width | None = None
    dspark_target_layer_ids: tuple[int, ...] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        layers = self.num_hidden_layers
        if len(self.compress_ratios) < layers:
            raise ValueError(f"compress_ratios: {len(self.compress_ratios)} entries for num_hidden_layers = {layers}")
        unknown = sorted({r for r in self.compress_ratios if r not in (0, 4, 128)})
        if unknown:
            raise ValueError(f"compress_ratios: found {shown(unknown)}; only 0, 4 and 128 exist in DeepSeek-V4")
        if any(self.compress_ratios[layers:]):
            raise ValueError("compress_ratios: the entries after the trunk (drafter layers) must be 0")
        if self.num_nextn_predict_layers > 1:
            raise ValueError(
                f"num_nextn_predict_layers: {shown(self.num_nextn_predict_layers)} MTP layers found, V4 ships one"
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
        if layers * self.n_routed_experts > MAX_EXPERTS_IN_ALL:
            raise ValueError(
                f"n_routed_experts: {self.n_routed_experts} in each of num_hidden_layers = {layers} layers are more "
                f"than the {MAX_EXPERTS_IN_ALL} that this engine lists"
            )
        if self.num_hash_layers > layers:
            raise ValueError("num_hash_layers: larger than num_hidden_layers")
        if self.quantization_config is not None and self.expert_dtype is None:
            raise ValueError('expert_dtype: missing; a quantised checkpoint says "fp4" or "fp8"')
        for name in ("bos_token_id", "eos_token_id"):
            if not 0 <= getattr(self, name) < self.vocab_size:
                raise ValueError(f"{name}: {shown(getattr(self, name))} is outside the vocabulary of {self.vocab_size}")
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
    except (OSError, ValueError) as error:  # a number of thousands of digits is a ValueError too
        raise ConfigError(f"{path}: cannot be read as JSON ({error})") from None
    except RecursionError:
        raise ConfigError(f"{path}: cannot be read as JSON (brackets are nested too deeply)") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: expected a JSON object, found {type(raw).__name__}")
    return parse_model_config(raw, str(path))


def parse_model_config(raw: dict[str, Any], source: str = "config.json") -> ModelConfig:
    """Validates the fields of a `config.json`; `source` is the name that errors carry. Raises ConfigError."""
    found = raw.get("model_type")
    if found != "deepseek_v4":
        hint = " (V4.1 is another architecture and is not supported)" if found == "deepseek_v41" else ""
        raise ConfigError(f"{source}: model_type is {shown(found)}, this engine serves 'deepseek_v4'{hint}")
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
            message = f"{message[0].lower()}{message[1:]} (found {shown(item['input'])})"
        parts.append(f"{field}: {message}" if field else message)
    return "; ".join(parts)


AUTO_DEPTH = 4  # a controller that may go deeper than pays does not: one more than where MTP saturates


class SpeculativeConfig(JsonFields):
    """`speculative_config`, as users of other engines know it: `{"method": "mtp", "num_speculative_tokens": 2}`.

    num_speculative_tokens: the most that a request drafts in a step. adaptive: how many of them pay is decided every
    step, from measured costs and observed acceptance; false: always as many as allowed. "auto" in JSON is AUTO_DEPTH,
    adaptive.
    """

    model_config = ConfigDict(extra="forbid")

    method: Literal["mtp"]
    num_speculative_tokens: int = Field(ge=1, le=16)
    adaptive: bool = Field(default=False, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _auto(cls, fields: Any) -> Any:
        if not isinstance(fields, dict) or fields.get("num_speculative_tokens") != "auto":
            return fields
        if fields.get("adaptive") is False:
            raise ValueError('num_speculative_tokens: a fixed depth is a number ("auto" goes with adaptive)')
        return {**fields, "num_speculative_tokens": AUTO_DEPTH, "adaptive": True}


def parse_speculative_config(text: str) -> SpeculativeConfig:
    """Parses the JSON given to `--speculative-config`. Raises ConfigError with the field's name."""
    try:
        return SpeculativeConfig.model_validate(json.loads(text))
    except json.JSONDecodeError as error:
        raise ConfigError(f"--speculative-config is not JSON: {error}") from None
    except ValidationError as error:
        raise ConfigError(f"--speculative-config: {describe_validation_error(error)}") from None
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, brackets without end
        raise ConfigError(f"--speculative-config cannot be read as JSON ({error})") from None


class EngineConfig(BaseModel):
    """Limits of an engine, under the names other engines use.

    max_model_len: longest prompt and output together (None: the model's own limit); max_num_seqs: requests that run at
    a time; max_num_batched_tokens: rows of a step, drafts included; max_prefill_tokens: of them, for prompts while
    others decode; gpu_memory_utilization: share of the device's available memory (on the CPU: of the
    machine's, or its control group's) for weights, cache and workspace together; window_pages, entry_pages: size of the
    cache's pools (None: as many as max_num_seqs requests of max_model_len can use and memory allows; and if no
    gpu_memory_utilization is given, which then is 0.9, no more than max_num_seqs requests of 4,096 tokens or two of
    max_model_len can use); seed: of requests that name none (None: drawn anew for each); load_format: "dummy" needs no
    weights on disk: config.json alone, and random weights of its shapes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    max_model_len: int | None = Field(default=None, ge=1)
    max_num_seqs: int = Field(default=8, ge=1, le=1 << 16)
    max_num_batched_tokens: int = Field(default=256, ge=1, le=1 << 20)
    max_prefill_tokens: int = Field(default=256, ge=1)
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    enable_prefix_caching: bool = True
    seed: int | None = Field(default=None, ge=0, lt=1 << 64)
    window_pages: int | None = Field(default=None, ge=2)
    entry_pages: int | None = Field(default=None, ge=2)
    load_format: Literal["auto", "dummy"] = "auto"

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


def parse_engine_config(options: Mapping[str, Any]) -> EngineConfig:
    """Validates engine options. Raises ConfigError with the field's name."""
    try:
        return EngineConfig.model_validate(options)
    except ValidationError as error:
        raise ConfigError(describe_validation_error(error)) from None


class Numerics(BaseModel):
    """How values are rounded that a cache or a multiplication in fewer bits would round. The CPU keeps all of them in
    float32, rounded or not: these options choose numbers, not bytes.

    kv_cache_dtype, of latent KV rows and compressed entries:
        auto     what V4 was trained with: E4M3 in blocks where dims are not rotated, the rotated ones as computed
        fp8      what an FP8 cache row holds: the same, and the rotated dims in BF16
        bf16     every dim in BF16, without the E4M3 that training had
        float32  not rounded
    indexer_dtype, of the indexer's keys and queries:
        fp4      what V4 was trained with: Hadamard rotation, then E2M1 in blocks
        fp8      Hadamard rotation, then E4M3 with one scale per row
        bf16     BF16 (no rotation: with all bits kept it would cancel)
        float32  not rounded
    activation_fp8: inputs of the linear layers in E4M3 too, as in training.

    Formats: spec 5.2 and 5.3. `exact_qat()` is the reference implementation's arithmetic, `plain()` is Hugging Face's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kv_cache_dtype: Literal["auto", "fp8", "bf16", "float32"] = "auto"
    indexer_dtype: Literal["fp4", "fp8", "bf16", "float32"] = "fp4"
    activation_fp8: bool = False

    @classmethod
    def exact_qat(cls) -> Numerics:
        return cls(activation_fp8=True)

    @classmethod
    def plain(cls) -> Numerics:
        return cls(kv_cache_dtype="float32", indexer_dtype="float32")


def parse_numerics(options: Mapping[str, Any]) -> Numerics:
    """Validates rounding options. Raises ConfigError with the field's name."""
    try:
        return Numerics.model_validate(options)
    except ValidationError as error:
        raise ConfigError(describe_validation_error(error)) from None
