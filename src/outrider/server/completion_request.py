"""The body of /v1/completions."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from outrider.server.fields import GenerationFields

Prompt = str | list[int]
MAX_PROMPTS = 128


class CompletionRequest(GenerationFields):
    """prompt: a text, token ids, or a list of either. max_tokens 0 is of use with `echo`: it scores the prompt."""

    prompt: str | list[str] | list[int] | list[list[int]]
    max_tokens: Annotated[int, Field(ge=0, le=1 << 30)] | None = 16
    echo: bool | None = False
    logprobs: Annotated[int, Field(ge=0, le=100)] | None = None
    best_of: int | None = None
    suffix: None = None

    @field_validator("prompt", mode="before")
    @classmethod
    def _prompt_kind(cls, value: Any) -> Any:
        if isinstance(value, str):
            return value
        if isinstance(value, list):
            if not value:
                raise ValueError("it is empty")
            if all(type(item) is int for item in value) or all(isinstance(item, str) for item in value):
                return value
            if all(isinstance(item, list) and item and all(type(t) is int for t in item) for item in value):
                return value
        raise ValueError("a text, a list of token ids, or a list of texts or of lists of token ids is expected")

    @model_validator(mode="after")
    def _consistent(self) -> CompletionRequest:
        if self.best_of is not None and self.best_of != self.samples:
            raise ValueError("best_of: texts are not ranked here; leave it out, or give it the value of n")
        if self.max_tokens == 0 and not self.echo:
            raise ValueError("max_tokens: 0 without echo asks for nothing")
        if len(self.prompts) > MAX_PROMPTS:
            raise ValueError(f"prompt: {len(self.prompts)} prompts in one request, at most {MAX_PROMPTS} are served")
        return self

    @property
    def prompts(self) -> list[Prompt]:
        if isinstance(self.prompt, str):
            return [self.prompt]
        if all(isinstance(item, int) for item in self.prompt):
            return [[item for item in self.prompt if isinstance(item, int)]]
        return [item for item in self.prompt if not isinstance(item, int)]
