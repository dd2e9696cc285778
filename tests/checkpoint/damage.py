"""Ways to damage a checkpoint on disk, for tests: edits a file's header and data without touching anything else."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

Header = dict[str, Any]


def read_parts(path: Path) -> tuple[Header, bytes]:
    """(header, data) of a safetensors file."""
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def write_parts(path: Path, header: Header, data: bytes) -> None:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def edit_header(path: Path, edit: Callable[[Header], Any]) -> None:
    header, data = read_parts(path)
    edit(header)
    write_parts(path, header, data)


def add_tensor(path: Path, name: str, dtype: str, shape: list[int], content: bytes) -> None:
    header, data = read_parts(path)
    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
    write_parts(path, header, data + content)


def remove_tensor(path: Path, name: str) -> None:
    """Removes a tensor and closes the gap, as a tool that drops it would."""
    header, data = read_parts(path)
    begin, end = header.pop(name)["data_offsets"]
    for key, entry in header.items():
        if key != "__metadata__" and entry["data_offsets"][0] >= end:
            entry["data_offsets"] = [offset - (end - begin) for offset in entry["data_offsets"]]
    write_parts(path, header, data[:begin] + data[end:])


def poke(path: Path, name: str, content: bytes, at: int = 0) -> None:
    """Overwrites bytes of one tensor."""
    header, data = read_parts(path)
    begin = header[name]["data_offsets"][0] + at
    write_parts(path, header, data[:begin] + content + data[begin + len(content) :])


def edit_index(folder: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    edit(index)
    path.write_text(json.dumps(index))
