"""Configuration of the model that ships with the package, and the sizes the training code needs.

The real head sizes (512 = 448 + 64, index heads of 128), window (128), compression ratios (4, 128), FP8 and FP4 blocks
and hyper-connections (4 streams) at a hidden size of 256, so that every kernel of the engine runs on a trained model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

SHIPPED_CONFIG: dict[str, Any] = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "model_type": "deepseek_v4",
    "torch_dtype": "bfloat16",
    "vocab_size": 4096,
    "hidden_size": 256,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 512,
    "qk_rope_head_dim": 64,
    "q_lora_rank": 128,
    "o_groups": 2,
    "o_lora_rank": 128,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "sliding_window": 128,
    "compress_ratios": [0, 0, 4, 128, 4, 128, 4, 128, 0],
    "compress_rope_theta": 160000,
    "rope_theta": 10000,
    "rope_scaling": {
        "type": "yarn",
        "factor": 16,
        "beta_fast": 32,
        "beta_slow": 1,
        "original_max_position_embeddings": 4096,
    },
    "max_position_embeddings": 4096,
    "index_n_heads": 16,
    "index_head_dim": 128,
    "index_topk": 64,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 128,
    "num_hash_layers": 2,
    "scoring_func": "sqrtsoftplus",
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
    "swiglu_limit": 10.0,
    "hidden_act": "silu",
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "hc_eps": 1e-06,
    "rms_norm_eps": 1e-06,
    "num_nextn_predict_layers": 1,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "expert_dtype": "fp4",
    "initializer_range": 0.02,
    "use_cache": True,
    "quantization_config": {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "scale_fmt": "ue8m0",
        "weight_block_size": [128, 128],
    },
}


def smoke_config() -> dict[str, Any]:
    """The shipped architecture with every size cut, for a smoke test on a CPU."""
    sizes: dict[str, Any] = {
        "hidden_size": 64,
        "head_dim": 96,
        "qk_rope_head_dim": 32,
        "q_lora_rank": 32,
        "o_lora_rank": 32,
    }
    sizes |= {"num_hidden_layers": 4, "compress_ratios": [0, 4, 128, 4, 0], "num_hash_layers": 1}
    sizes |= {"index_n_heads": 4, "index_head_dim": 32, "index_topk": 16, "moe_intermediate_size": 32}
    return SHIPPED_CONFIG | sizes | {"num_attention_heads": 2, "sliding_window": 64}


@dataclass(frozen=True)
class Sizes:
    """Fields of config.json under short names."""

    vocab: int
    d: int
    layers: int
    ratios: tuple[int, ...]
    n_hash: int
    heads: int
    head_dim: int
    rope_dim: int
    q_rank: int
    groups: int
    o_rank: int
    window: int
    index_heads: int
    index_dim: int
    index_topk: int
    experts: int
    topk: int
    inter: int
    route_scale: float
    limit: float
    hc: int
    hc_iters: int
    hc_eps: float
    eps: float

    @staticmethod
    def of(fields: dict[str, Any]) -> Sizes:
        return Sizes(
            vocab=fields["vocab_size"],
            d=fields["hidden_size"],
            layers=fields["num_hidden_layers"],
            ratios=tuple(fields["compress_ratios"]),
            n_hash=fields["num_hash_layers"],
            heads=fields["num_attention_heads"],
            head_dim=fields["head_dim"],
            rope_dim=fields["qk_rope_head_dim"],
            q_rank=fields["q_lora_rank"],
            groups=fields["o_groups"],
            o_rank=fields["o_lora_rank"],
            window=fields["sliding_window"],
            index_heads=fields["index_n_heads"],
            index_dim=fields["index_head_dim"],
            index_topk=fields["index_topk"],
            experts=fields["n_routed_experts"],
            topk=fields["num_experts_per_tok"],
            inter=fields["moe_intermediate_size"],
            route_scale=fields["routed_scaling_factor"],
            limit=fields["swiglu_limit"],
            hc=fields["hc_mult"],
            hc_iters=fields["hc_sinkhorn_iters"],
            hc_eps=fields["hc_eps"],
            eps=fields["rms_norm_eps"],
        )

    @property
    def kv_block(self) -> int:
        """Block of the KV FP8 round trip: 64 for the real 448 dims."""
        return math.gcd(64, self.head_dim - self.rope_dim)

    @property
    def sequence_multiple(self) -> int:
        """The batched forward wants S to be a multiple of this (whole windows of every kind)."""
        return math.lcm(self.window, 128)


def rope_frequencies(fields: dict[str, Any], compressed: bool) -> Tensor:
    """RoPE frequencies [rope_dim / 2] in float32 (spec: theta 1e4 plain, or compress_rope_theta with YaRN)."""
    dim = fields["qk_rope_head_dim"]
    base = fields["compress_rope_theta"] if compressed else fields["rope_theta"]
    freq = 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    yarn = fields.get("rope_scaling")
    if not compressed or yarn is None:
        return freq

    def pair_at(rotations: float) -> float:
        turns = yarn["original_max_position_embeddings"] / (rotations * 2 * math.pi)
        return dim * math.log(turns) / (2 * math.log(base))

    low = max(math.floor(pair_at(yarn["beta_fast"])), 0)
    high: float = min(math.ceil(pair_at(yarn["beta_slow"])), dim - 1)
    high += 0.001 * (high == low)
    ramp = ((torch.arange(dim // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    return freq * (1 - ramp) + freq / yarn["factor"] * ramp


def rope_tables(fields: dict[str, Any], length: int) -> dict[str, Tensor]:
    """cos and sin [length, rope_dim / 2] of both tables: "main" (ratio 0) and "comp" (ratio 4 and 128)."""
    position = torch.arange(length, dtype=torch.float32)[:, None]
    tables = {}
    for name, compressed in (("main", False), ("comp", True)):
        angle = position * rope_frequencies(fields, compressed)[None]
        tables[name + "_cos"], tables[name + "_sin"] = angle.cos(), angle.sin()
    return tables
