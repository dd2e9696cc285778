"""The error that checkpoint code raises: every problem found, in words for the person who has to fix it."""

from __future__ import annotations

from collections.abc import Sequence

SHOWN = 10


class CheckpointError(ValueError):
    """A checkpoint that cannot be used. `problems` holds all findings; the message shows the first ten and a count."""

    def __init__(self, where: object, problems: str | Sequence[str], remedy: str = "") -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        shown = "; ".join(self.problems[:SHOWN])
        if len(self.problems) > SHOWN:
            shown += f"; and {len(self.problems) - SHOWN} more"
        count = f"{len(self.problems)} problems: " if len(self.problems) > 1 else ""
        super().__init__(f"{where}: {count}{shown}" + (f". {remedy}" if remedy else ""))
