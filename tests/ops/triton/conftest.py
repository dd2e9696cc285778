"""Where kernels run: Triton's interpreter on the CPU, or (marked gpu) compiled on the GPU. Fresh memory is poison."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor


@pytest.fixture(params=["interpreter", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """The same cases for both. A process has one of them: Triton decides when a kernel is defined."""
    if request.param == "cuda":
        if not torch.cuda.is_available():
            pytest.skip("no GPU")
        return "cuda"
    if torch.cuda.is_available():
        pytest.skip("kernels of this process are compiled")
    return "cpu"


@pytest.fixture(autouse=True)
def _fresh_memory_is_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a kernel does not write, of its output or scratch, shows: NaN, or a number that is no index."""

    def poisoned(allocate: Any) -> Any:
        def call(*size: Any, **options: Any) -> Tensor:
            x: Tensor = allocate(*size, **options)
            return x.fill_(float("nan") if x.is_floating_point() else 113)

        return call

    for name in ("empty", "empty_like"):
        monkeypatch.setattr(torch, name, poisoned(getattr(torch, name)))
