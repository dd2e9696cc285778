"""The rows of a verify, against decoding one token after the other, to the bit."""

from __future__ import annotations

import pytest
import torch
from tests.engine.tiny_engine import prompt_of
from tests.histories import SHAPE
from tests.tiny import random_tensors, tiny_config
from torch import Tensor

from outrider.cache.batch import RequestRows
from outrider.cache.paged_cache import PagedCache
from outrider.cache.pages import RequestPages
from outrider.config import Numerics, parse_model_config
from outrider.model.transformer import Transformer

HEADS = (4, 8, 16, 64)  # of a rank
NUMERICS = {"float32": Numerics(), "fp8 rows": Numerics.exact_qat()}


def trunk_of(heads: int = 4, numerics: str = "float32") -> Transformer:
    config = parse_model_config(tiny_config(**{**SHAPE, "num_attention_heads": heads, "head_dim": 64}))
    return Transformer(config, random_tensors(config, 0), NUMERICS[numerics])


class Text:
    """One text in a cache of its own."""

    def __init__(self, trunk: Transformer) -> None:
        self._trunk = trunk
        self._cache = PagedCache(trunk.config, window_pages=5, entry_pages=5, with_drafter=False)
        self._pages: RequestPages = self._cache.new_request()
        self._pages.reserve(300)

    def logits(self, start: int, tokens: list[int]) -> Tensor:
        with torch.inference_mode():
            rows = [RequestRows(self._pages, start, len(tokens))]
            return self._trunk.logits(self._trunk.forward(torch.tensor(tokens), rows, self._cache))


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("length", [37, 126])
def test_a_row_does_not_see_the_drafts_behind_it(heads: int, length: int) -> None:
    """[t0, d1, d2, d3] with another d3: rows 0 to 2 are the same, across a block's end as well."""
    trunk, prompt = trunk_of(heads), prompt_of(length)
    blocks = []
    for last in (9, 40):
        text = Text(trunk)
        text.logits(0, prompt)
        blocks.append(text.logits(length, [5, 6, 7, last]))
    assert torch.equal(blocks[0][:3], blocks[1][:3])
    assert not torch.equal(blocks[0][3], blocks[1][3])


@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("depth", range(1, 8))
def test_one_verify_equals_as_many_decodes(depth: int, numerics: str) -> None:
    trunk, length = trunk_of(numerics=numerics), 124
    block = prompt_of(depth + 1, seed=depth)
    together, one_by_one = Text(trunk), Text(trunk)
    for text in (together, one_by_one):
        text.logits(0, prompt_of(length))
    rows = together.logits(length, block)
    for i, token in enumerate(block):
        assert torch.equal(one_by_one.logits(length + i, [token])[0], rows[i])
