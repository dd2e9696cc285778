"""From a checkpoint on disk to an engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from outrider.checkpoint.reader import Checkpoint
from outrider.config import Numerics, SpeculativeConfig
from outrider.engine.engine import Engine
from outrider.model.mtp import MultiTokenPredictor
from outrider.model.transformer import Transformer
from outrider.text.tokenizer import Tokenizer


def load_engine(
    checkpoint: Checkpoint,
    *,
    speculative_config: SpeculativeConfig | None = None,
    numerics: Numerics | None = None,
    max_model_len: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Engine:
    """Reads the weights, dequantised to float32, and builds an engine around them.

    The MTP layer is loaded only if speculation is asked for; a checkpoint without one is refused before any weight is
    read. Raises CheckpointError and ConfigError.
    """
    if speculative_config is not None:
        checkpoint.require_drafter(speculative_config.method)
    numerics = numerics or Numerics()
    names = [n for n in checkpoint.weight_names() if speculative_config is not None or not n.startswith("mtp.")]
    weights = dict(checkpoint.iter_weights(names, progress))
    model = Transformer(checkpoint.config, weights, numerics)
    mtp = MultiTokenPredictor(model, weights, numerics) if speculative_config is not None else None
    return Engine(model, mtp, speculative_config, max_model_len=max_model_len)


def load_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """The tokenizer that lies beside the weights. Raises ConfigError when there is none or it does not fit."""
    return Tokenizer.load(Path(checkpoint.folder), checkpoint.config)
