"""The tensor table of DeepSeek-V4: official name -> stored shape, dtype and part, computed from the config.

Weights are named as in the released checkpoints: `layers.{i}.attn.wq_a.weight`, its block scales beside it as
`layers.{i}.attn.wq_a.scale`. Three weight formats exist:

    quantization_config + expert_dtype "fp4"  linears FP8 with E8M0 scales, experts packed FP4 with E8M0 scales
    quantization_config + expert_dtype "fp8"  linears and experts FP8 with F32 scales ("-Base")
    no quantization_config                    every float tensor BF16 or F32, no scales

`mtp.*` holds either the MTP layer or, in DSpark releases, three drafter stages under the same prefix.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import Literal, NamedTuple

from outrider.config import ConfigError, ModelConfig
from outrider.ops.formats import FP4_BLOCK, FP8_BLOCK

Drafter = Literal["mtp", "dspark", "none"]
Shape = tuple[int, ...]

DSPARK_STAGES = 3
DSPARK_MARKOV_RANK = 256  # when config.json does not say
DSPARK_TARGET_LAYERS = 3

ITEM_BYTES = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "F8_E8M0": 1, "I8": 1, "I32": 4, "I64": 8}


class Part(StrEnum):
    """What a tensor belongs to, for the tables that people read."""

    EMBEDDING = "embedding"
    ATTENTION = "attention"
    COMPRESSOR = "compressor"
    INDEXER = "indexer"
    ROUTER = "router"
    EXPERTS = "experts"
    SHARED_EXPERT = "shared expert"
    HYPER_CONNECTION = "hyper-connection"
    NORMS = "norms"
    HEAD = "head"
    MTP = "mtp"
    DSPARK = "dspark"


class TensorSpec(NamedTuple):
    """One stored tensor (a tuple, since Pro has 145,116 of them).

    `logical_shape` differs from `shape` for packed FP4 only (two values a byte).
    """

    name: str
    shape: Shape
    dtypes: tuple[str, ...]  # safetensors names; the first one is what the writer prefers
    part: Part
    logical_shape: Shape
    scale: str | None = None  # name of the block scales, for a quantised weight
    is_scale: bool = False

    @property
    def dtype(self) -> str:
        return self.dtypes[0]

    @property
    def is_float(self) -> bool:
        return self.dtype in ("BF16", "F32")

    @property
    def nbytes(self) -> int:
        """Bytes in the preferred dtype."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    @property
    def parameters(self) -> int:
        """Logical parameters; scales and routing tables count as none."""
        return 0 if self.is_scale or self.dtype == "I64" else math.prod(self.logical_shape)


def detect_drafter(names: Iterable[str]) -> Drafter:
    """What `mtp.*` holds, decided by the tensors that are present and never by config.json.

    An incomplete set is still recognised, so that the missing tensor can be named afterwards.
    """
    drafter = [name for name in names if name.startswith("mtp.")]
    if not drafter:
        return "none"
    marks = ("mtp.0.main_", "mtp.1.", "mtp.2.")
    return "dspark" if any(name.startswith(marks) for name in drafter) else "mtp"


def config_drafter(config: ModelConfig) -> Drafter:
    """The drafter that config.json announces; the tensors have the last word (`detect_drafter`)."""
    if config.is_dspark:
        return "dspark"
    return "mtp" if config.num_nextn_predict_layers else "none"


def describe_drafter(drafter: Drafter, config: ModelConfig) -> str:
    """The drafter in words: "MTP, 1 layer", "DSpark, 3 stages, block 5" or "none"."""
    if drafter == "mtp":
        return "MTP, 1 layer"
    if drafter == "none":
        return "none"
    block = config.dspark_block_size
    return f"DSpark, {DSPARK_STAGES} stages" + (f", block {block}" if block else "")


def expected_tensors(config: ModelConfig, drafter: Drafter | None = None) -> dict[str, TensorSpec]:
    """Every tensor of a checkpoint, in the order of the model: embedding, layers, final norm and head, drafter.

    `drafter` says what `mtp.*` holds; None takes config.json's word. Raises ConfigError for sizes that the stored
    formats cannot hold.
    """
    table = _Table(config)
    table.trunk()
    drafter = config_drafter(config) if drafter is None else drafter
    if drafter == "mtp":
        table.mtp()
    elif drafter == "dspark":
        table.dspark()
    return table.specs


