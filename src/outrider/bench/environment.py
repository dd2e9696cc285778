"""Where and from what a result was made."""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch


def environment_report() -> dict[str, Any]:
    """The machine and the versions that a time belongs to."""
    return {
        "machine": {
            "processor": _processor(),
            "system": platform.system(),
            "threads": torch.get_num_threads(),
            "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        },
        "versions": {
            "outrider": version("outrider"),
            "torch": torch.__version__,
            "python": ".".join(map(str, sys.version_info[:3])),
        },
    }


def result_header() -> dict[str, Any]:
    """What stands in every result file: command, date (UTC), commit, machine, versions."""
    return {
        "command": shlex.join(["outrider", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": source_commit(),
        **environment_report(),
    }


def source_commit(folder: Path = Path(__file__).parent) -> str | None:
    """Commit of the checkout that `folder` lies in, "+changes" behind it if files differ; None outside of one."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        # a repository around an installed package says nothing about the package
        if not _git(folder, "ls-files", "--", "."):
            return None
        return commit + ("+changes" if _git(folder, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
