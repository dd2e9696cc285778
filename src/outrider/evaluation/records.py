"""Answers on disk, one a line, so that an evaluation that was cut goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outrider.config import ConfigError


@dataclass(frozen=True)
class Record:
    """One answer of one arm. shots: examples in its prompt. drafts: passes with any; accepted: drafts that stood."""

    arm: str
    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    shots: int
    strict: bool
    flexible: bool
    drafts: int = 0
    accepted: int = 0


class Records:
    """By (arm, index of the question). `path` None: in memory only."""

    def __init__(self, path: Path | None, settings: Mapping[str, Any]) -> None:
        """Reads what the file has, a torn last line apart. Raises ConfigError when it was made under other settings."""
        self._path = path
        self.done: dict[tuple[str, int], Record] = {}
        if path is None:
            return
        if path.is_file() and path.stat().st_size:
            self._read(path, settings)
        else:
            path.write_text(json.dumps({"settings": settings}) + "\n", encoding="utf-8")

    def add(self, record: Record) -> None:
        self.done[record.arm, record.index] = record
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(record), ensure_ascii=False) + "\n")

    def _read(self, path: Path, settings: Mapping[str, Any]) -> None:
        lines = path.read_bytes().split(b"\n")
        try:
            found = json.loads(lines[0])["settings"]
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{path}: not a file of outrider eval's records; another --records is needed") from None
        wanted = json.loads(json.dumps(settings))
        differs = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
        if differs:
            name = differs[0]
            raise ConfigError(
                f"{path}: made with {name} {found.get(name)!r}, and now it is {wanted.get(name)!r}; another --records, "
                "or the same options, are needed"
            )
        for number, line in enumerate(lines[1:-1], 2):
            self._read_line(line, f"{path}:{number}")
        if lines[-1]:  # the last write was cut
            path.write_bytes(b"\n".join(lines[:-1]) + b"\n")

    def _read_line(self, line: bytes, where: str) -> None:
        try:
            fields = json.loads(line)
            record = Record(**{**fields, "token_ids": tuple(fields["token_ids"])})
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{where}: not a record ({error}); remove the line, and it is made again") from None
        self.done[record.arm, record.index] = record
