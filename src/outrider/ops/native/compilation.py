"""How kernels are compiled, where the result is kept, and which processors they are for."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
from numba.core import event

_log = logging.getLogger(__name__)


def has_fused_multiply_add() -> bool:
    """Whether this processor multiplies and adds in one instruction; without it a dot product would call a library."""
    features = dict(llvm.get_host_cpu_features())
    is_x86 = "sse2" in features
    return bool(features.get("fma")) if is_x86 else True


_OPTIONS = {"nogil": True, "error_model": "numpy"}


def part(function: Callable[..., Any]) -> Any:
    """A function that only kernels call: it becomes a part of theirs, which compiles faster than one of its own."""
    return numba.njit(inline="always", no_cpython_wrapper=True, no_cfunc_wrapper=True, **_OPTIONS)(function)


def kernel(function: Callable[..., Any]) -> Any:
    """Compiles a function of integers (addresses, sizes) and floats at its first call, and keeps the result.

    It is kept beside the source, or in the user's cache where that folder is read-only, or for this process only.
    """
    return _kept(function, {**_OPTIONS, "no_cfunc_wrapper": True})


def shared_kernel(function: Callable[..., Any]) -> Any:
    """A kernel that others call as well, by its `address_of`, so that its code is compiled once."""
    return _kept(function, _OPTIONS)


def address_of(shared: Any, arguments: int) -> int:
    """Where the machine code of a shared kernel of so many int64 begins; compiled now if it has to be."""
    signature = (numba.int64,) * arguments
    shared.compile(signature)
    compiled = shared.overloads[signature]
    return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cfunc_wrapper_name))


def _kept(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    try:
        compiled = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder can be written
        return numba.njit(**options)(function)
    # numba looks at the file of the kernel alone; a change of the parts it is made of must count as well
    with suppress(AttributeError):
        kept = compiled._cache._cache_file
        kept._source_stamp = (_SOURCES, kept._source_stamp)
    return compiled


def _digest_of_sources() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


_SOURCES = _digest_of_sources()


class _Announcement(event.Listener):
    """Says once that the first use takes longer."""

    said = False

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if not self.said and function.__module__.startswith("outrider."):
            self.said = True
            _log.info("compiling the CPU kernels; the next start takes them from the cache")

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", _Announcement())
