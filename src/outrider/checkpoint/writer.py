"""Writes a checkpoint in the official format: shards, index, config.json.

Used by training, by converters and by tests. Takes float tensors and quantises them as the config says, or takes
tensors that are already in their stored format. The same input gives the same bytes.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outrider.checkpoint.codec import (
    FLOATS,
    RAW_NAMES,
    TORCH_DTYPES,
    dtype_name,
    encode_weight,
    routing_table_problem,
    scale_problem,
)
from outrider.checkpoint.container import layout
from outrider.checkpoint.errors import CheckpointError
from outrider.checkpoint.names import ITEM_BYTES, TensorSpec, expected_tensors
from outrider.checkpoint.shards import INDEX_NAME, SINGLE_NAME
from outrider.config import ModelConfig, parse_model_config

SHARD_GLOB = "model-?????-of-?????.safetensors"
HEADER_BYTES = 192  # upper bound of one tensor's header entry; shards are planned with it

Dtypes = dict[str, str]


def write_checkpoint(
    folder: Path,
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    *,
    config_json: dict[str, Any] | None = None,
    max_shard_bytes: int = 5 * 2**30,
) -> None:
    """Writes `tensors` as an official checkpoint into `folder`, replacing one that is there.

    tensors: official logical name -> float32 or bfloat16 tensor of the logical shape (`X.weight` without scales;
        `tid2eid` int64 or int32). A weight may also come as stored, together with its `X.scale`: FP8 [N, K], FP4 pairs
        [N, K/2] as bytes, scales as E8M0 bytes or float32. Quantised checkpoints store the other floats as the official
        ones do; unquantised ones keep each tensor's own dtype.
    config_json: what config.json says; by default the fields of `config`.
    max_shard_bytes: largest file; a single tensor that exceeds it gets a file of its own.

    Everything is written under temporary names first; the index comes last, so an interrupted write leaves either the
    old checkpoint or one that is reported as incomplete. Raises CheckpointError naming every tensor that is missing,
    unknown, of a wrong shape or dtype, or not finite.
    """
    if config_json is not None and parse_model_config(config_json) != config:
        raise CheckpointError(folder, "config_json and config describe different models")
    specs = expected_tensors(config)
    dtypes = _check(folder, specs, tensors, config)
    shards = _plan(specs, dtypes, max_shard_bytes)
    names = [SINGLE_NAME] if len(shards) == 1 else [_shard_name(i, len(shards)) for i in range(len(shards))]
    folder.mkdir(parents=True, exist_ok=True)
    files = [*names, "config.json", *([INDEX_NAME] if len(names) > 1 else [])]
    temporary = {name: folder / f".{name}.{os.getpid()}.tmp" for name in files}
    try:
        for name, shard in zip(names, shards, strict=True):
            _write_shard(temporary[name], folder, shard, specs, dtypes, tensors)
        _write_json(temporary["config.json"], config_json or _config_json(config))
        if len(names) > 1:
            _write_json(temporary[INDEX_NAME], _index(names, shards, specs, dtypes))
        _swap_in(folder, temporary)
    finally:
        for path in temporary.values():
            path.unlink(missing_ok=True)


def _shard_name(index: int, count: int) -> str:
    return f"model-{index + 1:05d}-of-{count:05d}.safetensors"


# ------------------------------------------------------------------------------------------------ checks


def _check(folder: Path, specs: dict[str, TensorSpec], tensors: Mapping[str, Tensor], config: ModelConfig) -> Dtypes:
    """Compares what was given with what is expected. Returns the safetensors dtype of every tensor to be written."""
    problems: list[str] = []
    dtypes: Dtypes = {}
    for name, spec in specs.items():
        raw = spec.is_scale or spec.scale in tensors
        if name not in tensors:
            if not spec.is_scale:
                problems.append(f"{name}: missing")
            dtypes[name] = spec.dtype
            continue
        tensor = tensors[name]
        shape = spec.shape if raw else spec.logical_shape
        if tuple(tensor.shape) != shape:
            problems.append(f"{name}: shape {list(tensor.shape)}, expected {list(shape)}")
        elif problem := _value_problem(spec, tensor, raw, config):
            problems.append(f"{name}: {problem}")
        dtypes[name] = spec.dtype
        if spec.is_float and len(spec.dtypes) > 1:
            dtypes[name] = "BF16" if tensor.dtype == torch.bfloat16 else "F32"
    problems += [f"{name}: not a tensor of this model" for name in tensors if name not in specs]
    if problems:
        raise CheckpointError(folder, problems, "Nothing was written.")
    return dtypes


def _value_problem(spec: TensorSpec, tensor: Tensor, raw: bool, config: ModelConfig) -> str | None:
    """What is wrong with the dtype or the values of one tensor, or None."""
    if raw:
        allowed = RAW_NAMES[spec.dtype]
        if dtype_name(tensor) not in allowed:
            return f"{dtype_name(tensor)}, expected {' or '.join(allowed)} for a stored {spec.dtype} tensor"
        return scale_problem(_stored(spec, spec.dtype, tensor)) if spec.is_scale else None
    if spec.dtype == "I64":
        if tensor.dtype not in (torch.int64, torch.int32):
            return f"{dtype_name(tensor)}, expected int64"
        return routing_table_problem(tensor, config.n_routed_experts)
    if tensor.dtype not in FLOATS:
        return f"{dtype_name(tensor)}, expected float32 or bfloat16"
    if not bool(torch.isfinite(tensor).all()):
        return "holds NaN or infinity"
    return None


# ------------------------------------------------------------------------------------------------ files


def _plan(specs: dict[str, TensorSpec], dtypes: Dtypes, limit: int) -> list[list[str]]:
    """Splits the table, in its order, into shards of at most `limit` bytes; a weight and its scale stay together."""
    shards: list[list[str]] = []
    used = limit
    for name, spec in specs.items():
        if spec.is_scale:
            continue
        group = [name] if spec.scale is None else [name, spec.scale]
        size = sum(_nbytes(specs[n], dtypes[n]) + HEADER_BYTES for n in group)
        if not shards or used + size > limit:
            shards.append([])
            used = HEADER_BYTES
        shards[-1] += group
        used += size
    return shards


def _nbytes(spec: TensorSpec, dtype: str) -> int:
    return math.prod(spec.shape) * ITEM_BYTES[dtype]


def _write_shard(
    path: Path,
    folder: Path,
    names: list[str],
    specs: dict[str, TensorSpec],
    dtypes: Dtypes,
    tensors: Mapping[str, Tensor],
) -> None:
    head, offsets = layout([(name, dtypes[name], specs[name].shape) for name in names])
    with path.open("wb") as file:
        file.write(head)
        for name in names:
            if specs[name].is_scale:
                continue  # written with its weight
            for stored_name, stored in _encode(folder, name, specs, dtypes, tensors):
                file.seek(offsets[stored_name])
                file.write(stored.contiguous().flatten().view(torch.uint8).numpy().data)
        file.flush()
        os.fsync(file.fileno())


def _encode(
    folder: Path, name: str, specs: dict[str, TensorSpec], dtypes: Dtypes, tensors: Mapping[str, Tensor]
) -> Iterator[tuple[str, Tensor]]:
    """The stored tensors of one logical tensor: itself and, for a quantised weight, its scales."""
    spec, tensor = specs[name], tensors[name].detach().cpu()
    if spec.scale is None:
        yield name, _stored(spec, dtypes[name], tensor)
    elif spec.scale in tensors:
        yield name, _stored(spec, spec.dtype, tensor)
        yield spec.scale, _stored(specs[spec.scale], dtypes[spec.scale], tensors[spec.scale].detach().cpu())
    else:
        try:
            weight, scale = encode_weight(spec, specs[spec.scale], tensor)
        except ValueError as error:
            raise CheckpointError(folder, f"{name}: {error}") from None
        yield name, weight
        yield spec.scale, scale


def _stored(spec: TensorSpec, dtype: str, tensor: Tensor) -> Tensor:
    """A tensor in its stored dtype; one-byte formats are reinterpreted, never converted."""
    if ITEM_BYTES[dtype] == 1:
        return tensor.contiguous().view(torch.uint8)
    return tensor.to(TORCH_DTYPES[dtype])


def _index(names: list[str], shards: list[list[str]], specs: dict[str, TensorSpec], dtypes: Dtypes) -> dict[str, Any]:
    weight_map = {tensor: file for file, shard in zip(names, shards, strict=True) for tensor in shard}
    total = sum(_nbytes(specs[name], dtypes[name]) for name in weight_map)
    return {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}


def _config_json(config: ModelConfig) -> dict[str, Any]:
    fields = config.model_dump(mode="json", exclude_none=True)
    return {"architectures": ["DeepseekV4ForCausalLM"], **fields, "torch_dtype": "bfloat16"}


def _write_json(path: Path, value: dict[str, Any]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _swap_in(folder: Path, temporary: dict[str, Path]) -> None:
    """Removes the checkpoint that was there and gives the new files their names, the index last."""
    for old in (folder / INDEX_NAME, folder / SINGLE_NAME, *sorted(folder.glob(SHARD_GLOB))):
        if old.name not in temporary or old.name == INDEX_NAME:
            old.unlink(missing_ok=True)
    for name, path in temporary.items():  # insertion order: shards, config.json, index
        path.replace(folder / name)
