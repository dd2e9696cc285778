"""What is compared: `off`, `fixed:2`, `auto`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic import ValidationError

from outrider.config import ConfigError, SpeculativeConfig, describe_validation_error

_FORM = re.compile(r"off|fixed:(?P<fixed>\d{1,4})|auto(?::(?P<most>\d{1,4}))?")


@dataclass(frozen=True)
class Arm:
    """A way to run the same requests. speculation None: plain decoding, without a drafter."""

    name: str
    speculation: SpeculativeConfig | None

    @property
    def request_field(self) -> str | int:
        """The same for one request of a server that drafts, as its `speculation` field."""
        if self.speculation is None:
            return "off"
        return "auto" if self.speculation.adaptive else self.speculation.num_speculative_tokens


def parse_arms(text: str) -> list[Arm]:
    """`off`, `fixed:K` (always K drafts), `auto` or `auto:K` (as many as pay, at most K), with commas between.

    Ratios are to the first one. Raises ConfigError.
    """
    arms = [_parse_arm(part.strip()) for part in text.split(",")]
    names = [arm.name for arm in arms]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"--arms: {', '.join(twice)} is given twice")
    return arms


def deepest(arms: list[Arm]) -> SpeculativeConfig | None:
    """The configuration that needs the most memory; None if no arm speculates."""
    configs = [arm.speculation for arm in arms if arm.speculation is not None]
    return max(configs, key=lambda config: config.num_speculative_tokens, default=None)


def _parse_arm(text: str) -> Arm:
    found = _FORM.fullmatch(text)
    if found is None:
        raise ConfigError(f"--arms: {text!r} is none of off, fixed:K, auto, auto:K (K drafts, at most)")
    if text == "off":
        return Arm(text, None)
    depth = found["fixed"] or found["most"]
    fields = {
        "method": "mtp",
        "num_speculative_tokens": int(depth) if depth else "auto",
        "adaptive": found["fixed"] is None,
    }
    try:
        return Arm(text, SpeculativeConfig.model_validate(fields))
    except ValidationError as error:
        raise ConfigError(f"--arms: {text!r}: {describe_validation_error(error)}") from None
