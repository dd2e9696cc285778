"""`outrider doctor`: what this machine is, what the engine would use of it, and whether that works."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
import typer

from outrider import ops
from outrider.bench.environment import environment_report
from outrider.cli.self_test import Check, run_checks
from outrider.platforms.architectures import Fp8Dialect, gpu_architecture
from outrider.platforms.memory import available_memory

PACKAGES = ("outrider", "torch", "triton", "numba", "numpy", "safetensors", "tokenizers", "transformers")


@torch.no_grad()
def doctor(self_test: bool, json_output: bool) -> None:
    """Exit code 1 if a check fails."""
    found = {
        "platform": platform_name(),
        "machine": environment_report()["machine"],
        "gpus": [_gpu(index) for index in range(torch.cuda.device_count())],
        "available_memory": available_memory(),
        "packages": {name: _version(name) for name in PACKAGES},
        "backends": {str(device): ops.backends(device) for device in _devices()},
    }
    if not json_output:
        _show(found)
    checks: list[Check] = []
    for check in run_checks() if self_test else ():
        checks.append(check)
        if not json_output:
            mark = {True: "ok", False: "FAILED", None: "not run"}[check.ok]
            print(f"{mark + ':':8} {check.name}: {check.detail}", flush=True)
    failed = any(check.ok is False for check in checks)
    if json_output:
        print(json.dumps({**found, "checks": [asdict(check) for check in checks], "ok": not failed}))
    if failed:
        raise typer.Exit(1)


def _devices() -> list[torch.device]:
    """The kinds of device that ops can run on here."""
    return [torch.device(kind) for kind in ("cpu", *(("cuda",) if torch.cuda.is_available() else ()))]


def platform_name() -> str:
    """What torch was built for and finds: rocm, cuda or cpu."""
    if not torch.cuda.is_available():
        return "cpu"
    return "cuda" if torch.version.hip is None else "rocm"


def _gpu(index: int) -> dict[str, Any]:
    free, total = torch.cuda.mem_get_info(index)
    found: dict[str, Any] = {"name": torch.cuda.get_device_name(index), "free_memory": free, "memory": total}
    try:
        target = gpu_architecture(torch.device("cuda", index))
    except ValueError as error:
        return {**found, "architecture": None, "fp8": None, "problem": str(error)}
    return {**found, "architecture": target.name, "fp8": target.fp8.value, "problem": None}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _show(found: dict[str, Any]) -> None:
    machine, memory = found["machine"], found["available_memory"]
    print(f"platform  {found['platform']}: {machine['processor']}, {machine['threads']} threads")
    for gpu in found["gpus"]:
        what = gpu["problem"] or f"{gpu['architecture']}, FP8 is {gpu['fp8']}"
        print(f"GPU       {gpu['name']}: {what}; {_gib(gpu['free_memory'])} of {_gib(gpu['memory'])} free")
    if not found["gpus"]:
        print(f"FP8       {Fp8Dialect.OCP.value}, as checkpoints store it; on the CPU rounded values lie in float32")
    print(f"memory    {'unknown' if memory is None else _gib(memory)} available")
    print("versions  " + ", ".join(f"{name} {number or '-'}" for name, number in found["packages"].items()))
    for device in _devices():
        print(f"ops on {device}")
        for backend, names in ops.ops_by_backend(device).items():
            print(f"  {backend:10} {' '.join(names)}")


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
