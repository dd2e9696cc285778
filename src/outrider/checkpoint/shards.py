"""Finds the files of a checkpoint and reconciles their headers with the index and with the expected tensors."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from outrider.checkpoint.container import Entry, read_header
from outrider.checkpoint.errors import CheckpointError
from outrider.checkpoint.names import TensorSpec

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
REMEDY = "Download or copy the named files again; if the checkpoint was converted, convert it again."


@dataclass(slots=True)
class Shards:
    """Where every tensor lies. `reported` names tensors that a problem already covers."""

    tensors: dict[str, tuple[Path, Entry]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    reported: set[str] = field(default_factory=set)

    @property
    def names(self) -> set[str]:
        """Every tensor the checkpoint means to hold, readable or not."""
        return self.tensors.keys() | self.reported


def collect_shards(folder: Path) -> Shards:
    """Reads all headers (no data). Raises CheckpointError when there is no checkpoint here or its index is unusable."""
    index, single = folder / INDEX_NAME, folder / SINGLE_NAME
    if index.exists() and single.exists():
        raise CheckpointError(folder, f"holds both {INDEX_NAME} and {SINGLE_NAME}", "Remove the one that is stale.")
    shards = Shards()
    if single.exists():
        _add_file(shards, single)
        return shards
    if not index.exists():
        raise CheckpointError(folder, f"holds neither {INDEX_NAME} nor {SINGLE_NAME}", _without_weights(folder))
    weight_map = _read_index(index)
    for file in sorted(set(weight_map.values())):
        listed = [name for name, where in weight_map.items() if where == file]
        if not (folder / file).is_file():
            shards.problems.append(f"{file}: this shard is missing ({len(listed)} tensors, {listed[0]} first)")
            shards.reported.update(listed)
        elif not _add_file(shards, folder / file):
            shards.reported.update(listed)
    _compare_index(shards, weight_map)
    return shards


def _without_weights(folder: Path) -> str:
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt")) or any(folder.glob("*.pth")):
        return "Weights are read from safetensors only, never from pickles; convert them first."
    return "Give the folder of a checkpoint in the official format."


def _add_file(shards: Shards, path: Path) -> bool:
    """Merges one file's header; False when it has none that can be read."""
    try:
        header = read_header(path)
    except CheckpointError as error:
        shards.problems.append(str(error))
        return False
    except OSError as error:
        shards.problems.append(f"{path.name}: cannot be read ({error.strerror})")
        return False
    shards.problems += header.problems
    shards.reported |= header.broken
    for name, entry in header.entries.items():
        if name in shards.tensors:
            first = shards.tensors[name][0].name
            shards.problems.append(f"{name}: stored twice, in {first} and in {path.name}")
        else:
            shards.tensors[name] = (path, entry)
    return True


def _read_index(path: Path) -> dict[str, str]:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(path, f"cannot be read as JSON ({error})", "Download the index again.") from None
    weight_map = raw.get("weight_map") if isinstance(raw, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(path, "has no weight_map", "Download the index again.")
    for name, file in weight_map.items():
        # a plain name: an index must not reach outside its folder
        if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
            raise CheckpointError(path, f"{name}: {file!r} is not the name of a safetensors file in this folder")
    return weight_map


def _compare_index(shards: Shards, weight_map: dict[str, str]) -> None:
    for name, (path, _) in shards.tensors.items():
        listed = weight_map.get(name)
        if listed is None:
            shards.problems.append(f"{path.name}: {name}: not listed in {INDEX_NAME}")
            shards.reported.add(name)
        elif listed != path.name and name not in shards.reported:
            shards.problems.append(f"{name}: {INDEX_NAME} says {listed}, found in {path.name}")
            shards.reported.add(name)
    for name, file in weight_map.items():
        if name not in shards.tensors and name not in shards.reported:
            shards.problems.append(f"{file}: {name}: listed in {INDEX_NAME}, not in the file")
            shards.reported.add(name)


def compare_with_table(shards: Shards, specs: dict[str, TensorSpec]) -> list[str]:
    """Problems between what is stored and what the config asks for: missing, of another shape or dtype, stray."""
    problems = []
    for name, spec in specs.items():
        if name not in shards.tensors:
            if name not in shards.reported:
                problems.append(f"{name}: missing")
            continue
        path, entry = shards.tensors[name]
        if entry.shape != spec.shape:
            problems.append(f"{path.name}: {name}: shape {list(entry.shape)}, expected {list(spec.shape)}")
        if entry.dtype not in spec.dtypes:
            problems.append(f"{path.name}: {name}: dtype {entry.dtype}, expected {' or '.join(spec.dtypes)}")
    problems += [
        f"{path.name}: {name}: not a tensor of this model"
        for name, (path, _) in shards.tensors.items()
        if name not in specs and name not in shards.reported
    ]
    return problems
