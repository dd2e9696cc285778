"""A checkpoint that does not exist: config.json alone, and random weights of its shapes and formats.

For measuring: a model of any config runs without a download. Its texts and its drafter's acceptance mean nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

import torch
from torch import Tensor

from outrider.checkpoint.codec import TORCH_DTYPES
from outrider.checkpoint.container import Entry
from outrider.checkpoint.locate import locate_config
from outrider.checkpoint.names import TensorSpec, config_drafter, expected_tensors
from outrider.checkpoint.reader import Checkpoint, Progress
from outrider.config import load_model_config
from outrider.ops.formats import decode_e4m3

_FP4_RMS = (sum(x * x for x in (0, 0.5, 1, 1.5, 2, 3, 4, 6)) / 8) ** 0.5  # of E2M1 codes, all equally likely
_FP8_NAN = 0x7F
_E8M0_BIAS = 127


class DummyCheckpoint(Checkpoint):
    """Answers like a checkpoint in the official format; a tensor is made when it is read, the same at every read."""

    @classmethod
    def open(cls, path_or_id: str | Path) -> DummyCheckpoint:
        """A folder with config.json, that file, or a hub id (of which no weights are fetched). Raises ConfigError."""
        path, _ = locate_config(path_or_id)
        config = load_model_config(path)
        drafter = config_drafter(config)
        specs = expected_tensors(config, drafter)
        stored, at = {}, 0
        for name, spec in specs.items():
            specs[name] = spec._replace(dtypes=(spec.dtype,))
            stored[name] = (path, Entry(spec.dtype, spec.shape, at, at + spec.nbytes))
            at += spec.nbytes
        return cls(path.parent, config, drafter, specs, stored)

    def read(self, name: str) -> Tensor:
        """As of a checkpoint on disk, random. KeyError for a name that the config does not have."""
        return self._random(name, torch.device("cpu"))

    def load_to_device(
        self, device: torch.device, names: Iterable[str] | None = None, progress: Progress | None = None
    ) -> dict[str, Tensor]:
        """As of a checkpoint on disk; made where they are to lie, so that other devices have other numbers."""
        chosen = self.stored_names() if names is None else list(names)
        total, done, found = sum(map(self.stored_bytes, chosen)), 0, {}
        for name in chosen:
            found[name] = self._random(name, device)
            done += self.stored_bytes(name)
            if progress is not None:
                progress(done, total)
        return found

    def _random(self, name: str, device: torch.device) -> Tensor:
        """Weights have a root mean square of 1 / sqrt(columns): activations keep their size through any depth."""
        spec = self._specs[name]
        generator = torch.Generator(device).manual_seed(crc32(name.encode()))
        shape, dtype = spec.shape, TORCH_DTYPES[spec.dtype]
        if spec.is_scale:
            return torch.full(shape, self._scale(name, spec), dtype=dtype, device=device)
        if dtype in (torch.int64, torch.int32):  # token -> experts, distinct in a row
            first = torch.randint(self.config.n_routed_experts, (shape[0], 1), generator=generator, device=device)
            return ((first + torch.arange(shape[1], device=device)) % self.config.n_routed_experts).to(dtype)
        if dtype in (torch.uint8, torch.float8_e4m3fn):
            codes = torch.randint(256, shape, dtype=torch.uint8, generator=generator, device=device)
            if dtype is torch.uint8:
                return codes
            return codes.masked_fill_(codes & _FP8_NAN == _FP8_NAN, 0).view(dtype)
        if name.endswith(("norm.weight", "_scale")):
            return torch.ones(shape, dtype=dtype, device=device)
        values = torch.randn(shape, generator=generator, device=device, dtype=dtype)
        if name.endswith(("_base", "ape", "attn_sink", "gate.bias")):
            return values.mul_(0.1)
        return values if name == "embed.weight" else values.mul_(shape[-1] ** -0.5)

    def _scale(self, name: str, spec: TensorSpec) -> float:
        """The value that a scale is stored as: a power of two, for E8M0 its byte."""
        weight = self._specs[f"{name.removesuffix('.scale')}.weight"]
        rms = _FP4_RMS if weight.dtype == "I8" else _fp8_rms()
        exponent = -round(math.log2(rms * weight.logical_shape[1] ** 0.5))
        return _E8M0_BIAS + exponent if spec.dtype == "F8_E8M0" else 2.0**exponent


def _fp8_rms() -> float:
    """Of E4M3 codes, all equally likely, with zeros in the place of NaN."""
    values = decode_e4m3(torch.arange(256, dtype=torch.uint8))
    return float(values.nan_to_num(0.0).square().mean().sqrt())
