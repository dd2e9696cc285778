"""Compiles the kernels for an architecture without a GPU and reads what they cost from the compiled artefacts.

Not in a process whose kernels are interpreted: Triton decides that once, when a kernel is defined.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from outrider.ops.triton.arithmetic import INTERPRETED
from outrider.ops.triton.builds import Build, builds
from outrider.ops.triton.launching import OPTIONS
from outrider.platforms.architectures import Architecture

_GFX9_REGISTERS = 512  # VGPRs and AGPRs a lane, shared by the waves of a SIMD
_GFX9_MAX_WAVES = 8
_SM_REGISTERS = 65536
_SM_MAX_THREADS = 2048
_SM_MAX_PROGRAMS = 32


@dataclass(frozen=True)
class Cost:
    """What one build needs on one architecture.

    registers:       a lane, accumulator registers included
    scratch_bytes:   private memory a lane; 0 where no register is spilled
    lds_bytes:       shared memory a program
    matrix:          matrix instructions in the code, by kind ("mfma", "wgmma", "mma")
    programs:        that fit on one compute unit (multiprocessor) at a time
    """

    label: str
    architecture: str
    num_warps: int
    registers: int
    spilled_registers: int
    scratch_bytes: int
    lds_bytes: int
    matrix: dict[str, int]
    programs: int


def compile_all(target: Architecture, *, every: bool) -> Iterator[tuple[Build, Cost]]:
    """Compiles and measures one build after the other. RuntimeError if kernels are interpreted in this process."""
    if INTERPRETED.value:
        raise RuntimeError("TRITON_INTERPRET is set: kernels of this process are interpreted and cannot be compiled")
    for build in builds(target, every=every):
        yield build, _cost(build, target, _compiled(build, target))


def over_budget(build: Build, cost: Cost, target: Architecture) -> list[str]:
    """What a build has beyond its budget, or lacks, in words; empty if nothing."""
    problems = []
    if cost.scratch_bytes > build.spilled_bytes or (cost.spilled_registers and target.backend == "hip"):
        problems.append(f"spills {cost.spilled_registers} registers, {cost.scratch_bytes} bytes of private memory")
    if cost.lds_bytes > target.lds_bytes:
        problems.append(f"needs {cost.lds_bytes} bytes of shared memory, {target.name} has {target.lds_bytes}")
    if build.matrix and not any(cost.matrix.values()):
        problems.append("uses no matrix instruction")
    return problems


def _compiled(build: Build, target: Architecture) -> Any:
    source = ASTSource(build.kernel, build.signature(), constexprs=dict(build.constants), attrs=build.attributes())
    options = {"num_warps": build.num_warps, "num_stages": build.num_stages, **OPTIONS}
    return triton.compile(
        source, target=GPUTarget(target.backend, target.compile_target, target.warp_size), options=options
    )


def _cost(build: Build, target: Architecture, compiled: Any) -> Cost:
    lds = int(compiled.metadata.shared)
    if target.backend == "hip":
        assembly = compiled.asm["amdgcn"]
        registers = _field(assembly, "vgpr_count")  # the whole unified file: accumulators are counted in
        spilled = _field(assembly, "vgpr_spill_count")
        scratch = _field(assembly, "private_segment_fixed_size")
        matrix = {"mfma": len(re.findall(r"\bv_mfma_", assembly))}
        waves = 4 * min(_GFX9_MAX_WAVES, _GFX9_REGISTERS // max(8, -(-registers // 8) * 8))
        programs = min(waves // build.num_warps, target.lds_bytes // max(lds, 1))
    else:
        registers, scratch = _cuda_resources(compiled.asm["cubin"])
        spilled = scratch // 4
        ptx = compiled.asm["ptx"]
        matrix = {kind: len(re.findall(rf"\b{kind}", ptx)) for kind in (r"wgmma\.mma_async", r"mma\.sync")}
        matrix = {"wgmma": matrix[r"wgmma\.mma_async"], "mma": matrix[r"mma\.sync"]}
        threads = 32 * build.num_warps
        programs = min(
            _SM_REGISTERS // (threads * max(8, -(-registers // 8) * 8)),
            _SM_MAX_THREADS // threads,
            _SM_MAX_PROGRAMS,
            target.lds_bytes // max(lds, 1),
        )
    return Cost(build.label, target.name, build.num_warps, registers, spilled, scratch, lds, matrix, programs)


def _field(assembly: str, name: str) -> int:
    """A number of the code object's metadata."""
    found = re.search(rf"\.{name}:\s+(\d+)", assembly)
    assert found is not None, f"the compiler wrote no {name}"
    return int(found[1])


def _cuda_resources(cubin: bytes) -> tuple[int, int]:
    """(registers a thread, stack bytes a thread) as the binary says. The kernels have no arrays: a stack is spills."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([str(tool), "-res-usage", file.name], capture_output=True, text=True, check=True)
    found = re.search(r"REG:(\d+) STACK:(\d+)", done.stdout + done.stderr)
    assert found is not None, f"cuobjdump wrote no resources: {done.stdout}{done.stderr}"
    return int(found[1]), int(found[2])
