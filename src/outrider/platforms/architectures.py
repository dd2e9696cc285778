"""GPU architectures, by the string that compilers use; never by a product's name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache

import torch


class Fp8Dialect(Enum):
    """Which numbers the 256 bytes of E4M3 are. The same byte is half as large in FNUZ as in OCP."""

    OCP = "e4m3fn"
    FNUZ = "e4m3fnuz"


@dataclass(frozen=True)
class Architecture:
    """What kernels need to know about a GPU. `lds_bytes`: shared memory that one program may use."""

    name: str
    backend: str  # of the compiler: "hip" or "cuda"
    warp_size: int
    lds_bytes: int
    fp8: Fp8Dialect

    @property
    def compile_target(self) -> str | int:
        """The architecture as Triton's GPUTarget names it: "gfx942", or 90 for sm_90."""
        return int(self.name.removeprefix("sm_")) if self.backend == "cuda" else self.name


ARCHITECTURES = {
    item.name: item
    for item in (
        Architecture("gfx942", "hip", 64, 64 << 10, Fp8Dialect.FNUZ),
        Architecture("gfx950", "hip", 64, 160 << 10, Fp8Dialect.OCP),
        Architecture("sm_90", "cuda", 32, 227 << 10, Fp8Dialect.OCP),
    )
}


def architecture(name: str) -> Architecture:
    """By name; features after a colon ("gfx942:sramecc+:xnack-") are ignored. ValueError for one that is not known."""
    found = ARCHITECTURES.get(name.partition(":")[0])
    if found is None:
        raise ValueError(f"no kernels for GPU architecture {name!r}; there are some for {', '.join(ARCHITECTURES)}")
    return found


@cache
def gpu_architecture(device: torch.device) -> Architecture:
    """Architecture of a CUDA or ROCm device (torch calls both "cuda"). ValueError for one without kernels."""
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip is not None:
        return architecture(properties.gcnArchName)
    return architecture(f"sm_{properties.major}{properties.minor}")
