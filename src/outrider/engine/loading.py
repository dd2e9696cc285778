"""From a checkpoint on disk to engines."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from outrider.checkpoint.reader import Checkpoint
from outrider.config import ConfigError, EngineConfig, Numerics, SpeculativeConfig
from outrider.engine.engine import Engine
from outrider.model.mtp import MultiTokenPredictor
from outrider.model.transformer import Transformer
from outrider.text.tokenizer import IncrementalDetokenizer, Tokenizer

Progress = Callable[[int, int], None]  # (bytes done, bytes in all)


@dataclass(frozen=True)
class LoadedModel:
    """Weights in memory. Any number of engines may share them: an engine adds its cache and nothing else."""

    transformer: Transformer
    mtp: MultiTokenPredictor | None

    def engine(
        self,
        speculative_config: SpeculativeConfig | None = None,
        engine_config: EngineConfig | None = None,
        *,
        tokenizer: Tokenizer | None = None,
    ) -> Engine:
        """An engine of its own cache; stop strings need the tokenizer. Raises ConfigError as `Engine` does."""
        mtp = self.mtp if speculative_config is not None else None
        detokenizer = None if tokenizer is None else lambda: IncrementalDetokenizer(tokenizer).push
        return Engine(self.transformer, mtp, speculative_config, engine_config, detokenizer=detokenizer)


def load_model(
    checkpoint: Checkpoint,
    *,
    speculative_config: SpeculativeConfig | None = None,
    numerics: Numerics | None = None,
    progress: Progress | None = None,
) -> LoadedModel:
    """Reads the weights, dequantised to float32; the MTP layer only if an engine is to speculate.

    A checkpoint without one, or too large for this machine, is refused before any weight is read. Raises
    CheckpointError and ConfigError.
    """
    with_drafter = speculative_config is not None
    if speculative_config is not None:
        checkpoint.require_drafter(speculative_config.method)
    names = [name for name in checkpoint.weight_names() if with_drafter or not name.startswith("mtp.")]
    _require_memory(checkpoint, names)
    numerics = numerics or Numerics()
    weights = dict(checkpoint.iter_weights(names, progress))
    transformer = Transformer(checkpoint.config, weights, numerics)
    return LoadedModel(transformer, MultiTokenPredictor(transformer, weights, numerics) if with_drafter else None)


def load_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """The tokenizer that lies beside the weights. Raises ConfigError when there is none or it does not fit."""
    return Tokenizer.load(Path(checkpoint.folder), checkpoint.config)


def _require_memory(checkpoint: Checkpoint, names: list[str]) -> None:
    """Refuses what cannot fit. A lower bound: the float32 weights alone, against all memory of the machine."""
    specs = checkpoint.tensors()
    needed = 4 * sum(specs[name].parameters for name in names)
    memory = physical_memory()
    if memory is not None and needed > memory:
        raise ConfigError(
            f"{checkpoint.folder}: the weights take {needed / 1e9:,.1f} GB as float32, "
            f"this machine has {memory / 1e9:,.1f} GB of memory"
        )


def physical_memory() -> int | None:
    """Bytes of memory of this machine; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
