"""Greedy tokens without logits: those of the logits that the same product would write."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from tests.ops.triton.linear_cases import FORMATS, moved, random_rows, random_weight

from outrider.ops.reference import scaled_linear as reference
from outrider.ops.reference.sampling import best_tokens
from outrider.ops.reference.scaled_linear import bf16_weight
from outrider.ops.triton.greedy_head import greedy_tokens
from outrider.ops.triton.scaled_linear import scaled_linear
from outrider.platforms.architectures import Fp8Dialect


@pytest.mark.parametrize("name", FORMATS)
def test_tokens_are_those_of_the_logits(name: str, device: str) -> None:
    if FORMATS[name].dialect == Fp8Dialect.FNUZ and device == "cuda":
        pytest.skip("a CUDA GPU multiplies OCP alone")
    vocab_size, width = (333, 256) if device == "cpu" else (129280, 1024)
    weight = moved(random_weight(name, vocab_size, width), device)
    for tokens in (1, 18) if device == "cpu" else (1, 18, 65, 300):
        x = moved(random_rows(name, tokens, width), device)
        logits = scaled_linear(x, weight, dtype=torch.float32)
        assert torch.equal(greedy_tokens(x, weight), best_tokens(logits))
        if device == "cpu":
            assert torch.equal(reference.greedy_tokens(x, weight), best_tokens(logits))


def test_ties_and_what_cannot_be_drawn(device: str) -> None:
    """Row k of the head answers to column k alone."""
    head = torch.zeros(260, 384, dtype=torch.bfloat16)
    head[torch.arange(260), torch.arange(260)] = 1
    x = torch.zeros(6, 384, dtype=torch.bfloat16)
    x[0, [64, 200]] = 2.0  # equal scores in different tiles
    x[1, 259] = 1.0
    x[2] = -1.0  # all equal
    x[3, 5] = torch.nan
    x[4, 7] = torch.inf  # infinity times 0 is NaN elsewhere
    found = greedy_tokens(x.to(device), moved(bf16_weight(head), device)).tolist()
    assert found == [64, 259, 0, 260, 260, 0]


def test_several_splits(device: str) -> None:
    weight = moved(random_weight("fp8", 128, 1024), device)
    x = moved(random_rows("fp8", 3, 1024), device)
    assert torch.equal(greedy_tokens(x, weight), best_tokens(scaled_linear(x, weight, dtype=torch.float32)))
