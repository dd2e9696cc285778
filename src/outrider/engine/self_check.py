"""Before anything is served: does the drafter guess what the model says, on a text that ships with the program?

One pass of the model and one of the MTP layer over the text. At every token the layer's best next token is compared
with the model's own. Wrong or foreign mtp.* weights agree almost nowhere; nothing else would show them, since
speculation never changes a text.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from outrider.cache.batch import RequestRows
from outrider.cache.paged_cache import PagedCache
from outrider.model.mtp import MultiTokenPredictor
from outrider.model.transformer import Transformer
from outrider.speculative.acceptance_monitor import FAR_BELOW, USUAL

log = logging.getLogger("outrider")

TOKENS = 128  # of the text, at most
TEXT = (
    "The library opens a file and returns an object that can be used to read from it. If the file does not exist, an "
    "error is raised, and the program should tell the user what to do next. In most cases it is enough to check the "
    "name of the file. A store has 24 boxes with 12 apples in each box, so there are 24 * 12 = 288 apples in all.\n\n"
    "def read_lines(path):\n    with open(path) as file:\n        return [line.strip() for line in file]\n"
)


@torch.inference_mode()
def check_drafter(
    model: Transformer, mtp: MultiTokenPredictor, cache: PagedCache, token_ids: Sequence[int]
) -> float | None:
    """Share of first drafts that stand on this text under greedy decoding, logged; None for less than two tokens.

    token_ids: the text, no more than a step may have rows. Takes pages of the cache and gives them back.
    """
    count = len(token_ids) - 1
    if count < 1 or cache.drafter is None:
        return None
    ids = torch.tensor(token_ids)
    pages = cache.new_request()
    pages.reserve(len(token_ids))
    try:
        streams = model.forward(ids, [RequestRows(pages, 0, count + 1)], cache)
        rows = [RequestRows(pages, 1, count, first_position=1)]
        drafts = mtp.logits(mtp.forward(streams[:-1], ids[1:], rows, cache.drafter)).argmax(-1)
        agreed = int((drafts == model.logits(streams[1:]).argmax(-1)).sum())
    finally:
        pages.release()
    share = agreed / count
    message = "self-check: the drafter guesses the model's next token at %d of %d places of a built-in text (%.2f)"
    if share < FAR_BELOW * USUAL:
        log.warning(message + "; do its mtp.* tensors belong to these weights?", agreed, count, share)
    else:
        log.info(message, agreed, count, share)
    return share
