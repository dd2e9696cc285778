"""Names of arms."""

from __future__ import annotations

import pytest

from outrider.bench.arms import deepest, parse_arms
from outrider.config import AUTO_DEPTH, ConfigError


def test_arms() -> None:
    off, fixed, auto, most = parse_arms("off, fixed:2,auto,auto:6")
    assert off.speculation is None and off.request_field == "off"
    assert fixed.speculation is not None and auto.speculation is not None and most.speculation is not None
    assert (fixed.speculation.num_speculative_tokens, fixed.speculation.adaptive, fixed.request_field) == (2, False, 2)
    assert (auto.speculation.num_speculative_tokens, auto.speculation.adaptive) == (AUTO_DEPTH, True)
    assert (most.speculation.num_speculative_tokens, most.speculation.adaptive, most.request_field) == (6, True, "auto")
    assert deepest([off, fixed, auto]) == auto.speculation and deepest([off]) is None


@pytest.mark.parametrize("text", ["", "on", "fixed", "off:2", "fixed:x", "auto:", "fixed:0", "fixed:99", "off,off"])
def test_what_is_no_arm(text: str) -> None:
    with pytest.raises(ConfigError, match="--arms"):
        parse_arms(text)
