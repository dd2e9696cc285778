"""What every handler needs: the model behind the server, and what it was started with."""

from __future__ import annotations

import time
from collections.abc import Sequence

from outrider.engine.async_engine import AsyncEngine
from outrider.engine.engine import Engine
from outrider.server.admission import Admission
from outrider.server.errors import NOT_FOUND, ApiError
from outrider.server.grammars import Grammars
from outrider.server.metrics import Metrics
from outrider.text.tokenizer import Tokenizer


class ServedModel:
    """An engine that is about to be served. names: what clients may call it; the first is what answers say."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer, names: Sequence[str], *, max_waiting: int) -> None:
        """max_waiting: continuations that may wait beyond the `max_num_seqs` that run. The engine is not started."""
        self.engine = AsyncEngine(engine)
        self.tokenizer = tokenizer
        self.names = tuple(names)
        self.config = engine.config
        self.max_model_len = engine.max_model_len
        self.depth = engine.depth
        self.prefix_caching = engine.options.enable_prefix_caching
        self.admission = Admission(engine.options.max_num_seqs + max_waiting)
        self.metrics = Metrics(self.name, self.engine)
        self.grammars = Grammars(tokenizer, engine.config)
        self.created = int(time.time())

    @property
    def name(self) -> str:
        return self.names[0]

    def require_name(self, name: str | None) -> None:
        """Raises ApiError (404) for a model that is not here; None is whichever is."""
        if name is not None and name not in self.names:
            message = f"model: {name[:200]!r} is not served here, {', '.join(self.names)} is"
            raise ApiError(404, message, kind=NOT_FOUND, param="model", code="model_not_found")
