"""What a server's /metrics say about its drafts; the names are vLLM's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from outrider.bench.window import DraftCounts

_SAMPLE = re.compile(r"^vllm:(?P<name>\w+?)(?:_total)?(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)")
_POSITION = re.compile(r'\bposition="(\d+)"')
_DRAFTS, _DRAFTED = "spec_decode_num_drafts", "spec_decode_num_draft_tokens"
_ACCEPTED, _PER_POSITION = "spec_decode_num_accepted_tokens", "spec_decode_num_accepted_tokens_per_pos"
_CACHED = "prefix_cache_hits"


@dataclass(frozen=True)
class ServerCounters:
    """Counters since the server's start, by (name, position); those of several models or engines are added up."""

    values: Mapping[tuple[str, int], float]

    def drafts_since(self, before: ServerCounters) -> DraftCounts | None:
        """None for a server that does not count drafts."""
        if (_DRAFTS, -1) not in self.values:
            return None
        positions = sorted(position for name, position in self.values if name == _PER_POSITION)
        return DraftCounts(
            self._since(before, _DRAFTS),
            self._since(before, _DRAFTED),
            self._since(before, _ACCEPTED),
            tuple(self._since(before, _PER_POSITION, position) for position in positions),
        )

    def cached_since(self, before: ServerCounters) -> int | None:
        """Prompt tokens found in the prefix cache; None for a server that does not count them."""
        return self._since(before, _CACHED) if (_CACHED, -1) in self.values else None

    def _since(self, before: ServerCounters, name: str, position: int = -1) -> int:
        key = (name, position)
        return round(self.values.get(key, 0.0) - before.values.get(key, 0.0))


def parse_metrics(text: str) -> ServerCounters:
    """From Prometheus' text format; lines of other metrics are skipped."""
    values: dict[tuple[str, int], float] = {}
    for line in text.splitlines():
        found = _SAMPLE.match(line)
        if found is None or found["name"] not in (_DRAFTS, _DRAFTED, _ACCEPTED, _PER_POSITION, _CACHED):
            continue
        position = _POSITION.search(found["labels"] or "")
        key = (found["name"], int(position[1]) if position else -1)
        values[key] = values.get(key, 0.0) + float(found["value"])
    return ServerCounters(values)
