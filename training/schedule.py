"""A training run planned by the clock: what to do at which share of the time, however fast the machine is."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Schedule:
    """Progress runs from 0 (first step) to 1 (end of joint training); finishing and evaluation come after it.

    dense: until then, ratio-4 layers attend to every visible entry (the indexer warms up on its own loss)
    long: from then, every `long_every`-th step is on long rows
    decay: the learning rate falls linearly over this last share
    quantise: from then, weights and activations are rounded
    late_mtp: from then, the MTP loss counts less
    """

    minutes: float
    reserve: float  # seconds kept for finishing, evaluation and export
    minutes_file: Path | None = None  # holds a number: the plan can be changed while it runs
    warmup_steps: int = 100
    dense: float = 0.10
    long: float = 0.60
    long_every: int = 4
    decay: float = 0.35
    quantise: float = 0.85
    late_mtp: float = 0.70
    began: float = field(default_factory=time.monotonic)
    first_step: float = 0.0

    def start(self) -> None:
        self.first_step = time.monotonic()

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def deadline(self) -> float:
        """Seconds after the start at which everything must be done."""
        if self.minutes_file is not None and self.minutes_file.exists():
            text = self.minutes_file.read_text().strip()
            if text:
                self.minutes = float(text)
        return 60 * self.minutes

    def progress(self) -> float:
        """0..1 over joint training."""
        begin = self.first_step - self.began
        return min(1.0, (self.elapsed() - begin) / max(self.deadline() - self.reserve - begin, 1e-6))

    def learning_rate(self, step: int, p: float) -> float:
        """Factor on the peak rates: linear warm-up, constant, linear to zero."""
        return min(1.0, (step + 1) / self.warmup_steps, max((1 - p) / self.decay, 0.0))
