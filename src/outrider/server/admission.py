"""How many requests the server holds at a time: beyond that, clients are told to come back."""

from __future__ import annotations

from outrider.server.errors import OVERLOADED, SERVER, ApiError, invalid


class Admission:
    """Counts continuations from their admission to their end. limit: those that run and those that wait, together."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = 0
        self.draining = False

    def enter(self, count: int, param: str) -> None:
        """Takes `count` places. Raises ApiError: 400 if they can never be had, 429 if not now, 503 when draining."""
        if self.draining:
            raise ApiError(503, "the server is shutting down", kind=SERVER, code="shutting_down")
        if count > self.limit:
            raise invalid(param, f"{count} continuations in one request; this server holds {self.limit} at a time")
        if self.count + count > self.limit:
            raise ApiError(
                429,
                f"the server is busy: {self.count} continuations of at most {self.limit} run or wait; try again later",
                kind=OVERLOADED,
                code="queue_full",
                headers={"Retry-After": "1"},
            )
        self.count += count

    def leave(self, count: int) -> None:
        self.count -= count
