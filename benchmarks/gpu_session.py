"""The most valuable checks and figures that fit into a few minutes of a GPU, most valuable first.

    python benchmarks/gpu_session.py --seconds 200 [--skip tests tiles dense kernels] [--jobs 6]

Tests of kernels that were changed last come first, then candidate tiles of attention, then the dense ops, then the
benchmark of every kernel. Whatever compiles long is compiled in processes side by side while the tests run, into
Triton's cache on disk; nothing is timed before they have ended. Lines are printed as they come. A step starts with
the time that is left and is ended when that is over.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTEST = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "gpu", "--tb=short", "-p", "no:cacheprovider"]
ATTENTION = ["tests/ops/triton/test_attention.py", "tests/ops/triton/test_compressor.py"]

WARM = [
    [sys.executable, "benchmarks/attention_tiles.py", "--compile-only", "--only", "bf16"],
    [sys.executable, "benchmarks/attention_tiles.py", "--compile-only", "--only", "fp8"],
    [sys.executable, "benchmarks/dense.py", "--repeats", "1", "--tokens", "1"],
    [sys.executable, "benchmarks/dense.py", "--repeats", "1", "--tokens", "64", "4096"],
]
STEPS = {
    "tests": [*PYTEST, *ATTENTION],
    "tiles": [sys.executable, "benchmarks/attention_tiles.py"],
    "dense": [sys.executable, "benchmarks/dense.py"],
    "kernels": [sys.executable, "benchmarks/kernels.py", "--repeats", "8", "--only", "prefill", "decode", "compress"],
}


def environment() -> dict[str, str]:
    paths = (str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", ""))
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path), "PYTHONUNBUFFERED": "1"}


def run_for(command: list[str], seconds: float) -> str:
    """Runs it, its lines going straight out, for at most so long -> how it ended."""
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment(), timeout=max(seconds, 1.0), check=False)
    except subprocess.TimeoutExpired:
        return "out of time"
    return "done" if done.returncode == 0 else f"exit status {done.returncode}"


def start_warming(jobs: int) -> list[subprocess.Popen[bytes]]:
    quiet = subprocess.DEVNULL
    return [
        subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=quiet, stderr=quiet) for command in WARM[:jobs]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--skip", nargs="+", choices=STEPS, default=[])
    parser.add_argument("--jobs", type=int, default=len(WARM), help="processes that compile side by side, at most")
    a = parser.parse_args()
    begin = time.monotonic()

    def left() -> float:
        return float(a.seconds - (time.monotonic() - begin))

    warming = start_warming(a.jobs)
    try:
        for name, command in STEPS.items():
            if name in a.skip:
                continue
            if left() < 2:
                print(f"== {name}: no time left", flush=True)
                continue
            if name != "tests":
                for process in warming:
                    try:
                        process.wait(max(left() * 0.5, 1.0))
                    except subprocess.TimeoutExpired:
                        process.kill()
            print(f"== {name}, {left():.0f} s left", flush=True)
            share = 0.4 if name == "tests" else 1.0
            print(f"== {name}: {run_for(command, left() * share)}, {left():.0f} s left", flush=True)
    finally:
        for process in warming:
            if process.poll() is None:
                process.kill()


if __name__ == "__main__":
    main()
