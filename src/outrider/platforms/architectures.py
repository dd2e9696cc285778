"""GPU architectures, by the string that compilers use; never by a product's name.

What ROCm and CUDA do differently is a field here, so that no other room asks which of them it runs on.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Literal

import torch

MAX_PROGRAM_LANES = 1024  # of every architecture here


class Fp8Dialect(Enum):
    """Which numbers the 256 bytes of E4M3 are. The same byte is half as large in FNUZ as in OCP."""

    OCP = "e4m3fn"
    FNUZ = "e4m3fnuz"


@dataclass(frozen=True)
class Architecture:
    """What kernels and graphs need to know about a GPU.

    warp_size: lanes of a warp; 64 (a wavefront) on AMD's CDNA. lds_bytes: shared memory that one program may use.
    capture_error_mode: of torch.cuda.graph. On ROCm other threads (RCCL's watchdog asks for events, a server pins
    memory) must not end a capture, which "global" lets them; on CUDA nothing of ours needs less than the strictest.
    """

    name: str
    backend: str  # of the compiler: "hip" or "cuda"
    warp_size: int
    lds_bytes: int
    fp8: Fp8Dialect
    capture_error_mode: Literal["global", "thread_local"]

    @property
    def max_warps(self) -> int:
        """Of a program."""
        return MAX_PROGRAM_LANES // self.warp_size

    @property
    def compile_target(self) -> str | int:
        """The architecture as Triton's GPUTarget names it: "gfx942", or 90 for sm_90."""
        return int(self.name.removeprefix("sm_")) if self.backend == "cuda" else self.name


ARCHITECTURES = {
    item.name: item
    for item in (
        Architecture("gfx942", "hip", 64, 64 << 10, Fp8Dialect.FNUZ, "thread_local"),
        Architecture("gfx950", "hip", 64, 160 << 10, Fp8Dialect.OCP, "thread_local"),
        Architecture("sm_90", "cuda", 32, 227 << 10, Fp8Dialect.OCP, "global"),
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
