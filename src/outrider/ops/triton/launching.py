"""What every launch and every compilation has in common."""

from __future__ import annotations

import torch
from torch import Tensor

from outrider.ops.triton.arithmetic import INTERPRETED
from outrider.platforms.architectures import gpu_architecture
from outrider.platforms.tiles import (
    INTERPRETER_EXPERT_TILES,
    INTERPRETER_INDEXER_TILES,
    INTERPRETER_TILES,
    AttentionTiles,
    ExpertTiles,
    IndexerTiles,
    attention_tiles,
    expert_tiles,
    indexer_tiles,
)

OPTIONS = {"enable_fp_fusion": False}
"""Contraction of a * b + c is off: its default changes between Triton releases, and with it on, two kernels of the same
formula need not give the same bits."""


def tiles_for(device: torch.device, *, fp8: bool) -> AttentionTiles:
    """Tiles of the device's architecture, or of the interpreter for tensors on the CPU."""
    if device.type == "cpu":
        return INTERPRETER_TILES
    return attention_tiles(gpu_architecture(device), fp8=fp8)


def indexer_tiles_for(device: torch.device) -> IndexerTiles:
    """As `tiles_for`, of the indexer's scores."""
    if device.type == "cpu":
        return INTERPRETER_INDEXER_TILES
    return indexer_tiles(gpu_architecture(device))


def expert_tiles_for(device: torch.device, pairs: int, experts: int) -> ExpertTiles:
    """As `tiles_for`, of the experts' products for so many (token, expert) pairs."""
    if device.type == "cpu":
        return INTERPRETER_EXPERT_TILES
    return expert_tiles(gpu_architecture(device), pairs, experts)


def has_ptx(device: torch.device) -> bool:
    """Whether kernels on this device may hold NVIDIA's assembly."""
    return device.type == "cuda" and gpu_architecture(device).backend == "cuda"


def has_kernels(x: Tensor) -> bool:
    """Whether kernels can run where x lies: a GPU, or the CPU in the interpreter. If not, the reference serves."""
    return x.device.type == "cuda" or bool(INTERPRETED.value)
