"""Reads a checkpoint in the official format: everything is checked before any data is read, then streamed.

checkpoint = Checkpoint.open("path/or/hub-id")
checkpoint.require_drafter("mtp")                       # refuses with words when there is none
for name, weight in checkpoint.iter_weights():          # float32, dequantised, shard by shard
    ...
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import RawIOBase
from itertools import groupby
from pathlib import Path

import torch
from torch import Tensor

from outrider.checkpoint.codec import TORCH_DTYPES, decode_weight, routing_table_problem, scale_problem
from outrider.checkpoint.container import Entry, read_bytes
from outrider.checkpoint.errors import CheckpointError
from outrider.checkpoint.locate import locate
from outrider.checkpoint.names import (
    Drafter,
    Part,
    TensorSpec,
    describe_drafter,
    detect_drafter,
    expected_tensors,
)
from outrider.checkpoint.shards import REMEDY, collect_shards, compare_with_table
from outrider.checkpoint.staging import Staging
from outrider.config import ModelConfig, load_model_config

log = logging.getLogger("outrider")

Progress = Callable[[int, int], None]  # (bytes done, bytes in all)


class Checkpoint:
    """A validated checkpoint on disk; no tensor stays in memory.

    config: ModelConfig. folder: where it lies. drafter: "mtp", "dspark" or "none", decided by the tensors.
    """

    def __init__(
        self,
        folder: Path,
        config: ModelConfig,
        drafter: Drafter,
        specs: dict[str, TensorSpec],
        stored: dict[str, tuple[Path, Entry]],
    ) -> None:
        self.folder = folder
        self.config = config
        self.drafter = drafter
        self._specs = specs
        self._stored = stored

    @classmethod
    def open(cls, path_or_id: str | Path) -> Checkpoint:
        """Opens a local folder or a hub id and checks every header.

        Raises ConfigError for config.json, CheckpointError for the weights; the latter collects all problems: missing,
        duplicated, stray, mis-shaped or mis-typed tensors, missing or cut files, an index that disagrees.
        """
        folder = locate(path_or_id)
        config = load_model_config(folder / "config.json")
        shards = collect_shards(folder)
        drafter = detect_drafter(shards.names)
        specs = expected_tensors(config, drafter)
        problems = shards.problems + compare_with_table(shards, specs)
        if problems:
            raise CheckpointError(folder, problems, REMEDY)
        for name, spec in specs.items():
            specs[name] = spec._replace(dtypes=(shards.tensors[name][1].dtype,))
        checkpoint = cls(folder, config, drafter, specs, shards.tensors)
        if drafter == "dspark":
            log.warning(
                "%s: mtp.* holds another drafter (%s), which is not supported: speculation is off",
                folder,
                checkpoint.drafter_description,
            )
        return checkpoint

    @property
    def drafter_description(self) -> str:
        """The drafter in words: "MTP, 1 layer", "DSpark, 3 stages, block 5" or "none"."""
        return describe_drafter(self.drafter, self.config)

    def require_drafter(self, method: str) -> None:
        """Raises CheckpointError unless this checkpoint can draft with `method` ("mtp")."""
        if method != "mtp":
            raise CheckpointError(self.folder, f"method {method!r} is not supported", 'The only one is "mtp".')
        if self.drafter == "mtp":
            return
        if self.drafter == "dspark":
            raise CheckpointError(
                self.folder,
                f"method {method!r} was asked for, but mtp.* holds {self.drafter_description}",
                "Run it without speculation, or take the release that has the MTP layer.",
            )
        raise CheckpointError(
            self.folder,
            f"method {method!r} was asked for, but the checkpoint has no mtp.* tensors (some tools drop them)",
            "Run it without speculation, or take the original checkpoint.",
        )

    def tensors(self) -> Mapping[str, TensorSpec]:
        """Every stored tensor, scales included, in the order of the model; `dtype` is the one that it is stored in."""
        return self._specs

    def stored_bytes(self, name: str) -> int:
        return self._stored[name][1].end - self._stored[name][1].begin

    def stored_names(self) -> list[str]:
        """Every tensor that can be loaded as stored, scales included; nothing of a drafter that is not supported."""
        return [name for name, spec in self._specs.items() if spec.part is not Part.DSPARK]

    def weight_names(self) -> list[str]:
        """Logical names that can be loaded: no scales, and nothing of a drafter that is not supported."""
        return [name for name, spec in self._specs.items() if not spec.is_scale and spec.part is not Part.DSPARK]

    def read(self, name: str) -> Tensor:
        """One tensor as stored: FP8 as float8_e4m3fn, FP4 pairs and E8M0 scales as uint8 bytes.

        Raises CheckpointError for NaN scales and for files that changed since they were opened; KeyError for a name
        that is not in the checkpoint.
        """
        path, entry = self._stored[name]
        tensor = read_bytes(path, name, entry).view(TORCH_DTYPES[entry.dtype]).view(entry.shape)
        if self._specs[name].is_scale and (problem := scale_problem(tensor)):
            raise CheckpointError(self.folder, self._said(name, problem), REMEDY)
        return tensor

    def load_to_device(
        self,
        device: torch.device,
        names: Iterable[str] | None = None,
        progress: Progress | None = None,
    ) -> dict[str, Tensor]:
        """Official name -> tensor as stored (dtypes of `read`), on `device`; default: `stored_names()`.

        File by file, each from its start to its end, through the host memory of a `Staging`: no tensor, let alone the
        checkpoint, lies on the host as a whole. Raises CheckpointError for what `read` and `load_weight` refuse: NaN
        in scales or values, expert ids out of range, files that changed.
        """
        chosen = self.stored_names() if names is None else list(names)
        chosen.sort(key=lambda name: (self._stored[name][0], self._stored[name][1].begin))
        total, done = sum(map(self.stored_bytes, chosen)), 0
        staging, found, broken = Staging(device), {}, {}
        for path, own in groupby(chosen, key=lambda name: self._stored[name][0]):
            with path.open("rb", buffering=0) as file:
                for name in own:
                    found[name] = self._fill(name, staging, file)
                    flag = self._broken(name, found[name])
                    if flag is not None:
                        broken[name] = flag
                    done += self.stored_bytes(name)
                    if progress is not None:
                        progress(done, total)
        if broken:  # one wait for the device, and not one a tensor
            flags = torch.stack(list(broken.values())).tolist()
            problems = [self._said(name, "holds NaN") for name, bad in zip(broken, flags, strict=True) if bad]
            if problems:
                raise CheckpointError(self.folder, problems, REMEDY)
        return found

    def _fill(self, name: str, staging: Staging, file: RawIOBase) -> Tensor:
        path, entry = self._stored[name]
        dtype = TORCH_DTYPES[entry.dtype]
        data = torch.empty(entry.end - entry.begin, dtype=torch.uint8, device=staging.device)
        try:
            for piece in staging.fill(data, file, entry.begin):
                if self._specs[name].is_scale and (problem := scale_problem(piece.view(dtype))):
                    raise CheckpointError(self.folder, self._said(name, problem), REMEDY)
        except EOFError:
            raise CheckpointError(path.name, f"{name}: the file ends early", "Download this file again.") from None
        return data.view(dtype).view(entry.shape)

    def _broken(self, name: str, tensor: Tensor) -> Tensor | None:
        """Whether a tensor holds NaN, on its device; None where it cannot."""
        if tensor.dtype == torch.float8_e4m3fn:
            return (tensor.view(torch.uint8) & 0x7F == 0x7F).any()
        if tensor.is_floating_point():
            return tensor.isnan().any()
        if tensor.dtype != torch.uint8 and (problem := routing_table_problem(tensor, self.config.n_routed_experts)):
            raise CheckpointError(self.folder, self._said(name, problem), REMEDY)
        return None

    def _said(self, name: str, problem: str) -> str:
        return f"{self._stored[name][0].name}: {name}: {problem}"

    def load_weight(self, name: str) -> Tensor:
        """One logical tensor as float32, dequantised (`tid2eid`: int64).

        Raises CheckpointError for NaN in scales or values and for expert ids out of range; KeyError for other names.
        """
        spec = self._specs[name]
        scale = self.read(spec.scale) if spec.scale else None
        weight = decode_weight(spec, self.read(name), scale)
        problem = None
        if not weight.is_floating_point():
            problem = routing_table_problem(weight, self.config.n_routed_experts)
        elif bool(weight.isnan().any()):
            problem = "holds NaN"
        if problem:
            raise CheckpointError(self.folder, self._said(name, problem), REMEDY)
        return weight

    def iter_weights(
        self, names: Iterable[str] | None = None, progress: Progress | None = None
    ) -> Iterator[tuple[str, Tensor]]:
        """Yields (name, `load_weight(name)`) in the order of the files, one at a time; default: `weight_names()`."""
        chosen = self.weight_names() if names is None else list(names)
        chosen.sort(key=lambda name: (self._stored[name][0], self._stored[name][1].begin))
        sizes = {name: self._stored_size(name) for name in chosen}
        total, done = sum(sizes.values()), 0
        for name in chosen:
            yield name, self.load_weight(name)
            done += sizes[name]
            if progress is not None:
                progress(done, total)

    def _stored_size(self, name: str) -> int:
        scale = self._specs[name].scale
        return self.stored_bytes(name) + (self.stored_bytes(scale) if scale else 0)
