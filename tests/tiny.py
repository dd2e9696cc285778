"""Tiny DeepSeek-V4 models for tests: every layer kind, both routings, MTP; random weights in official names.

    config = tiny_config()                              # config.json as a dict, quantised like the released models
    config = tiny_config(quantization_config=None)      # the same model unquantised
    tensors = random_tensors(config, seed=0)            # float32 by logical name, for a model or for the writer
    tiny_checkpoint(tmp_path, tiny_config(), seed=0)    # writes both in the official format

Hidden 64, six layers, 8 experts top-2, 1.3 M parameters: a forward pass takes milliseconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outrider.checkpoint.names import expected_tensors
from outrider.config import ModelConfig, parse_model_config

TINY: dict[str, Any] = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "model_type": "deepseek_v4",
    "torch_dtype": "bfloat16",
    "vocab_size": 512,
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "qk_rope_head_dim": 16,
    "q_lora_rank": 40,
    "o_groups": 2,
    "o_lora_rank": 32,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "sliding_window": 16,
    "compress_ratios": [0, 0, 4, 128, 4, 128, 0],
    "compress_rope_theta": 160000.0,
    "rope_theta": 10000.0,
    "rope_scaling": {
        "type": "yarn",
        "factor": 16,
        "beta_fast": 32,
        "beta_slow": 1,
        "original_max_position_embeddings": 4096,
    },
    "max_position_embeddings": 65536,
    "index_n_heads": 16,  # fewer heads give exact zero scores, and ties would decide what is selected
    "index_head_dim": 32,
    "index_topk": 8,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "num_hash_layers": 2,
    "scoring_func": "sqrtsoftplus",
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
    "swiglu_limit": 0.6,  # low enough that the clamp acts
    "hidden_act": "silu",
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "hc_eps": 1e-6,
    "rms_norm_eps": 1e-6,
    "num_nextn_predict_layers": 1,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "expert_dtype": "fp4",
    "quantization_config": {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "scale_fmt": "ue8m0",
        "weight_block_size": [128, 128],
    },
}

DSPARK: dict[str, Any] = {
    "compress_ratios": [0, 0, 4, 128, 4, 128, 0, 0, 0],
    "dspark_block_size": 5,
    "dspark_noise_token_id": 3,
    "dspark_target_layer_ids": [3, 4, 5],
    "dspark_markov_rank": 16,
}


def tiny_config(**overrides: Any) -> dict[str, Any]:
    """A config.json as a dict; an override of None removes the field."""
    merged = {**TINY, **overrides}
    return {name: value for name, value in merged.items() if value is not None}


def random_tensors(config: dict[str, Any] | ModelConfig, seed: int = 0) -> dict[str, Tensor]:
    """Random float32 tensors (tid2eid: int64) for every logical name: no scales, drafter as config.json says.

    Every bias, sink, norm and mixing parameter is random, so that leaving one out shows.
    """
    parsed = config if isinstance(config, ModelConfig) else parse_model_config(config)
    generator = torch.Generator().manual_seed(seed)
    return {
        name: _random(name, spec.logical_shape, parsed, generator)
        for name, spec in expected_tensors(parsed).items()
        if not spec.is_scale
    }


def _random(name: str, shape: tuple[int, ...], config: ModelConfig, generator: torch.Generator) -> Tensor:
    if name.endswith("tid2eid"):
        keys = torch.rand(shape[0], config.n_routed_experts, generator=generator)
        return keys.argsort(-1)[:, : shape[1]].contiguous()
    if name.endswith("_scale"):
        return 0.7 + 0.6 * torch.rand(shape, generator=generator)
    normal = torch.randn(shape, generator=generator)
    if name.endswith("norm.weight"):
        return 1 + 0.3 * normal
    if name.endswith(("_base", "ape", "attn_sink", "gate.bias")):
        return 0.7 * normal
    if name.endswith("_fn"):
        return normal / shape[1] ** 0.5
    if name == "embed.weight":
        return normal
    return 1.6 * normal / shape[-1] ** 0.5


def tiny_checkpoint(folder: Path, config: dict[str, Any] | None = None, seed: int = 0, **writer_options: Any) -> Path:
    """Writes a tiny checkpoint with random weights in the official format; returns its folder."""
    from outrider.checkpoint.writer import write_checkpoint

    config = tiny_config() if config is None else config
    parsed = parse_model_config(config)
    write_checkpoint(folder, parsed, random_tensors(parsed, seed), config_json=config, **writer_options)
    return folder
