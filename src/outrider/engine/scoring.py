"""Logits of a given text, outside of any request."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from outrider import ops
from outrider.cache.batch import RequestRows
from outrider.engine.engine import Engine


@torch.inference_mode()
def teacher_forced_logits(engine: Engine, token_ids: Sequence[int], rows: int = 256) -> Tensor:
    """[T, V] float32: what the target says after every one of the T tokens, `rows` of them a pass.

    The engine must be idle; its cache holds nothing of the text afterwards.
    """
    assert not engine.has_unfinished
    pages = engine.cache.new_request()
    parts = []
    try:
        pages.reserve(len(token_ids))
        with ops.kernel_threads():
            for start in range(0, len(token_ids), rows):
                chunk = torch.tensor(token_ids[start : start + rows])
                own = [RequestRows(pages, start, len(chunk))]
                parts.append(engine.runner.model.logits(engine.runner.model.forward(chunk, own, engine.cache)))
    finally:
        pages.release()
    return torch.cat(parts)
