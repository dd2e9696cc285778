"""A fast share of the simulated histories; `python -m tests.simulate --histories 10000` runs the many."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.histories import make_history
from tests.simulate import Simulation

SHARES = 3
HISTORIES = 4  # a share


@pytest.mark.parametrize("share", range(SHARES))
def test_every_request_gets_the_tokens_of_plain_decode(share: int) -> None:
    happened: Counter[str] = Counter()
    for seed in range(share * HISTORIES, (share + 1) * HISTORIES):
        history = make_history(seed)
        try:
            happened += Simulation(history).run()
        except AssertionError as error:
            raise AssertionError(f"{history.describe()}\n{error}") from error
    assert happened["requests"] >= 2 * HISTORIES


def test_histories_reach_what_they_are_for() -> None:
    """Among the first hundred: every parameter, aborts, samples that share a prompt, oracles and real drafts."""
    histories = [make_history(seed) for seed in range(100)]
    asks = [ask for history in histories for ask in history.asks]
    params = [ask.params for ask in asks]
    names = (
        "top_p", "min_p", "top_k", "frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias",
        "bad_words", "allowed_token_ids", "min_tokens", "ignore_eos", "logprobs", "prompt_logprobs",
    )  # fmt: skip
    for name in names:
        assert len({repr(getattr(p, name)) for p in params}) > 1, name
    assert {p.temperature for p in params} == {0.0, 0.7}
    for name in ("mask", "aborted", "speculation", "right", "follows", "stop_at"):
        assert {getattr(ask, name) is None for ask in asks} == {True, False}, name
    assert {history.depth for history in histories} >= {0, 1, 3, 7}
    assert {len(ask.prompt) for ask in asks} >= {1, 3, 4, 5, 15, 16, 17, 127, 128, 129, 255, 256, 257}
    assert make_history(7) == make_history(7)
