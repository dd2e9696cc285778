"""tools/environment.py: which torch is used, and that none is ever replaced."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tools import environment


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.10.1", False),
        ("2.11.0", True),
        ("2.13.0+cpu", True),
        ("2.14.0a0+rocm7.1.git1234", True),
        ("2.15.0", False),
        ("3.0.0", False),
        ("1.13.1", False),
        ("unknown", False),
    ],
)
def test_supported_versions(version: str, expected: bool) -> None:
    assert environment.supported(version) is expected


class Machine:
    """Records the commands that are run; `torch` maps an interpreter to the version it imports."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, torch: dict[str, str | None]) -> None:
        self.commands: list[list[str]] = []
        self.python = folder / "bin" / "python"
        monkeypatch.setattr(subprocess, "run", self._run)
        monkeypatch.setattr(environment, "torch_version", torch.get)
        monkeypatch.setattr(environment, "PYTHONS", (sys.version_info[:2],))
        monkeypatch.setattr(sys, "argv", ["environment.py", str(folder)])

    def _run(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        return subprocess.CompletedProcess(command, 0, stdout=str(self.python.parents[1]))

    def ran(self, word: str) -> bool:
        return any(word in command for command in self.commands)


def test_own_torch_is_shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = "2.12.0+rocm7.1"
    machine = Machine(monkeypatch, tmp_path, {sys.executable: found, str(tmp_path / "bin" / "python"): found})
    environment.main()
    assert machine.ran("--system-site-packages") and not machine.ran("install")


@pytest.mark.parametrize("base", [None, "2.9.0+rocm6.4"])
def test_torch_is_installed_where_none_fits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, base: str | None) -> None:
    machine = Machine(monkeypatch, tmp_path, {sys.executable: base})
    environment.main()
    assert not machine.ran("--system-site-packages")
    assert machine.commands[-1][0] == str(machine.python) and machine.ran("torch==2.13.0")


def test_torch_of_the_environment_is_never_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    machine = Machine(monkeypatch, tmp_path, {str(tmp_path / "bin" / "python"): "2.9.0+rocm6.4"})
    with pytest.raises(SystemExit, match=r"holds torch 2\.9\.0\+rocm6\.4, which is not >= 2\.11 and < 2\.15"):
        environment.main()
    assert not machine.ran("install") and not machine.ran("venv")


def test_other_pythons_are_refused_in_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = Machine(monkeypatch, tmp_path, {})
    monkeypatch.setattr(environment, "PYTHONS", ((3, 2),))
    with pytest.raises(SystemExit, match=r"needs Python 3\.11 or 3\.12"):
        environment.main()
    assert machine.commands == []
