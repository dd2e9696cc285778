"""Every kernel compiles for every architecture within its budget, in processes that do not interpret."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

from outrider.ops.triton import ahead_of_time
from outrider.ops.triton.ahead_of_time import Cost, compile_all, over_budget
from outrider.ops.triton.builds import builds
from outrider.platforms.architectures import ARCHITECTURES

KERNELS = {"combine", "gather_rows", "norm_rope_insert", "compress_insert"}
KERNELS |= {"gathered_attention", "paged_attention", "merge"}
KERNELS |= {"index_queries", "indexer_logits", "select_row", "count_digit", "count_chosen", "store_chosen"}
KERNELS |= {"scaled_linear", "greedy_head", "norm_rows", "quantize_rows", "mtp_rows", "swiglu_rows"}
KERNELS |= {"mix", "site", "filter", "draw", "best_part"}
KERNELS |= {"route_tokens", "route_by_table", "order_pairs", "block_map"}
KERNELS |= {"stage_inputs", "expert_gate_up", "expert_down", "combine_experts"}


def table(arch: str, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, "-m", "outrider", "kernels", "--arch", arch, *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["shipping", "all"])
def test_compiles_within_budget(arch: str, every: bool) -> None:
    done = table(arch, *(["--all"] if every else []))
    assert done.returncode == 0, done.stdout + done.stderr
    assert arch in done.stdout
    for build in builds(ARCHITECTURES[arch], every=every):
        assert build.label in done.stdout


def test_every_kernel_is_built() -> None:
    for target in ARCHITECTURES.values():
        for every in (False, True):
            assert {build.label.split()[0] for build in builds(target, every=every)} == KERNELS


def test_what_is_over_budget_is_said() -> None:
    target = ARCHITECTURES["gfx942"]
    attention = next(build for build in builds(target, every=False) if build.matrix)
    good = Cost("x", "gfx942", 4, 300, 0, 0, 65536, {"mfma": 40}, 1)
    assert over_budget(attention, good, target) == []
    bad = Cost("x", "gfx942", 4, 512, 3, 16, 65537, {"mfma": 0}, 1)
    assert over_budget(attention, bad, target) == [
        "spills 3 registers, 16 bytes of private memory",
        "needs 65537 bytes of shared memory, gfx942 has 65536",
        "uses no matrix instruction",
    ]


def test_an_interpreting_process_refuses_to_compile() -> None:
    if not ahead_of_time.INTERPRETED.value:
        pytest.skip("kernels of this process are compiled")
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET is set"):
        next(compile_all(ARCHITECTURES["gfx942"], every=False))


def test_an_unknown_architecture_is_refused() -> None:
    done = table("gfx1100")
    assert done.returncode == 2
    assert "no kernels for GPU architecture 'gfx1100'; there are some for gfx942, gfx950, sm_90" in done.stderr
