"""What is decided by a GPU's architecture string, and never by its name."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from outrider.platforms.architectures import ARCHITECTURES, Fp8Dialect, architecture, gpu_architecture


@pytest.mark.parametrize(
    ("name", "lanes", "dialect", "lds", "mode", "target"),
    [
        ("gfx942:sramecc+:xnack-", 64, Fp8Dialect.FNUZ, 64 << 10, "thread_local", "gfx942"),
        ("gfx950", 64, Fp8Dialect.OCP, 160 << 10, "thread_local", "gfx950"),
        ("sm_90", 32, Fp8Dialect.OCP, 227 << 10, "global", 90),
    ],
)
def test_by_string(name: str, lanes: int, dialect: Fp8Dialect, lds: int, mode: str, target: str | int) -> None:
    found = architecture(name)
    assert (found.warp_size, found.fp8, found.lds_bytes) == (lanes, dialect, lds)
    assert (found.capture_error_mode, found.compile_target) == (mode, target)
    assert found.max_warps * lanes == 1024


@pytest.mark.parametrize("name", ["gfx1100", "sm_80", "gfx94", ""])
def test_an_unknown_one_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name!r}; there are some for gfx942, gfx950, sm_90"):
        architecture(name)


@pytest.fixture
def _fresh() -> Iterator[None]:
    gpu_architecture.cache_clear()
    yield
    gpu_architecture.cache_clear()


@pytest.mark.usefixtures("_fresh")
@pytest.mark.parametrize("hip", [None, "6.4"])
def test_of_a_device(hip: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """ROCm's torch reports a compute capability too, and it means nothing."""
    asked: list[object] = []

    def properties(device: object) -> SimpleNamespace:
        asked.append(device)
        return SimpleNamespace(major=9, minor=0, gcnArchName="gfx942:sramecc+:xnack-", name="a product")

    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    monkeypatch.setattr(torch.version, "hip", hip)
    device = torch.device("cuda", 0)
    assert gpu_architecture(device) is gpu_architecture(device)
    assert gpu_architecture(device) is ARCHITECTURES["sm_90" if hip is None else "gfx942"]
    assert asked == [device]  # the driver is asked once a process


def test_no_kernel_has_more_warps_than_a_program_may() -> None:
    builds = pytest.importorskip("outrider.ops.triton.builds")
    for target in ARCHITECTURES.values():
        for build in builds.builds(target, every=True):
            assert build.num_warps <= target.max_warps, build.label
