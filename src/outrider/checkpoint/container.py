"""The safetensors container, read and written byte by byte.

    8 bytes  little-endian length of the header
    header   JSON: name -> {"dtype", "shape", "data_offsets": [begin, end]} relative to the data, "__metadata__"
    data     the tensors, without gaps

Done here rather than through a library for two reasons: a damaged file must be reported with tensor names and byte
counts, and E8M0 scales must travel as raw bytes, whatever the installed torch knows about that dtype.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor

from outrider.checkpoint.errors import CheckpointError

ITEM_BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"), 1),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 2),
    **dict.fromkeys(("I32", "U32", "F32"), 4),
    **dict.fromkeys(("I64", "U64", "F64"), 8),
}
HEADER_LIMIT = 100_000_000  # the format's own limit; keeps a lying length from filling the memory


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor in a file: `begin` and `end` are absolute byte offsets."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(slots=True)
class Header:
    """What a file says it holds, and what is wrong with it; `broken` names tensors whose entry is unusable."""

    entries: dict[str, Entry] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)


def read_header(path: Path) -> Header:
    """Reads and checks a file's header without its data.

    Problems: bad entries, names listed twice, gaps, overlaps, a file shorter or longer than its header says. Raises
    CheckpointError when no header can be made out at all.
    """
    with path.open("rb") as file:
        size = path.stat().st_size
        head = file.read(8)
        if len(head) < 8:
            raise CheckpointError(path.name, f"{_bytes(size)} long, too short for a safetensors file")
        length = struct.unpack("<Q", head)[0]
        if length > min(size - 8, HEADER_LIMIT):
            raise CheckpointError(
                path.name,
                f"its header claims {_bytes(length)}, the file has {_bytes(size)}: cut short, or not safetensors",
            )
        text = file.read(length)
    header = Header()
    start = 8 + length
    for name, item in _parse(path.name, text, header.problems).items():
        if name == "__metadata__":
            continue
        entry = _entry(item, start)
        if isinstance(entry, Entry):
            header.entries[name] = entry
        else:
            header.problems.append(f"{path.name}: {name}: {entry}")
            header.broken.add(name)
    if not header.broken:  # offsets that are not known cannot tile anything
        header.problems += _check_extent(path.name, header.entries, start, size)
    return header


def _parse(file: str, text: bytes, problems: list[str]) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen = dict(pairs)
        if len(seen) != len(pairs):
            names = [name for name, _ in pairs]
            problems.extend(f"{file}: {name}: listed twice in the header" for name in seen if names.count(name) > 1)
        return seen

    try:
        raw = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(file, f"its header is not valid JSON ({error}): damaged, or not safetensors") from None
    if not isinstance(raw, dict):
        raise CheckpointError(file, "its header is not a JSON object: damaged, or not safetensors")
    return raw


def _entry(item: Any, start: int) -> Entry | str:
    """Validates one header entry; a string says what is wrong with it."""
    if not isinstance(item, dict):
        return "malformed header entry"
    dtype, shape, offsets = item.get("dtype"), item.get("shape"), item.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        return f"unknown dtype {dtype!r}"
    if not _counts(shape) or not _counts(offsets) or len(offsets) != 2:
        return "malformed shape or data_offsets in the header"
    begin, end = offsets
    needed = math.prod(shape) * ITEM_BYTES[dtype]
    if end - begin != needed:
        return f"{dtype} {list(shape)} takes {needed} bytes, the header gives it {end - begin}"
    return Entry(dtype, tuple(shape), start + begin, start + end)


def _counts(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)


def _check_extent(file: str, entries: dict[str, Entry], start: int, size: int) -> list[str]:
    """The tensors must tile the data section exactly."""
    problems = []
    at = start
    for name, entry in sorted(entries.items(), key=lambda pair: (pair[1].begin, pair[1].end)):
        if entry.begin != at:
            what = "overlaps the tensor before it" if entry.begin < at else "leaves a gap before it"
            problems.append(f"{file}: {name}: {what} (starts at byte {entry.begin}, expected {at})")
        at = max(at, entry.end)
    cut = [name for name, entry in entries.items() if entry.end > size]
    if cut:
        others = f" and {len(cut) - 1} more tensors are" if len(cut) > 1 else " is"
        problems.append(f"{file}: cut short by {_bytes(at - size)}; {cut[0]}{others} incomplete")
    elif at < size:
        problems.append(f"{file}: {_bytes(size - at)} too many after the last tensor")
    return problems


def _bytes(count: int) -> str:
    return f"{count:,} byte{'s' if count != 1 else ''}"


def read_bytes(path: Path, name: str, entry: Entry) -> Tensor:
    """The raw bytes of one tensor: uint8 [end - begin]. Raises CheckpointError when the file ends early."""
    data = torch.empty(entry.end - entry.begin, dtype=torch.uint8)
    view, at = data.numpy().data, 0
    with path.open("rb", buffering=0) as file:
        file.seek(entry.begin)
        while at < len(view):  # one raw read may return less than asked (2 GiB on Linux)
            count = file.readinto(view[at:])
            if not count:
                raise CheckpointError(path.name, f"{name}: the file ends early", "Download this file again.")
            at += count
    return data


def layout(tensors: Sequence[tuple[str, str, tuple[int, ...]]]) -> tuple[bytes, dict[str, int]]:
    """Plans a file for (name, dtype, shape) triples: its head (length and header) and each tensor's absolute offset.

    Wider dtypes come first and the head is a multiple of 8 bytes, so every tensor is aligned in the file: readers that
    map it view the data in place.
    """
    ordered = sorted(tensors, key=lambda item: -ITEM_BYTES[item[1]])
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    begins: dict[str, int] = {}
    at = 0
    for name, dtype, shape in ordered:
        end = at + math.prod(shape) * ITEM_BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        begins[name], at = at, end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    start = 8 + len(text)
    return struct.pack("<Q", len(text)) + text, {name: start + begin for name, begin in begins.items()}
