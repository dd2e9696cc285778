"""Runs one request after the other: prefill in chunks, then target passes over the last token and its drafts."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from outrider.cache.batch import RequestRows
from outrider.cache.layout import BLOCK_TOKENS
from outrider.cache.paged_cache import PagedCache
from outrider.cache.pages import RequestPages
from outrider.config import ConfigError, SpeculativeConfig
from outrider.engine.request import Request, StepOutput
from outrider.model.mtp import MultiTokenPredictor
from outrider.model.transformer import Transformer
from outrider.sampling.params import SamplingParams
from outrider.sampling.sampler import Sampler
from outrider.speculative.drafter import MtpDrafter, Sample
from outrider.speculative.verifier import accepted_count

PREFILL_CHUNK = 256


class Drafter(Protocol):
    """What the engine asks of a drafter; `MtpDrafter` is the one that ships, tests bring oracles."""

    def catch_up(self, previous_streams: Tensor, token_ids: Sequence[int], pages: RequestPages, start: int) -> None: ...

    def propose(
        self,
        previous_streams: Tensor,
        token_ids: Sequence[int],
        pages: RequestPages,
        start: int,
        depth: int,
        sample: Sample,
    ) -> list[int]: ...


class Engine:
    """A model, its cache and, if speculation is on, its drafter."""

    def __init__(
        self,
        model: Transformer,
        mtp: MultiTokenPredictor | None = None,
        speculative_config: SpeculativeConfig | None = None,
        *,
        max_model_len: int | None = None,
    ) -> None:
        """`max_model_len`: longest prompt and output together (default: the model's own limit).

        Raises ConfigError when speculation is asked for and no MTP layer is given, or the length is out of range.
        """
        self.model = model
        self.config = model.config
        limit = self.config.max_position_embeddings
        self.max_model_len = limit if max_model_len is None else max_model_len
        if not 1 <= self.max_model_len <= limit:
            raise ConfigError(f"max_model_len: {max_model_len} is outside [1, {limit}] (max_position_embeddings)")
        if speculative_config is not None and mtp is None:
            raise ConfigError("speculative_config: method mtp needs a checkpoint that has its mtp.* tensors")
        self.depth = speculative_config.num_speculative_tokens if speculative_config else 0
        # rows that a step may write beyond those a query still reads: a chunk, or one token and its drafts
        live_tokens = self.config.sliding_window + 2 * BLOCK_TOKENS + max(PREFILL_CHUNK, 1 + self.depth)
        self.cache = PagedCache(
            self.config,
            window_pages=live_tokens // BLOCK_TOKENS + 2,
            entry_pages=(self.max_model_len + self.depth) // BLOCK_TOKENS + 2,
            with_drafter=self.depth > 0,
        )
        self.drafter: Drafter | None = None
        if self.depth and mtp is not None and self.cache.drafter is not None:
            self.drafter = MtpDrafter(mtp, self.cache.drafter)

    def add_request(self, prompt_token_ids: Sequence[int], params: SamplingParams) -> Request:
        """Validates a prompt and gives it a place in the cache.

        Raises ConfigError for an empty prompt, ids outside the vocabulary, or a prompt that leaves no room for output.
        """
        if not prompt_token_ids:
            raise ConfigError("prompt: it has no tokens")
        if not all(0 <= token < self.config.vocab_size for token in prompt_token_ids):
            raise ConfigError(f"prompt: token ids must be in [0, {self.config.vocab_size})")
        if len(prompt_token_ids) >= self.max_model_len:
            raise ConfigError(
                f"prompt: {len(prompt_token_ids)} tokens leave no room in a context of {self.max_model_len}"
            )
        eos = () if params.ignore_eos else (self.config.eos_token_id,)
        return Request(
            prompt_length=len(prompt_token_ids),
            token_ids=list(prompt_token_ids),
            sampler=Sampler(params, secrets.randbits(64) if params.seed is None else params.seed),
            pages=self.cache.new_request(),
            max_length=min(len(prompt_token_ids) + params.max_tokens, self.max_model_len),
            stop_token_ids=frozenset((*params.stop_token_ids, *eos)),
        )

    def generate(self, request: Request) -> Iterator[StepOutput]:
        """Runs a request to its end, yielding what each step publishes; its pages go back however the loop ends."""
        try:
            while request.finish_reason is None:
                output = self.step(request)
                if output is not None:
                    yield output
        finally:
            request.pages.release()

    @torch.inference_mode()
    def step(self, request: Request) -> StepOutput | None:
        """One target pass; None while the prompt is not finished."""
        if len(request.token_ids) - request.num_computed > 1:
            return self._prefill(request)
        return self._decode(request)

    def _prefill(self, request: Request) -> StepOutput | None:
        start = request.num_computed
        end = min(start + PREFILL_CHUNK, len(request.token_ids))
        streams = self._forward(request, request.token_ids[start:end], start)
        request.num_computed = end
        if end < len(request.token_ids):
            self._draft(request, streams, start, depth=0)
            self._slide(request)
            return None
        return self._emit(request, streams, streams[-1:], start)

    def _decode(self, request: Request) -> StepOutput:
        start = request.num_computed
        streams = self._forward(request, [*request.token_ids[start:], *request.drafts], start)
        return self._emit(request, streams, streams, start)

    def _emit(self, request: Request, streams: Tensor, query_streams: Tensor, start: int) -> StepOutput:
        """Samples after every query row, keeps the drafts that were right, and drafts what comes next.

        streams: [T, n, d] from position `start` on; query_streams: those of the last rows, one more than drafts.
        """
        drafts, request.drafts = request.drafts, []
        first = len(request.token_ids)
        positions = list(range(first, first + len(drafts) + 1))
        sampled = request.sampler.sample(self.model.logits(query_streams), positions)
        accepted = accepted_count(drafts, sampled)
        from_prompt = first == request.prompt_length
        kept = request.advance(sampled[: accepted + 1])
        request.num_computed = len(request.token_ids) - 1
        accepted = min(accepted, len(kept))
        if not from_prompt:
            request.statistics.record(len(drafts), accepted, len(kept))
        if request.finish_reason is None:
            depth = min(self.depth, request.remaining - 1)
            if depth > 0:
                self._draft(request, streams, start, depth)
            self._slide(request)
        return StepOutput(tuple(kept), accepted, request.finish_reason)

    def _forward(self, request: Request, token_ids: Sequence[int], start: int) -> Tensor:
        request.pages.reserve(start + len(token_ids))
        rows = [RequestRows(request.pages, start, len(token_ids))]
        return self.model.forward(torch.tensor(token_ids), rows, self.cache)

    def _draft(self, request: Request, streams: Tensor, start: int, depth: int) -> None:
        """Gives the drafter the rows whose tokens are now committed: the streams of each and the token after it.

        Rows that no later query can see are left out (the drafter has a window and nothing else).
        """
        if self.drafter is None:
            return
        known = min(request.num_computed + 1, len(request.token_ids))  # positions below this have a token to pair
        oldest = request.prompt_length - self.config.sliding_window + 1
        first = max(start + 1, min(oldest, known - 1))
        previous = streams[first - 1 - start : known - 1 - start]
        token_ids = request.token_ids[first:known]
        request.pages.reserve(known + max(depth - 1, 0))
        if depth == 0:
            self.drafter.catch_up(previous, token_ids, request.pages, first)
            return
        request.drafts = self.drafter.propose(previous, token_ids, request.pages, first, depth, request.sampler.sample)

    def _slide(self, request: Request) -> None:
        """Gives back the window pages that the row at num_computed, the next to be computed, no longer needs."""
        position = request.num_computed
        request.pages.slide(
            min(
                position - self.config.sliding_window + 1,  # the window
                position // BLOCK_TOKENS * BLOCK_TOKENS,  # the open 1:128 window
                position // 4 * 4 - 4,  # the open 1:4 window and, by overlap, the one before
            )
        )
