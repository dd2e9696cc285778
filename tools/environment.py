"""Creates the virtual environment that the Makefile uses, with a PyTorch that fits this machine.

    python3 tools/environment.py .venv

If this Python can import a supported torch (a ROCm or CUDA build, say), the environment sees it and none is installed.
Otherwise torch is installed with pip, which follows its own configuration. A torch that is already in the environment
is never replaced. Needs nothing but the standard library, and any Python from 3.7 on can say what is wrong.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ((3, 11), (3, 12))
TORCH = "torch==2.13.0"
REMEDY = "Install PyTorch for your platform first (pytorch.org), or remove the environment (make clean) and try again."


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: environment.py FOLDER")
    if sys.version_info[:2] not in PYTHONS:
        own = ".".join(map(str, sys.version_info[:2]))
        sys.exit(f"Outrider needs Python 3.11 or 3.12, {sys.executable} is {own}: make PYTHON=python3.12 ...")
    folder = Path(sys.argv[1])
    python = folder / "bin" / "python"
    if not usable(python):
        create(folder, python)
    found = torch_version(str(python))
    if found is None:
        say(f"installing {TORCH} into {folder}")
        subprocess.run([str(python), "-m", "pip", "install", "--disable-pip-version-check", TORCH], check=True)
    elif supported(found):
        say(f"{folder} uses torch {found}")
    else:
        sys.exit(f"{folder} holds torch {found}, which is not {supported_text()}. {REMEDY}")


def create(folder: Path, python: Path) -> None:
    """A fresh environment; it sees this Python's packages only if there is a supported torch among them."""
    found = torch_version(sys.executable)
    shared = found is not None and supported(found)
    if found is not None and not shared:
        say(f"torch {found} of {sys.executable} is not {supported_text()}; it is left alone and not used")
    options = ["--system-site-packages"] if shared else []
    subprocess.run([sys.executable, "-m", "venv", "--clear", *options, str(folder)], check=True)
    if shared and sys.prefix != sys.base_prefix:
        # this Python is itself a virtual environment, whose packages venv does not pass on
        query = "import sysconfig; print(sysconfig.get_path('purelib'))"
        target = Path(
            subprocess.run([str(python), "-c", query], check=True, capture_output=True, text=True).stdout.strip()
        )
        lines = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
        (target / "parent_environment.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")


def usable(python: Path) -> bool:
    """Whether there is an environment with a working pip."""
    if not python.exists():
        return False
    return subprocess.run([str(python), "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0


def torch_version(python: str) -> str | None:
    """Version of the torch that an interpreter imports, e.g. "2.13.0+rocm7.0"; None if it cannot."""
    done = subprocess.run(
        [python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip().rpartition("\n")[2] if done.returncode == 0 else None


def supported_range() -> tuple[tuple[int, int], tuple[int, int]]:
    """(first, first no longer) supported torch version, as pyproject.toml says."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'"torch>=(\d+)\.(\d+),<(\d+)\.(\d+)"', text)
    assert found is not None, "pyproject.toml names no range of torch versions"
    low, low_minor, high, high_minor = map(int, found.groups())
    return (low, low_minor), (high, high_minor)


def supported_text() -> str:
    (low, low_minor), (high, high_minor) = supported_range()
    return f">= {low}.{low_minor} and < {high}.{high_minor}"


def supported(version: str) -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    low, high = supported_range()
    return numbers is not None and low <= (int(numbers[1]), int(numbers[2])) < high


def say(text: str) -> None:
    print(f"environment: {text}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"environment: {' '.join(error.cmd)} failed")
