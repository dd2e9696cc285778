"""The drafter is compared with its model before anything is served, and a foreign one is called out."""

from __future__ import annotations

import logging

import pytest
import torch
from tests.engine.test_lossless import ALONE, model, prompt_of, speculative

from outrider.engine.engine import Engine
from outrider.engine.self_check import check_drafter
from outrider.sampling.params import SamplingParams


class Copycat:
    """Says what the model will say, in the first `right` places."""

    def __init__(self, answers: torch.Tensor, right: int) -> None:
        self._answers, self._right = answers, right

    def forward(self, *_: object) -> None:
        """Rows are nobody's business here."""

    def logits(self, _: object) -> torch.Tensor:
        wrong = (self._answers + 1) % 64
        said = torch.where(torch.arange(len(wrong)) < self._right, self._answers, wrong)
        return torch.nn.functional.one_hot(said, 64).float()


@pytest.mark.parametrize(("right", "level"), [(20, logging.INFO), (5, logging.INFO), (4, logging.WARNING)])
def test_its_line_says_how_much_agrees(right: int, level: int, caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine(*model(0), speculative(1), ALONE)
    text = prompt_of(21, 0)
    request = engine.add_request(text, SamplingParams(max_tokens=1))
    (work,) = engine.scheduler.schedule()
    with torch.inference_mode():
        answers = model(0).trunk.logits(engine.runner._forward([work])[1:]).argmax(-1)
    engine.abort(request)
    with caplog.at_level(logging.INFO, logger="outrider"):
        share = check_drafter(model(0).trunk, Copycat(answers, right), engine.cache, text)  # type: ignore[arg-type]
    assert share == right / 20
    (record,) = caplog.records
    assert record.levelno == level
    line = f"self-check: the drafter guesses the model's next token at {right} of 20 places of a built-in text"
    assert record.getMessage().startswith(f"{line} ({right / 20:.2f})")
    assert ("do its mtp.* tensors belong to these weights?" in record.getMessage()) == (level == logging.WARNING)
    pools = engine.cache.window_pool, engine.cache.entry_pool
    assert all(pool.free_count == pool.count - 1 for pool in pools)


def test_there_is_nothing_to_check_in_one_token(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine(*model(0), speculative(1), ALONE)
    with caplog.at_level(logging.INFO, logger="outrider"):
        assert check_drafter(*model(0), engine.cache, [5]) is None
    assert not caplog.records
