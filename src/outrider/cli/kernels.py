"""`outrider kernels --arch gfx942`: what the GPU kernels cost on an architecture, compiled here, without a GPU."""

from __future__ import annotations

import os

import typer

from outrider.platforms.architectures import Architecture, architecture

_ROW = "{:40} {:>5} {:>9} {:>7} {:>9} {:>7} {:>10} {:>6}  {}"


def kernels(arch: str, every: bool) -> None:
    """Prints a line a kernel; exit code 1 if one is over its budget."""
    target = _known(arch)
    os.environ.pop("TRITON_INTERPRET", None)  # read when kernels are defined, which is below
    try:
        import triton
    except ImportError:
        raise typer.BadParameter("needs Triton, which is not installed: pip install 'outrider[gpu]'") from None
    from outrider.ops.triton.ahead_of_time import compile_all, over_budget

    print(f"{target.name}, compiled by Triton {triton.__version__}; {target.lds_bytes} bytes of LDS (shared memory)")
    print("registers and scratch of a lane, LDS of a program, programs that fit on a compute unit at a time\n")
    print(_ROW.format("kernel", "warps", "registers", "spilled", "scratch B", "LDS B", "matrix", "fit", "").rstrip())
    failed = False
    for build, cost in compile_all(target, every=every):
        problems = over_budget(build, cost, target)
        failed |= bool(problems)
        matrix = " ".join(f"{count} {kind}" for kind, count in cost.matrix.items() if count) or "-"
        numbers = (cost.num_warps, cost.registers, cost.spilled_registers, cost.scratch_bytes, cost.lds_bytes)
        print(_ROW.format(cost.label, *numbers, matrix, cost.programs, "; ".join(problems)).rstrip(), flush=True)
    if failed:
        raise typer.Exit(1)


def _known(arch: str) -> Architecture:
    try:
        return architecture(arch)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
