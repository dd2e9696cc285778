"""Official checkpoints: tensor names and formats, validation, reading and writing."""

from outrider.checkpoint.errors import CheckpointError
from outrider.checkpoint.reader import Checkpoint
from outrider.checkpoint.writer import write_checkpoint

__all__ = ["Checkpoint", "CheckpointError", "write_checkpoint"]
