"""One continuation as its tokens come: text that is final, cut in front of stop strings, and log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from outrider.engine.request import StepOutput
from outrider.engine.stopping import FinishReason
from outrider.sampling.logprobs import TokenLogprobs
from outrider.text.tokenizer import IncrementalDetokenizer, Tokenizer


@dataclass
class Growth:
    """What a step adds. offsets: of each token, where its text begins, in characters of the whole.

    logprobs: one a token, if they were asked for; None where nothing stands before it. ended_by_model: the text ends
    where the model ended it, not where a limit or the client's own stop rule cut it. drafted: all of its tokens were
    drafts that stood.
    """

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs | None] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    ended_by_model: bool = False
    drafted: bool = False

    def extend(self, later: Growth) -> None:
        """Takes in what a later step added."""
        self.text += later.text
        self.token_ids += later.token_ids
        self.offsets += later.offsets
        self.logprobs += later.logprobs
        self.finish_reason, self.ended_by_model = later.finish_reason, later.ended_by_model


def split_step(output: StepOutput) -> list[StepOutput]:
    """A step as two: the drafts that stood, and the target's own token behind them."""
    count = output.accepted_drafts
    if not 0 < count < len(output.token_ids):
        return [output]
    logprobs = output.logprobs
    drafted = replace(
        output, token_ids=output.token_ids[:count], finish_reason=None, logprobs=logprobs and logprobs[:count]
    )
    own = replace(output, token_ids=output.token_ids[count:], accepted_drafts=0, logprobs=logprobs and logprobs[count:])
    return [drafted, own]


class Continuation:
    """Turns the steps of one request into growths. A stop string is never shown, not even the first half of it."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str]) -> None:
        self._detokenizer = IncrementalDetokenizer(tokenizer)
        self._stop = tuple(stop)
        self._held = ""  # text that may be the beginning of a stop string
        self._released = 0  # characters

    def push(self, output: StepOutput) -> Growth:
        growth = Growth(finish_reason=output.finish_reason, logprobs=list(output.logprobs or ()))
        growth.drafted = 0 < len(output.token_ids) == output.accepted_drafts
        for token in output.token_ids:
            growth.token_ids.append(token)
            growth.offsets.append(self._released + len(self._held))
            self._held += self._detokenizer.push([token])
        if output.finish_reason is None:
            growth.text = self._release(len(self._held) - self._stop_prefix())
            return growth
        limit = output.request.stop_rules.text_limit
        asked_for = not set(output.token_ids[-1:]).isdisjoint(output.request.params.stop_token_ids)
        growth.ended_by_model = output.finish_reason == "stop" and limit is None and not asked_for
        if limit is None:
            self._held += self._detokenizer.finish()
            limit = self._released + len(self._held)
        growth.text = self._release(max(0, limit - self._released))
        return growth

    def _release(self, count: int) -> str:
        text, self._held = self._held[:count], self._held[count:]
        self._released += count
        return text

    def _stop_prefix(self) -> int:
        """Characters at the end of the held text that a stop string may begin with."""
        most = max((len(stop) for stop in self._stop), default=1) - 1
        for length in range(min(most, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stop):
                return length
        return 0
