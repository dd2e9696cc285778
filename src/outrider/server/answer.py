"""What every answer carries around its choices."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from outrider.server.fields import GenerationFields
from outrider.server.group import Group
from outrider.server.served_model import ServedModel
from outrider.server.usage import usage_body

VERSION = version("outrider")


class Envelope:
    """Identity of one answer, and its token counts as they grow."""

    def __init__(self, prefix: str, served: ServedModel, fields: GenerationFields, group: Group) -> None:
        self._group = group
        self._frame = {
            "id": f"{prefix}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": fields.model or served.name,
            "system_fingerprint": f"outrider-{VERSION}",
        }
        options = fields.stream_options
        self.wants_usage = bool(options and options.include_usage)
        self._wants_usage_so_far = bool(options and options.include_usage and options.continuous_usage_stats)
        self.completion_tokens = 0
        self.reasoning_tokens = 0

    def chunk(self, kind: str, choices: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """An event of a stream. Clients that asked for usage find the field in every one, null until the last unless
        they want it as it grows."""
        usage = {"usage": self._usage() if self._wants_usage_so_far else None} if self.wants_usage else {}
        return {**self._frame, "object": kind, "choices": choices, **usage}

    def usage_chunk(self, kind: str) -> dict[str, Any]:
        return {**self.chunk(kind, []), "usage": self._usage()}

    def body(self, kind: str, choices: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {**self._frame, "object": kind, "choices": choices, "usage": self._usage()}

    def seed_of(self, choice: int) -> int:
        """Repeats that choice when it is given with n = 1."""
        return self._group.requests[choice].sampler.seed

    def _usage(self) -> dict[str, Any]:
        return usage_body(self._group.by_prompt, self.completion_tokens, self.reasoning_tokens)
