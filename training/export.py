"""From training tensors to files.

`save_tensors` writes rounded values under official names, small shards, no dependency beyond safetensors: what a
training machine hands over. `python -m training.export` turns them into the official checkpoint with the package's
writer (FP8, FP4, E8M0 bytes); the values were rounded in training, so nothing changes.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from training.config import SHIPPED_CONFIG
from training.model import stored_form
from training.quantise import ROUND

SHARD_BYTES = 15 * 2**20


def rounded_official(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Official names -> stored values; bf16 where that is exact (FP8 and FP4 values times powers of two fit)."""
    out: dict[str, Tensor] = {}
    for name, t in tensors.items():
        if not t.is_floating_point():
            out[name] = t
            continue
        form = stored_form(name)
        value = ROUND[form](t.float())
        out[name] = value if form == "f32" else value.to(torch.bfloat16)
    return out


def save_tensors(tensors: dict[str, Tensor], folder: Path, prefix: str, shard_bytes: int = SHARD_BYTES) -> list[Path]:
    """Writes `<prefix>_<n>.safetensors` of at most about `shard_bytes` each."""
    folder.mkdir(parents=True, exist_ok=True)
    shards: list[dict[str, Tensor]] = [{}]
    used = 0
    for name in sorted(tensors):
        size = tensors[name].numel() * tensors[name].element_size()
        if used + size > shard_bytes and shards[-1]:
            shards.append({})
            used = 0
        shards[-1][name] = tensors[name].contiguous()
        used += size
    paths = [folder / f"{prefix}_{i}.safetensors" for i in range(len(shards))]
    for path, shard in zip(paths, shards, strict=True):
        save_file(shard, path)
    return paths


def load_tensors(folder: Path, prefix: str) -> dict[str, Tensor]:
    """Reads what `save_tensors` wrote; float tensors come back as float32."""
    paths = sorted(folder.glob(f"{prefix}_*.safetensors"))
    if not paths:
        raise FileNotFoundError(f"no {prefix}_*.safetensors in {folder}")
    tensors = {n: t for p in paths for n, t in load_file(p).items()}
    return {n: t.float() if t.is_floating_point() else t for n, t in tensors.items()}


def write_official(tensors: dict[str, Tensor], fields: dict[str, Any], tokenizer: Path, target: Path) -> None:
    """The official checkpoint folder: shards, index, config.json, tokenizer files, generation_config.json."""
    from outrider.checkpoint.writer import write_checkpoint
    from outrider.config import parse_model_config

    write_checkpoint(target, parse_model_config(fields), tensors, config_json=fields, max_shard_bytes=SHARD_BYTES)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer / name, target / name)
    generation = {
        "_from_model_config": True,
        "bos_token_id": fields["bos_token_id"],
        "eos_token_id": fields["eos_token_id"],
        "do_sample": True,
        "temperature": 1.0,
        "top_p": 1.0,
    }
    (target / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the official checkpoint of trained tensors.")
    parser.add_argument("tensors", type=Path, help="folder with <prefix>_<n>.safetensors")
    parser.add_argument("target", type=Path, help="checkpoint folder to write")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder with tokenizer.json")
    parser.add_argument("--prefix", default="final")
    arguments = parser.parse_args()
    tensors = load_tensors(arguments.tensors, arguments.prefix)
    write_official(tensors, SHIPPED_CONFIG, arguments.tokenizer, arguments.target)


if __name__ == "__main__":
    main()
