"""Available memory: the machine's, or what a control group leaves, read from a made-up /proc and /sys."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.platforms.memory import available_memory

MEMINFO = "MemTotal:       2000 kB\nMemFree:         500 kB\nMemAvailable:   1000 kB\n"


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def group(root: Path, folder: str, limit: str, used: int, reclaimable: int = 0) -> None:
    """A version 2 group, or version 1 below sys/fs/cgroup/memory."""
    if folder.startswith("memory"):
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    else:
        names = ("memory.max", "memory.current", "inactive_file")
    base = f"sys/fs/cgroup/{folder}"
    write(
        root,
        **{
            f"{base}/{names[0]}": f"{limit}\n",
            f"{base}/{names[1]}": f"{used}\n",
            f"{base}/memory.stat": f"anon 5\n{names[2]} {reclaimable}\n",
        },
    )


def test_the_machine(tmp_path: Path) -> None:
    write(tmp_path, **{"proc/meminfo": MEMINFO})
    assert available_memory(tmp_path) == 1000 * 1024


def test_this_machine_says_something() -> None:
    found = available_memory()
    assert found is None or found > 1 << 20


@pytest.mark.parametrize(
    ("limit", "used", "reclaimable", "expected"),
    [("600000", 100_000, 50_000, 550_000), ("100", 500, 0, 0), ("max", 0, 0, 1_024_000), ("9999999", 0, 0, 1_024_000)],
)
@pytest.mark.parametrize(("line", "top"), [("0::/a/b", "."), ("4:cpu,memory:/a/b", "memory")])
def test_a_control_group(
    tmp_path: Path, line: str, top: str, limit: str, used: int, reclaimable: int, expected: int
) -> None:
    for folder in ("a/b", "a", ""):  # its own limit, one above it, or that of a container which sees no path
        root = tmp_path / (folder.replace("/", "_") or "top")
        write(root, **{"proc/meminfo": MEMINFO, "proc/self/cgroup": f"7:pids:/x\n{line}\n"})
        group(root, "/".join(filter(None, (top.strip("."), folder))) or ".", limit, used, reclaimable)
        assert available_memory(root) == expected


def test_the_tightest_group_counts(tmp_path: Path) -> None:
    write(tmp_path, **{"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/a/b\n"})
    group(tmp_path, "a/b", "900000", 0)
    group(tmp_path, "a", "700000", 0)
    assert available_memory(tmp_path) == 700_000
