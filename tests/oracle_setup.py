"""Config, tensor shapes and random weights of the oracle (tests/oracle.py)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Shape = tuple[int, ...]

TINY_CONFIG: dict[str, Any] = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "model_type": "deepseek_v4",
    "vocab_size": 97,
    "hidden_size": 64,
    "moe_intermediate_size": 48,
    "num_hidden_layers": 5,
    "num_attention_heads": 8,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "qk_rope_head_dim": 16,
    "q_lora_rank": 40,
    "o_groups": 2,
    "o_lora_rank": 32,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 3,
    "routed_scaling_factor": 1.5,
    "swiglu_limit": 0.6,
    "compress_ratios": [0, 4, 128, 4, 128, 0],
    "num_hash_layers": 2,
    "num_nextn_predict_layers": 1,
    "sliding_window": 24,
    "index_n_heads": 16,
    "index_head_dim": 32,
    "index_topk": 9,
    "rope_theta": 10000.0,
    "compress_rope_theta": 160000.0,
    "rope_scaling": {
        "type": "yarn",
        "factor": 16,
        "beta_fast": 32,
        "beta_slow": 1,
        "original_max_position_embeddings": 4096,
    },
    "max_position_embeddings": 65536,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "hc_eps": 1e-6,
    "rms_norm_eps": 1e-6,
}
"""Every layer kind in five layers; sizes deliberately not multiples of 128."""


@dataclass(frozen=True)
class OracleConfig:
    """config.json under short names, with the two RoPE tables."""

    vocab: int
    d: int
    layers: int
    ratios: tuple[int, ...]  # trunk layers, then one per MTP layer
    n_hash: int
    n_mtp: int
    heads: int
    head_dim: int
    rope_dim: int
    q_rank: int
    o_groups: int
    o_rank: int
    window: int
    idx_heads: int
    idx_dim: int
    topk_idx: int
    n_exp: int
    topk: int
    inter: int
    route_scale: float
    lim: float
    hc: int
    hc_iters: int
    hc_eps: float
    eps: float
    kvblk: int  # block of the KV FP8 round trip: 64 for the real 448 dims
    idxblk: int  # block of the indexer FP4 round trip
    f_main: Tensor  # [rope_dim / 2]
    f_comp: Tensor


def inv_freq(dim: int, base: float, yarn: Mapping[str, Any] | None = None) -> Tensor:
    """RoPE frequencies [dim/2]; YaRN blends them with frequency / factor, without any amplitude term."""
    freq = 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    if yarn is None:
        return freq

    def correction(rotations: float) -> float:
        context = yarn["original_max_position_embeddings"]
        return dim * math.log(context / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low = max(math.floor(correction(yarn["beta_fast"])), 0)
    high: float = min(math.ceil(correction(yarn["beta_slow"])), dim - 1)
    if high == low:
        high += 0.001
    ramp = ((torch.arange(dim // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    return freq * (1 - ramp) + freq / yarn["factor"] * ramp


def make_cfg(fields: Mapping[str, Any]) -> OracleConfig:
    """Reads a plain dict of official config.json fields."""
    n_mtp = fields.get("num_nextn_predict_layers", 1)
    rope_dim, nope = fields["qk_rope_head_dim"], fields["head_dim"] - fields["qk_rope_head_dim"]
    return OracleConfig(
        vocab=fields["vocab_size"],
        d=fields["hidden_size"],
        layers=fields["num_hidden_layers"],
        ratios=tuple(fields["compress_ratios"]),
        n_hash=fields["num_hash_layers"],
        n_mtp=n_mtp,
        heads=fields["num_attention_heads"],
        head_dim=fields["head_dim"],
        rope_dim=rope_dim,
        q_rank=fields["q_lora_rank"],
        o_groups=fields["o_groups"],
        o_rank=fields["o_lora_rank"],
        window=fields["sliding_window"],
        idx_heads=fields["index_n_heads"],
        idx_dim=fields["index_head_dim"],
        topk_idx=fields["index_topk"],
        n_exp=fields["n_routed_experts"],
        topk=fields["num_experts_per_tok"],
        inter=fields["moe_intermediate_size"],
        route_scale=fields["routed_scaling_factor"],
        lim=fields["swiglu_limit"],
        hc=fields["hc_mult"],
        hc_iters=fields["hc_sinkhorn_iters"],
        hc_eps=fields["hc_eps"],
        eps=fields["rms_norm_eps"],
        kvblk=math.gcd(64, nope),
        idxblk=math.gcd(32, fields["index_head_dim"]),
        f_main=inv_freq(rope_dim, fields["rope_theta"]),
        f_comp=inv_freq(rope_dim, fields["compress_rope_theta"], fields.get("rope_scaling")),
    )


def _block_shapes(p: str, ratio: int, hashed: bool, cfg: OracleConfig) -> dict[str, Shape]:
    a, f, i = p + "attn.", p + "ffn.", p + "attn.indexer."
    rows, HD = (2 + cfg.hc) * cfg.hc, cfg.heads * cfg.head_dim
    S: dict[str, Shape] = {}
    for site in ("attn", "ffn"):
        S |= {f"{p}hc_{site}_fn": (rows, cfg.hc * cfg.d), f"{p}hc_{site}_base": (rows,), f"{p}hc_{site}_scale": (3,)}
        S[f"{p}{site}_norm.weight"] = (cfg.d,)
    S |= {a + "attn_sink": (cfg.heads,), a + "q_norm.weight": (cfg.q_rank,), a + "kv_norm.weight": (cfg.head_dim,)}
    S |= {a + "wq_a.weight": (cfg.q_rank, cfg.d), a + "wq_b.weight": (HD, cfg.q_rank)}
    S |= {a + "wkv.weight": (cfg.head_dim, cfg.d), a + "wo_b.weight": (cfg.d, cfg.o_groups * cfg.o_rank)}
    S[a + "wo_a.weight"] = (cfg.o_groups * cfg.o_rank, HD // cfg.o_groups)

    def compressor(prefix: str, head_dim: int) -> None:
        width = (2 if ratio == 4 else 1) * head_dim
        S.update({prefix + "wkv.weight": (width, cfg.d), prefix + "wgate.weight": (width, cfg.d)})
        S.update({prefix + "ape": (ratio, width), prefix + "norm.weight": (head_dim,)})

    if ratio:
        compressor(a + "compressor.", cfg.head_dim)
    if ratio == 4:
        S[i + "wq_b.weight"] = (cfg.idx_heads * cfg.idx_dim, cfg.q_rank)
        S[i + "weights_proj.weight"] = (cfg.idx_heads, cfg.d)
        compressor(i + "compressor.", cfg.idx_dim)
    S[f + "gate.weight"] = (cfg.n_exp, cfg.d)
    S |= {f + "gate.tid2eid": (cfg.vocab, cfg.topk)} if hashed else {f + "gate.bias": (cfg.n_exp,)}
    for name in [f"experts.{e}" for e in range(cfg.n_exp)] + ["shared_experts"]:
        S |= {f"{f}{name}.w1.weight": (cfg.inter, cfg.d), f"{f}{name}.w3.weight": (cfg.inter, cfg.d)}
        S[f"{f}{name}.w2.weight"] = (cfg.d, cfg.inter)
    return S


def official_shapes(cfg: OracleConfig) -> dict[str, Shape]:
    """Official tensor names -> shapes of the unquantised values (FP4 experts unpacked, no `.scale`)."""
    head = {"hc_head_fn": (cfg.hc, cfg.hc * cfg.d), "hc_head_base": (cfg.hc,), "hc_head_scale": (1,)}
    S: dict[str, Shape] = {"embed.weight": (cfg.vocab, cfg.d), "head.weight": (cfg.vocab, cfg.d)}
    S |= {"norm.weight": (cfg.d,), **head}
    for n in range(cfg.layers):
        S |= _block_shapes(f"layers.{n}.", cfg.ratios[n], n < cfg.n_hash, cfg)
    for k in range(cfg.n_mtp):
        p = f"mtp.{k}."
        S |= _block_shapes(p, cfg.ratios[cfg.layers + k], False, cfg) | {p + n: s for n, s in head.items()}
        S |= {p + n + ".weight": (cfg.d,) for n in ("enorm", "hnorm", "norm")}
        S |= {p + n + ".weight": (cfg.d, cfg.d) for n in ("e_proj", "h_proj")}
    return S


def random_weights(cfg: OracleConfig, seed: int = 1234) -> dict[str, Tensor]:
    """Float32 weights (tid2eid int64) large enough that every rule of the model shows in the logits."""
    g = torch.Generator().manual_seed(seed)
    W: dict[str, Tensor] = {}
    for name, shape in official_shapes(cfg).items():
        if name.endswith("tid2eid"):
            W[name] = torch.stack([torch.randperm(cfg.n_exp, generator=g)[: shape[1]] for _ in range(shape[0])])
        elif name.endswith("norm.weight"):
            W[name] = 1 + 0.3 * torch.randn(shape, generator=g)
        elif name.endswith("_scale"):
            W[name] = 0.7 + 0.6 * torch.rand(shape, generator=g)
        elif name.endswith(("_base", "ape", "attn_sink", "gate.bias")):
            W[name] = 0.7 * torch.randn(shape, generator=g)
        elif name.endswith("_fn"):
            W[name] = torch.randn(shape, generator=g) / shape[1] ** 0.5
        elif name == "embed.weight":
            W[name] = torch.randn(shape, generator=g)
        else:
            W[name] = 1.6 * torch.randn(shape, generator=g) / shape[-1] ** 0.5
    return W
