"""What every launch and every compilation has in common."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from triton import knobs
from triton.runtime import driver

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

_INTERPRETED = bool(INTERPRETED.value)

OPTIONS = {"enable_fp_fusion": False}
"""Contraction of a * b + c is off: its default changes between Triton releases, and with it on, two kernels of the same
formula need not give the same bits."""

_compiled: dict[tuple[object, ...], Any] = {}


def launch(kernel: Any, grid: tuple[int, ...], *arguments: object, **constants: object) -> None:
    """`kernel[grid](*arguments, **constants, **OPTIONS)`, in less host time: `constants` are the kernel's and
    num_warps and num_stages.

    Triton's own binder says which variant these arguments need (types, alignment, ones), so that there is one rule of
    it. What is left out, once a variant is compiled: printing the options into a key, and comparing every global that
    the kernel reads with its value at compile time; ours are constants.
    """
    hooks = knobs.runtime
    if _INTERPRETED or hooks.launch_enter_hook.calls or hooks.launch_exit_hook.calls:  # a profiler hooks launches
        kernel[grid](*arguments, **constants, **OPTIONS)
        return
    active = driver.active
    device = active.get_current_device()
    bound, variant, options = kernel.device_caches[device][4](*arguments, **constants)
    key = (id(kernel), device, *variant, *options.items())
    compiled = _compiled.get(key)
    if compiled is None:
        _compiled[key] = kernel[grid](*arguments, **constants, **OPTIONS)
        return
    x, y, z = (*grid, 1, 1)[:3]
    stream = active.get_current_stream(device)
    compiled.run(x, y, z, stream, compiled.function, compiled.packed_metadata, None, None, None, *bound.values())


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up. Triton's is a function of kernels and takes microseconds on the host."""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is not below n, at least 1."""
    return 1 << max(n - 1, 0).bit_length()


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
    return device.type != "cpu" and gpu_architecture(device).backend == "cuda"


def has_kernels(x: Tensor) -> bool:
    """Whether kernels can run where x lies: a GPU, or the CPU in the interpreter. If not, the reference serves."""
    return x.device.type != "cpu" or _INTERPRETED
