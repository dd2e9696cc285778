"""How much memory this process may still take."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes that this process can still take: what the machine has free, or a control group above it if that is less.

    None where the system does not say. `root`: where /proc and /sys lie.
    """
    found = [size for size in (_machine(root), *_control_groups(root)) if size is not None]
    return min(found, default=None)


def _machine(root: Path) -> int | None:
    try:
        for line in (root / "proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:  # systems without /proc say how much there is, not how much is free
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _control_groups(root: Path) -> Iterator[int]:
    """What is left in each memory control group that this process is in, of version 2 or 1."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return
    base = root / "sys/fs/cgroup"
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            folder, names = base, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            folder, names = (
                base / "memory",
                ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
            )
        else:
            continue
        own = folder / path.strip("/")
        for group in (own, *own.parents):
            left = _left_in_group(group, *names)
            if left is not None:
                yield left
            if group == folder:
                break


def _left_in_group(group: Path, limit_name: str, usage_name: str, reclaimable_name: str) -> int | None:
    """None: no limit, or no such group here (a container sees its own group as the root)."""
    try:
        limit = int((group / limit_name).read_text(encoding="ascii"))
        used = int((group / usage_name).read_text(encoding="ascii"))
        statistics = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
    except (OSError, ValueError):  # version 2 writes "max" for no limit
        return None
    # pages of files that nobody uses count as used, and are given up when memory is short
    return max(limit - used + int(statistics.get(reclaimable_name, 0)), 0)
