"""The short launch gives the driver what Triton's own launch gives it, and compiles once a variant."""

from __future__ import annotations

import os
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from outrider.ops.triton.launching import cdiv, next_power_of_2

# A process of its own, since kernels of this one are interpreted; a driver that writes down what it is given.
RECORD = """
import torch, triton, triton.language as tl
from types import SimpleNamespace
from triton.backends.compiler import GPUTarget
from outrider.ops.triton import launching

@triton.jit(do_not_specialize=["free"])
def kernel(x, y, count, free, scale, BLOCK: tl.constexpr, MODE: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < count) * scale, mask=i < free)

launches, loaded = [], []

class Launcher:
    def __init__(self, source, metadata): self.warps = metadata.num_warps
    def __call__(self, x, y, z, stream, function, packed, metadata, enter, leave, *arguments):
        launches.append((self.warps, x, y, z, stream, function, packed, arguments))

def load_binary(name, binary, shared, device):
    loaded.append(name)
    return len(loaded), len(loaded), 32, 0, 1024

class Driver:
    launcher_cls = Launcher
    utils = SimpleNamespace(load_binary=load_binary, get_device_properties=lambda d: {"max_shared_mem": 1 << 17})
    get_current_device = staticmethod(lambda: 0)
    get_current_stream = staticmethod(lambda device: 7)
    get_current_target = staticmethod(lambda: GPUTarget("cuda", 90, 32))

triton.runtime.driver.set_active(Driver())
x = torch.zeros(64)
cases = [
    ((2,), (x, x, 16, 5, 0.5), dict(BLOCK=16, MODE="a", num_warps=1)),
    ((2, 3), (x, x, 16, 6, 1.5), dict(BLOCK=16, MODE="a", num_warps=1)),      # the same variant
    ((2, 3, 4), (x[1:], x, 16, 6, 1.5), dict(BLOCK=16, MODE="a", num_warps=1)),  # an address that is not aligned
    ((2,), (x, x, 17, 6, 1.5), dict(BLOCK=16, MODE="a", num_warps=1)),
    ((2,), (x, x, 1, 6, 1.5), dict(BLOCK=16, MODE="a", num_warps=1)),
    ((2,), (x, x, 16, 6, 1.5), dict(BLOCK=16, MODE="b", num_warps=1)),
    ((2,), (x, x, 16, 6, 1.5), dict(BLOCK=16, MODE="a", num_warps=2)),
    ((2,), (x.bfloat16(), x, 16, 6, 1.5), dict(BLOCK=16, MODE="a", num_warps=1)),
]
for grid, arguments, constants in cases:
    launching.launch(kernel, grid, *arguments, **constants)
for grid, arguments, constants in cases:
    launching.launch(kernel, grid, *arguments, **constants)
assert len(loaded) == 7, loaded
own = launches[len(cases):]
launches.clear()
for grid, arguments, constants in cases:
    kernel[grid](*arguments, **constants, **launching.OPTIONS)
assert len(loaded) == 7, loaded
same = lambda a, b: a is b or (a == b and type(a) is type(b))
for mine, theirs in zip(own, launches, strict=True):
    assert mine[:-1] == theirs[:-1], (mine, theirs)
    assert len(mine[-1]) == len(theirs[-1]) == 7 and all(map(same, mine[-1], theirs[-1]))

seen = []
triton.knobs.runtime.launch_enter_hook.add(lambda metadata: seen.append(metadata))
paths = []
kernel.run, run = lambda *a, **k: paths.append("triton") or run(*a, **k), kernel.run
launching.launch(kernel, cases[0][0], *cases[0][1], **cases[0][2])
assert paths == ["triton"]  # a profiler's hooks are Triton's to call
"""


def test_the_driver_is_given_what_triton_gives_it() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-c", _with_source(RECORD)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def _with_source(code: str) -> str:
    """Triton reads a kernel's source: the code must lie in a file."""
    return (
        "import pathlib, runpy, tempfile\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    path = pathlib.Path(folder) / 'record.py'\n"
        f"    path.write_text({code!r})\n"
        "    runpy.run_path(str(path), run_name='record')\n"
    )


@given(a=st.integers(0, 1 << 40), b=st.integers(1, 1 << 20))
def test_rounding_up(a: int, b: int) -> None:
    assert (cdiv(a, b) - 1) * b < a <= cdiv(a, b) * b


@given(n=st.integers(0, 1 << 40))
def test_next_power_of_two(n: int) -> None:
    found = next_power_of_2(n)
    assert found & (found - 1) == 0 and found >= n and (found == 1 or found < 2 * n)
