"""What --speculative-config says."""

from __future__ import annotations

from outrider.config import ConfigError, SpeculativeConfig, parse_speculative_config


def read_speculative_config(text: str) -> SpeculativeConfig:
    """Raises ConfigError, also for JSON that breaks the parser."""
    try:
        return parse_speculative_config(text)
    except ConfigError:
        raise
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, brackets without end
        raise ConfigError(f"--speculative-config cannot be read as JSON ({error})") from None
