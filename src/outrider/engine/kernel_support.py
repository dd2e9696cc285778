"""What the GPU kernels cannot serve, found when a model is loaded and not in the middle of a batch.

One list of everything that an op of ops/triton would refuse of a model's shapes, formats and pools. top-k, window,
expert and head counts and the vocabulary are not in it: the kernels mask them.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import torch

from outrider.cache.layout import BLOCK_TOKENS
from outrider.config import ConfigError, EngineConfig, LayerKind, ModelConfig, Numerics
from outrider.platforms.architectures import Architecture, gpu_architecture

LARGEST_HEAD_DIM = 512  # keys of more do not fit into the shared memory that every architecture's tiles are sized for
STREAMS = 4  # hyper-connection streams that the mixing kernel holds in one tile
FP8_BLOCK = 128
MOST_SLOTS = 1 << 31  # slots of a pool are int32 inside a kernel; addresses are int64


def require_kernels(
    config: ModelConfig, options: EngineConfig, numerics: Numerics, device: torch.device, source: str
) -> Architecture | None:
    """The architecture of `device` (None for the CPU, whose ops serve every config), if the kernels can serve this.

    Raises ConfigError that names `source` and lists every field, its value and what is possible.
    """
    if device.type == "cpu":
        return None
    problems = list(kernel_problems(config, options, numerics))
    target = None
    try:
        target = gpu_architecture(device)
    except ValueError as error:  # its FP8 dialect is not known either
        problems.insert(0, str(error))
    if find_spec("triton") is None:
        problems.insert(0, "triton is not installed, and the ops of a GPU are written in it")
    if problems:
        raise ConfigError(f"{source}: cannot run on {device}: {'; '.join(problems)}")
    return target


def kernel_problems(config: ModelConfig, options: EngineConfig, numerics: Numerics) -> Iterator[str]:
    """One sentence for each thing that the kernels of every architecture refuse: field, value, what is possible."""
    yield from _heads(config)
    yield from _matrices(config)
    yield from _formats(config, numerics)
    for name in ("window_pages", "entry_pages"):
        pages = getattr(options, name)
        if pages is not None and pages * BLOCK_TOKENS > MOST_SLOTS:
            yield f"{name}: {pages} pages of {BLOCK_TOKENS} tokens; at most {MOST_SLOTS // BLOCK_TOKENS}"


def _heads(config: ModelConfig) -> Iterator[str]:
    if not _power_of_two(config.head_dim) or not 16 <= config.head_dim <= LARGEST_HEAD_DIM:
        yield f"head_dim: {config.head_dim}; a power of two from 16 to {LARGEST_HEAD_DIM}"
    if not _power_of_two(config.qk_rope_head_dim):
        yield f"qk_rope_head_dim: {config.qk_rope_head_dim}; a power of two"
    if config.kind_count(LayerKind.CSA) and (not _power_of_two(config.index_head_dim) or config.index_head_dim < 32):
        yield f"index_head_dim: {config.index_head_dim}; a power of two from 32 on"
    if config.hc_mult != STREAMS:
        yield f"hc_mult: {config.hc_mult}; {STREAMS}"


def _matrices(config: ModelConfig) -> Iterator[str]:
    """Inner dims of every product: activations and weights are scaled in blocks of 128."""
    for name in ("hidden_size", "moe_intermediate_size", "q_lora_rank", "o_lora_rank"):
        size = getattr(config, name)
        if size % FP8_BLOCK:
            yield f"{name}: {size}; a multiple of {FP8_BLOCK}"
    group = config.num_attention_heads * config.head_dim // config.o_groups
    if group % FP8_BLOCK:
        yield f"num_attention_heads * head_dim / o_groups: {group}; a multiple of {FP8_BLOCK}"


def _formats(config: ModelConfig, numerics: Numerics) -> Iterator[str]:
    if config.quantization_config is None:
        yield "quantization_config: missing; experts must be stored as FP4 with E8M0 scales, other matrices as FP8"
    elif config.expert_dtype != "fp4":
        yield (
            f'expert_dtype: "{config.expert_dtype}", whose block scales are float32 (a Base checkpoint); "fp4", '
            "whose scales are E8M0 bytes"
        )
    if numerics.kv_cache_dtype == "float32":
        yield "kv_cache_dtype: float32; auto, fp8 or bf16"
    if numerics.indexer_dtype == "float32":
        yield "indexer_dtype: float32; fp4, fp8 or bf16"


def _power_of_two(number: int) -> bool:
    return number & (number - 1) == 0
