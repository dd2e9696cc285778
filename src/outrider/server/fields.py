"""Fields that completions and chat completions share, under OpenAI's names and, beyond them, under vLLM's.

Unknown fields are refused, as OpenAI does. Fields of OpenAI's that change nothing here (who the user is, where a
response is stored) are accepted and not read.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from outrider.sampling.params import MAX_SEED, SamplingParams
from outrider.server.errors import invalid

MAX_CHOICES = 128
_StopString = Annotated[str, Field(min_length=1, max_length=1024)]


class ApiModel(BaseModel):
    """An object of a request: exact types, no unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _characters(cls, value: Any) -> Any:
        """JSON can escape half a surrogate pair, which no encoding of text can hold."""
        for text in value if isinstance(value, list) else (value,):
            if isinstance(text, str) and any("\ud800" <= character <= "\udfff" for character in text):
                raise ValueError("it holds half a surrogate pair, which is no character")
        return value


class StreamOptions(ApiModel):
    include_usage: bool = False
    continuous_usage_stats: bool = False  # vLLM's: with include_usage, every event has the usage so far
    include_drafts: Annotated[
        bool,
        Field(description="This server's own: every choice says in `drafted` whether its text had been drafted."),
    ] = False
    include_obfuscation: bool | None = None  # padding against observers of the network; there is none


class GenerationFields(ApiModel):
    """How to sample and when to end."""

    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = 1
    temperature: float | None = 1.0
    top_p: float | None = 1.0
    top_k: int | None = 0
    min_p: float | None = 0.0
    seed: Annotated[int, Field(ge=-(1 << 63), le=MAX_SEED)] | None = None
    frequency_penalty: float | None = 0.0
    presence_penalty: float | None = 0.0
    repetition_penalty: float | None = 1.0
    logit_bias: Annotated[dict[str, float], Field(max_length=4096)] | None = None
    stop: _StopString | Annotated[list[_StopString], Field(max_length=16)] | None = None
    stop_token_ids: Annotated[list[int], Field(max_length=256)] | None = None
    min_tokens: int | None = 0
    ignore_eos: bool = False
    # this server's own
    speculation: Annotated[
        Literal["off", "auto"] | Annotated[int, Field(ge=0, le=16)],
        Field(description="Drafts a step: off, auto (what the server was started with), or at most this many."),
    ] = "auto"
    priority: Annotated[int, Field(ge=-(1 << 31), lt=1 << 31, description="Lower goes first.")] = 0
    cache_salt: Annotated[
        str | None,
        Field(min_length=1, max_length=256, description="Share cached prompts only with requests that say the same."),
    ] = None
    # OpenAI's, without effect
    user: str | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    @property
    def marks_drafts(self) -> bool:
        return bool(self.stream and self.stream_options and self.stream_options.include_drafts)

    @property
    def samples(self) -> int:
        """Continuations of each prompt."""
        return self.n or 1

    @property
    def stop_strings(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def speculation_depth(self, most: int) -> int | None:
        """Drafts a step for `Engine.add_request`; most: those that the engine was built for. Raises ApiError."""
        if self.speculation == "auto":
            return None
        if self.speculation == "off":
            return 0
        if self.speculation > most:
            remedy = "start it with --speculative-config" if most == 0 else f"it was started with at most {most}"
            raise invalid("speculation", f"this server cannot draft {self.speculation} tokens a step: {remedy}")
        return self.speculation

    def sampling_params(
        self, *, max_tokens: int, logprobs: int | None, prompt_logprobs: int | None = None
    ) -> SamplingParams:
        """Of one continuation. null is the same as absent. Raises ConfigError and ApiError, which name the field."""
        return SamplingParams(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_k=0 if self.top_k in (None, -1) else self.top_k,
            top_p=1.0 if self.top_p is None else self.top_p,
            min_p=self.min_p or 0.0,
            seed=None if self.seed is None else self.seed & MAX_SEED,
            repetition_penalty=1.0 if self.repetition_penalty is None else self.repetition_penalty,
            frequency_penalty=self.frequency_penalty or 0.0,
            presence_penalty=self.presence_penalty or 0.0,
            logit_bias=self._biases(),
            max_tokens=max_tokens,
            min_tokens=self.min_tokens or 0,
            stop=self.stop_strings,
            stop_token_ids=tuple(self.stop_token_ids or ()),
            ignore_eos=self.ignore_eos,
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
        )

    def _biases(self) -> dict[int, float]:
        biases = {}
        for key, bias in (self.logit_bias or {}).items():
            if not (key.isascii() and key.isdigit() and len(key) <= 9):
                raise invalid("logit_bias", f"{key[:40]!r} is not a token id")
            if not -100.0 <= bias <= 100.0:
                raise invalid("logit_bias", f"{bias} for token {key} is outside [-100, 100]")
            biases[int(key)] = bias
        return biases
