"""Files that ship with the package: the small trained model in `tiny/`."""

from __future__ import annotations

from pathlib import Path

from outrider.config import ConfigError

_TINY = Path(__file__).parent / "tiny"


def shipped_model() -> Path:
    """Folder of the trained test model, in the official format. Raises ConfigError when it is missing."""
    if not (_TINY / "config.json").is_file():
        raise ConfigError("--model: this installation holds no model of its own; name a checkpoint folder or a hub id")
    return _TINY
