"""From a checkpoint on disk to engines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import ValidationError
from torch import Tensor

from outrider import ops
from outrider.checkpoint.dummy import DummyCheckpoint
from outrider.checkpoint.reader import Checkpoint
from outrider.config import (
    ConfigError,
    EngineConfig,
    Numerics,
    SpeculativeConfig,
    describe_validation_error,
    parse_engine_config,
)
from outrider.engine.engine import Engine
from outrider.engine.kernel_support import require_kernels
from outrider.engine.memory_plan import MemoryPlan, plan_memory
from outrider.engine.self_check import TEXT, TOKENS, check_drafter
from outrider.model.mtp import MultiTokenPredictor
from outrider.model.transformer import Transformer
from outrider.platforms.memory import available_memory
from outrider.text.tokenizer import IncrementalDetokenizer, Tokenizer

log = logging.getLogger("outrider")

Progress = Callable[[int, int], None]  # (bytes done, bytes in all)
Rewrite = Callable[[str, Tensor], Tensor]  # (logical name, float32 weight) -> another


@dataclass(frozen=True)
class LoadedModel:
    """Weights in memory. Any number of engines may share them: an engine adds its cache and nothing else."""

    transformer: Transformer
    mtp: MultiTokenPredictor | None
    plan: MemoryPlan
    options: EngineConfig  # with the sizes of the cache's pools that the plan found

    def engine(
        self,
        speculative_config: SpeculativeConfig | None = None,
        engine_config: EngineConfig | None = None,
        *,
        tokenizer: Tokenizer | None = None,
    ) -> Engine:
        """An engine of its own cache. Raises ConfigError as `Engine` does.

        With the tokenizer it knows stop strings, and an engine that speculates checks its drafter (see `self_check`).

        `engine_config`: None takes the options that the model was loaded with, for which memory was planned.
        """
        mtp = self.mtp if speculative_config is not None else None
        detokenizer = None if tokenizer is None else lambda: IncrementalDetokenizer(tokenizer).push
        options = self.options if engine_config is None else engine_config
        engine = Engine(self.transformer, mtp, speculative_config, options, detokenizer=detokenizer)
        if mtp is not None and tokenizer is not None:
            most = min(TOKENS, options.max_num_batched_tokens, engine.max_model_len)
            text = tokenizer.completion_prompt(TEXT)[:most]
            with ops.kernel_threads():
                engine.runner.acceptance.self_check = check_drafter(self.transformer, mtp, engine.cache, text)
        return engine


def load_model(
    checkpoint: Checkpoint,
    *,
    speculative_config: SpeculativeConfig | None = None,
    engine_config: EngineConfig | None = None,
    numerics: Numerics | None = None,
    progress: Progress | None = None,
    engines: int = 1,
    rewrite: Rewrite | None = None,
) -> LoadedModel:
    """Reads the weights, dequantised to float32; the MTP layer only if an engine is to speculate.

    `rewrite`: puts another weight of the same shape in the place of one that was read.

    A checkpoint without one, or one that does not fit into memory together with the caches of `engines` engines, is
    refused before any weight is read; the memory plan is logged. Raises CheckpointError and ConfigError.
    """
    if speculative_config is not None:
        checkpoint.require_drafter(speculative_config.method)
    options = engine_config or EngineConfig()
    plan = plan_memory(
        checkpoint.config,
        checkpoint.tensors().values(),
        options,
        depth=speculative_config.num_speculative_tokens if speculative_config else 0,
        available=available_memory(),
        caches=engines,
    )
    plan.require_fit(str(checkpoint.folder))
    log.info("%s: %s", checkpoint.folder, plan.describe())
    log.info(ops.describe_backends())
    with_drafter = speculative_config is not None
    names = [name for name in checkpoint.weight_names() if with_drafter or not name.startswith("mtp.")]
    numerics = numerics or Numerics()
    read = checkpoint.iter_weights(names, progress)
    weights = _TakenOnce(read if rewrite is None else ((name, rewrite(name, weight)) for name, weight in read))
    transformer = Transformer(checkpoint.config, weights, numerics)
    mtp = MultiTokenPredictor(transformer, weights, numerics) if with_drafter else None
    return LoadedModel(transformer, mtp, plan, plan.resolved(options))


def load_raw(
    checkpoint: Checkpoint,
    device: torch.device,
    *,
    speculative_config: SpeculativeConfig | None = None,
    engine_config: EngineConfig | None = None,
    numerics: Numerics | None = None,
    progress: Progress | None = None,
) -> dict[str, Tensor]:
    """Official name -> tensor as stored, on `device` (FP4 and FP8 as they are); the MTP layer only for speculation.

    What the device's kernels cannot serve is refused before any weight is read, and which backend serves which op is
    logged. Raises ConfigError and CheckpointError.
    """
    source = str(checkpoint.folder)
    options, numerics = engine_config or EngineConfig(), numerics or Numerics()
    if speculative_config is not None:
        checkpoint.require_drafter(speculative_config.method)
    require_kernels(checkpoint.config, options, numerics, device, source)
    log.info(ops.describe_backends(device))
    with_drafter = speculative_config is not None
    names = [name for name in checkpoint.stored_names() if with_drafter or not name.startswith("mtp.")]
    return checkpoint.load_to_device(device, names, progress)


class _TakenOnce(dict[str, Tensor]):
    """Hands every tensor out once: those that a layer merges into larger ones are freed at once, and not at the end."""

    def __getitem__(self, name: str) -> Tensor:
        return self.pop(name)


def open_checkpoint(model: str | Path, load_format: str) -> Checkpoint:
    """A folder or a hub id; with load_format "dummy" its config.json is enough. Raises ConfigError, CheckpointError."""
    return DummyCheckpoint.open(model) if load_format == "dummy" else Checkpoint.open(model)


def load_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """The tokenizer that lies beside the weights. Raises ConfigError when there is none or it does not fit."""
    return Tokenizer.load(Path(checkpoint.folder), checkpoint.config)


class OpenedEngine(NamedTuple):
    engine: Engine
    tokenizer: Tokenizer


def open_engine(
    model: str | Path,
    *,
    speculative_config: SpeculativeConfig | Mapping[str, Any] | None = None,
    numerics: Numerics | None = None,
    progress: Progress | None = None,
    **engine_options: Any,
) -> OpenedEngine:
    """A checkpoint's engine and tokenizer. `engine_options`: fields of EngineConfig (max_model_len, max_num_seqs, ...).

    Raises ConfigError and CheckpointError, before weights are read wherever that is possible.
    """
    options = parse_engine_config(engine_options)
    try:
        speculation = None if speculative_config is None else SpeculativeConfig.model_validate(speculative_config)
    except ValidationError as error:
        raise ConfigError(describe_validation_error(error)) from None
    checkpoint = open_checkpoint(model, options.load_format)
    options.context_of(checkpoint.config)
    tokenizer = load_tokenizer(checkpoint)
    loaded = load_model(
        checkpoint, speculative_config=speculation, engine_config=options, numerics=numerics, progress=progress
    )
    return OpenedEngine(loaded.engine(speculation, tokenizer=tokenizer), tokenizer)
