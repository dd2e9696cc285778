"""What a request asks of the sampler."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from outrider.config import ConfigError

MAX_SEED = (1 << 64) - 1


@dataclass(frozen=True)
class SamplingParams:
    """Names and meanings as in other engines. Raises ConfigError naming the field.

    temperature 0 is greedy; top_k 0 and top_p 1 and min_p 0 are off; seed None draws one; `stop_token_ids` end the text
    beside the model's end token, which `ignore_eos` switches off.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int = 256
    stop_token_ids: tuple[int, ...] = field(default=())
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, 0.0, 1000.0)
        _check("top_p", self.top_p, 0.0, 1.0, low_open=True)
        _check("min_p", self.min_p, 0.0, 1.0)
        _check("top_k", self.top_k, 0, 1 << 31)
        _check("max_tokens", self.max_tokens, 1, 1 << 31)
        if self.seed is not None:
            _check("seed", self.seed, 0, MAX_SEED)


def _check(name: str, value: float, low: float, high: float, *, low_open: bool = False) -> None:
    inside = (low < value if low_open else low <= value) and value <= high
    if math.isnan(value) or not inside:
        bracket = "(" if low_open else "["
        raise ConfigError(f"{name}: {value} is outside {bracket}{low:g}, {high:g}]")
