"""What a request asks of the sampler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from outrider.config import ConfigError, shown

MAX_SEED = (1 << 64) - 1
MAX_LOGPROBS = 100
LOWEST_TEMPERATURE = 1e-6  # but for 0: logits divided by less would leave float32


@dataclass(frozen=True)
class SamplingParams:
    """Names and meanings as in other engines. Raises ConfigError naming the field.

    temperature 0 is greedy; top_k 0, top_p 1 and min_p 0 are off; seed None draws one; n > 1 draws from hashes of
    (seed, index). Penalties: `repetition_penalty` scales the logits of tokens that the prompt or the output holds,
    `frequency_penalty` and `presence_penalty` lower those of the output, by count or once. `allowed_token_ids` (None:
    all), `bad_words` (token sequences that must not be completed) and `logit_bias` (added) act before the penalties.
    The end token and `stop_token_ids` end the text (`ignore_eos` leaves the end token out), `stop` strings too, from
    `min_tokens` on. `logprobs` and `prompt_logprobs` give that many best tokens beside the chosen one, of the model's
    own distribution, before anything above acts on it.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    n: int = 1
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[tuple[int, ...], ...] = ()
    max_tokens: int = 256
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, 0.0, 1000.0)
        if 0.0 < self.temperature < LOWEST_TEMPERATURE:
            raise ConfigError(
                f"temperature: {shown(self.temperature)} is less than {LOWEST_TEMPERATURE}, the lowest but 0 (greedy)"
            )
        _check("top_p", self.top_p, 0.0, 1.0, low_open=True)
        _check("min_p", self.min_p, 0.0, 1.0)
        _check("top_k", self.top_k, 0, 1 << 31)
        _check("n", self.n, 1, 128)
        _check("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        _check("frequency_penalty", self.frequency_penalty, -100.0, 100.0)
        _check("presence_penalty", self.presence_penalty, -100.0, 100.0)
        _check("max_tokens", self.max_tokens, 1, 1 << 31)
        _check("min_tokens", self.min_tokens, 0, self.max_tokens)
        for name, count in (("logprobs", self.logprobs), ("prompt_logprobs", self.prompt_logprobs)):
            if count is not None:
                _check(name, count, 0, MAX_LOGPROBS)
        if self.seed is not None:
            _check("seed", self.seed, 0, MAX_SEED)
        for token, bias in self.logit_bias.items():
            _check(f"logit_bias[{token}]", bias, -1000.0, 1000.0)
        if self.allowed_token_ids is not None and not self.allowed_token_ids:
            raise ConfigError("allowed_token_ids: it is empty; nothing could be sampled")
        if not all(self.stop):
            raise ConfigError("stop: an empty string would end every text at once")
        if not all(self.bad_words):
            raise ConfigError("bad_words: a word has no tokens")

    def check_token_ids(self, vocab_size: int) -> None:
        """Raises ConfigError when a token id is not in the vocabulary."""
        for name, ids in (
            ("logit_bias", self.logit_bias),
            ("allowed_token_ids", self.allowed_token_ids or ()),
            ("bad_words", [token for word in self.bad_words for token in word]),
            ("stop_token_ids", self.stop_token_ids),
        ):
            for token in ids:
                if not 0 <= token < vocab_size:
                    raise ConfigError(f"{name}: token id {token} is outside the vocabulary of {vocab_size}")


def _check(name: str, value: float, low: float, high: float, *, low_open: bool = False) -> None:
    if not (low < value if low_open else low <= value) or value > high:  # NaN is outside of everything
        bracket = "(" if low_open else "["
        raise ConfigError(f"{name}: {shown(value)} is outside {bracket}{low}, {high}]")