class _Table:
    """Collects the specs; `override` replaces the part while the drafter's block is listed."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self.quantised = config.quantization_config is not None
        self.fp4_experts = self.quantised and config.expert_dtype == "fp4"
        # the scale dtype follows the expert dtype, not scale_fmt: Base checkpoints say "ue8m0" and store F32
        self.scale_dtype = "F8_E8M0" if config.expert_dtype == "fp4" else "F32"
        self.override: Part | None = None
        self.specs: dict[str, TensorSpec] = {}
        for name in ("hidden_size", "moe_intermediate_size"):
            if self.fp4_experts and getattr(config, name) % 2:
                raise ConfigError(f"{name}: {getattr(config, name)} is odd; FP4 experts hold two values a byte")

    def add(self, name: str, shape: Shape, dtype: str, part: Part) -> None:
        """A tensor without scales."""
        dtypes: tuple[str, ...] = (dtype,)
        if dtype == "I64":
            dtypes = ("I64", "I32")
        elif not self.quantised:
            dtypes = ("BF16", "F32") if dtype == "BF16" else ("F32", "BF16")
        self.specs[name] = TensorSpec(name, shape, dtypes, self.override or part, shape)

    def linear(self, prefix: str, rows: int, cols: int, part: Part, *, fp4: bool = False) -> None:
        """`prefix`.weight [rows, cols] with `prefix`.scale, in the checkpoint's weight format."""
        if not self.quantised:
            self.add(f"{prefix}.weight", (rows, cols), "BF16", part)
            return
        part = self.override or part
        weight, scale = f"{prefix}.weight", f"{prefix}.scale"
        if fp4:
            stored, scales = (rows, cols // 2), (rows, -(-cols // FP4_BLOCK))
        else:
            stored, scales = (rows, cols), (-(-rows // FP8_BLOCK), -(-cols // FP8_BLOCK))
        dtype = "I8" if fp4 else "F8_E4M3"
        self.specs[weight] = TensorSpec(weight, stored, (dtype,), part, (rows, cols), scale=scale)
        self.specs[scale] = TensorSpec(scale, scales, (self.scale_dtype,), part, scales, is_scale=True)

    def trunk(self) -> None:
        c = self.config
        self.add("embed.weight", (c.vocab_size, c.hidden_size), "BF16", Part.EMBEDDING)
        for i, ratio in enumerate(c.layer_kinds):
            self.block(f"layers.{i}.", ratio, hashed=i < c.num_hash_layers)
        self.hc_head("")
        self.add("norm.weight", (c.hidden_size,), "BF16", Part.NORMS)
        self.add("head.weight", (c.vocab_size, c.hidden_size), "BF16", Part.HEAD)

    def hc_head(self, prefix: str) -> None:
        n, d = self.config.hc_mult, self.config.hidden_size
        for name, shape in (("fn", (n, n * d)), ("base", (n,)), ("scale", (1,))):
            self.add(f"{prefix}hc_head_{name}", shape, "F32", Part.HYPER_CONNECTION)

    def block(self, prefix: str, ratio: int, *, hashed: bool) -> None:
        """One decoder layer: attention of the given compression ratio, experts, two hyper-connection sites."""
        n, d = self.config.hc_mult, self.config.hidden_size
        mixes = (2 + n) * n
        for site in ("attn", "ffn"):
            for name, shape in (("fn", (mixes, n * d)), ("base", (mixes,)), ("scale", (3,))):
                self.add(f"{prefix}hc_{site}_{name}", shape, "F32", Part.HYPER_CONNECTION)
            self.add(f"{prefix}{site}_norm.weight", (d,), "BF16", Part.NORMS)
        self.attention(f"{prefix}attn.", ratio)
        self.experts(f"{prefix}ffn.", hashed=hashed)

    def attention(self, p: str, ratio: int) -> None:
        c, part = self.config, Part.ATTENTION
        heads, width, groups = c.num_attention_heads, c.head_dim, c.o_groups
        self.add(f"{p}attn_sink", (heads,), "F32", part)
        self.linear(f"{p}wq_a", c.q_lora_rank, c.hidden_size, part)
        self.add(f"{p}q_norm.weight", (c.q_lora_rank,), "BF16", part)
        self.linear(f"{p}wq_b", heads * width, c.q_lora_rank, part)
        self.linear(f"{p}wkv", width, c.hidden_size, part)
        self.add(f"{p}kv_norm.weight", (width,), "BF16", part)
        self.linear(f"{p}wo_a", groups * c.o_lora_rank, heads * width // groups, part)
        self.linear(f"{p}wo_b", c.hidden_size, groups * c.o_lora_rank, part)
        if ratio:
            self.compressor(f"{p}compressor.", ratio, width, Part.COMPRESSOR)
        if ratio == 4:
            self.linear(f"{p}indexer.wq_b", c.index_n_heads * c.index_head_dim, c.q_lora_rank, Part.INDEXER)
            self.add(f"{p}indexer.weights_proj.weight", (c.index_n_heads, c.hidden_size), "BF16", Part.INDEXER)
            self.compressor(f"{p}indexer.compressor.", ratio, c.index_head_dim, Part.INDEXER)

    def compressor(self, p: str, ratio: int, width: int, part: Part) -> None:
        rows = 2 * width if ratio == 4 else width  # ratio 4 overlaps: one half per window
        self.add(f"{p}ape", (ratio, rows), "F32", part)
        self.add(f"{p}wkv.weight", (rows, self.config.hidden_size), "BF16", part)
        self.add(f"{p}wgate.weight", (rows, self.config.hidden_size), "BF16", part)
        self.add(f"{p}norm.weight", (width,), "BF16", part)

    def experts(self, p: str, *, hashed: bool) -> None:
        c = self.config
        self.add(f"{p}gate.weight", (c.n_routed_experts, c.hidden_size), "BF16", Part.ROUTER)
        if hashed:
            self.add(f"{p}gate.tid2eid", (c.vocab_size, c.num_experts_per_tok), "I64", Part.ROUTER)
        else:
            self.add(f"{p}gate.bias", (c.n_routed_experts,), "F32", Part.ROUTER)
        for e in range(c.n_routed_experts):
            self.expert(f"{p}experts.{e}.", Part.EXPERTS, fp4=self.fp4_experts)
        self.expert(f"{p}shared_experts.", Part.SHARED_EXPERT, fp4=False)

    def expert(self, p: str, part: Part, *, fp4: bool) -> None:
        d, inner = self.config.hidden_size, self.config.moe_intermediate_size
        for name, rows, cols in (("w1", inner, d), ("w2", d, inner), ("w3", inner, d)):
            self.linear(f"{p}{name}", rows, cols, part, fp4=fp4)

    def mtp(self) -> None:
        """The MTP layer: a window-only block of its own, two projections, its own norms and hc_head."""
        d, self.override = self.config.hidden_size, Part.MTP
        self.add("mtp.0.enorm.weight", (d,), "BF16", Part.MTP)
        self.add("mtp.0.hnorm.weight", (d,), "BF16", Part.MTP)
        self.linear("mtp.0.e_proj", d, d, Part.MTP)
        self.linear("mtp.0.h_proj", d, d, Part.MTP)
        self.block("mtp.0.", 0, hashed=False)
        self.hc_head("mtp.0.")
        self.add("mtp.0.norm.weight", (d,), "BF16", Part.MTP)

    def dspark(self) -> None:
        """DSpark: three window-only blocks; features enter the first, Markov and confidence heads sit in the last."""
        c, part = self.config, Part.DSPARK
        d, self.override = c.hidden_size, part
        rank = c.dspark_markov_rank or DSPARK_MARKOV_RANK
        targets = len(c.dspark_target_layer_ids) if c.dspark_target_layer_ids else DSPARK_TARGET_LAYERS
        self.linear("mtp.0.main_proj", d, targets * d, part)
        self.add("mtp.0.main_norm.weight", (d,), "BF16", part)
        for stage in range(DSPARK_STAGES):
            self.block(f"mtp.{stage}.", 0, hashed=False)
        last = f"mtp.{DSPARK_STAGES - 1}."
        self.add(f"{last}norm.weight", (d,), "BF16", part)
        self.hc_head(last)
        self.add(f"{last}markov_head.markov_w1.weight", (c.vocab_size, rank), "BF16", part)
        self.add(f"{last}markov_head.markov_w2.weight", (c.vocab_size, rank), "BF16", part)
        self.add(f"{last}confidence_head.proj.weight", (1, d + rank), "BF16", part)
