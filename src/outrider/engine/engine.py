"""The engine: admits requests, runs steps, publishes tokens."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from outrider import ops
from outrider.cache.layout import BLOCK_TOKENS
from outrider.cache.paged_cache import PagedCache
from outrider.cache.prefix import block_names
from outrider.config import ConfigError, EngineConfig, SpeculativeConfig
from outrider.engine.cost_measurement import measure_costs
from outrider.engine.depth_policy import AdaptiveDepth
from outrider.engine.memory_plan import COMPRESSION_REACH, page_counts
from outrider.engine.request import Request, Status, StepOutput
from outrider.engine.runner import Runner
from outrider.engine.scheduler import Limits, Scheduler
from outrider.engine.stopping import Detokenize, StopRules
from outrider.model.mtp import MultiTokenPredictor
from outrider.model.transformer import Transformer
from outrider.sampling.constraints import TokenMask
from outrider.sampling.noise import derived_seed
from outrider.sampling.params import SamplingParams
from outrider.sampling.sampler import Sampler
from outrider.speculative.acceptance_monitor import AcceptanceReport
from outrider.speculative.cost_tables import CostTables
from outrider.speculative.depth_controller import ControllerReport
from outrider.speculative.drafter import MtpDrafter


@dataclass(frozen=True)
class EngineLoad:
    """What an engine has to do. kv_cache_usage: share of the fuller pool's pages that requests hold, 0 to 1."""

    num_running: int
    num_waiting: int
    kv_cache_usage: float
    num_forwards: int  # passes of the trunk since the start


class Engine:
    """One model served to many requests. Not thread-safe: one thread adds, steps and aborts."""

    def __init__(
        self,
        model: Transformer,
        mtp: MultiTokenPredictor | None = None,
        speculative_config: SpeculativeConfig | None = None,
        engine_config: EngineConfig | None = None,
        *,
        detokenizer: Callable[[], Detokenize] | None = None,
    ) -> None:
        """`detokenizer` makes an incremental detokenizer a request, which stop strings need.

        Raises ConfigError when speculation is asked for and no MTP layer is given, or limits contradict each other.
        """
        self.config = model.config
        self.options = engine_config or EngineConfig()
        if speculative_config is not None and mtp is None:
            raise ConfigError("speculative_config: method mtp needs a checkpoint that has its mtp.* tensors")
        self.depth = speculative_config.num_speculative_tokens if speculative_config else 0
        self.max_model_len = self.options.context_of(self.config)
        self._detokenizer = detokenizer
        window_pages, entry_pages = page_counts(
            self.config.sliding_window, self.max_model_len, self.depth, self.options
        )
        self.cache = PagedCache(
            self.config, window_pages=window_pages, entry_pages=entry_pages, with_drafter=self.depth > 0
        )
        drafter = MtpDrafter(mtp, self.cache.drafter) if mtp is not None and self.cache.drafter is not None else None
        self.runner = Runner(model, self.cache, drafter, max_depth=self.depth)
        if speculative_config is not None and speculative_config.adaptive and drafter is not None:
            self.runner.depth_policy = AdaptiveDepth(self._measured_costs(model, drafter), self.options.max_num_seqs)
        limits = Limits(self.options.max_num_seqs, self.options.max_num_batched_tokens, self.options.max_prefill_tokens)
        self.scheduler = Scheduler(self.cache, limits)
        self._arrivals = itertools.count()
        self._seeds = itertools.count()
        self._requests: dict[str, Request] = {}

    def _measured_costs(self, model: Transformer, drafter: MtpDrafter) -> CostTables:
        with ops.kernel_threads():
            return measure_costs(
                model,
                drafter,
                self.cache,
                max_depth=self.depth,
                max_num_seqs=self.options.max_num_seqs,
                max_rows=self.options.max_num_batched_tokens,
                max_model_len=self.max_model_len,
            )

    @property
    def depth_report(self) -> ControllerReport | None:
        """What the depth controller did and believes; None at a fixed depth and without speculation."""
        policy = self.runner.depth_policy
        return policy.controller.summary() if isinstance(policy, AdaptiveDepth) else None

    @property
    def acceptance_report(self) -> AcceptanceReport | None:
        """Drafts and those that stood, of all requests since the start; None without speculation."""
        return self.runner.acceptance.report() if self.depth else None

    # -------- requests

    def add_request(
        self,
        prompt_token_ids: Sequence[int],
        params: SamplingParams,
        *,
        request_id: str | None = None,
        priority: int = 0,
        speculation: int | None = None,
        mask: TokenMask | None = None,
        salt: bytes | None = None,
        follows: Request | None = None,
    ) -> Request:
        """Validates a request and queues it. `priority`: lower goes first.

        `speculation`: drafts a step for this request, at most what the engine was built for; None: that. `salt`: only
        requests with equal salts share cached blocks (None: all, if prefix caching is on). `follows`: waits for that
        request's prompt, to share its blocks.

        Raises ConfigError: an empty prompt, ids outside the vocabulary, a prompt that leaves no room for output, an id
        that is in use.
        """
        self._check_prompt(prompt_token_ids)
        params.check_token_ids(self.config.vocab_size)
        if params.stop and self._detokenizer is None:
            raise ConfigError("stop: stop strings need a tokenizer, and this engine has none")
        arrival = next(self._arrivals)
        name = f"request-{arrival}" if request_id is None else request_id
        if name in self._requests:
            raise ConfigError(f"request_id: {name!r} is in use")
        seed = self.new_seed() if params.seed is None else params.seed
        ending = frozenset((*params.stop_token_ids, *(() if params.ignore_eos else (self.config.eos_token_id,))))
        max_length = min(len(prompt_token_ids) + params.max_tokens, self.max_model_len)
        shared = b"" if self.options.enable_prefix_caching else None
        request = Request(
            request_id=name,
            prompt_length=len(prompt_token_ids),
            token_ids=list(prompt_token_ids),
            params=params,
            sampler=Sampler(params, seed, prompt_token_ids, ending, mask),
            stop_rules=StopRules(
                max_tokens=max_length - len(prompt_token_ids),
                min_tokens=params.min_tokens,
                stop_token_ids=ending,
                stop=params.stop,
                detokenize=self._detokenizer() if params.stop and self._detokenizer is not None else None,
            ),
            pages=self.cache.new_request(),
            max_length=max_length,
            depth=self.depth if speculation is None else min(speculation, self.depth),
            order=(priority, arrival),
            salt=shared if salt is None else salt,
            follows=follows,
        )
        self._requests[name] = request
        self.scheduler.add(request)
        return request

    def new_seed(self) -> int:
        """A seed for a request that names none: the next of those that the engine's own seed gives, or a drawn one."""
        own = self.options.seed
        return secrets.randbits(64) if own is None else derived_seed(own, next(self._seeds))

    def abort(self, request: Request) -> None:
        """Ends a request in whatever state it is; its pages go back at once. Nothing happens to a finished one."""
        if request.status is not Status.FINISHED:
            request.finish_reason = "abort"
            self._finish(request)

    @property
    def has_unfinished(self) -> bool:
        return bool(self._requests)

    def load(self) -> EngineLoad:
        pools = self.cache.window_pool, self.cache.entry_pool
        return EngineLoad(
            num_running=len(self.scheduler.running),
            num_waiting=len(self.scheduler.waiting),
            kv_cache_usage=max(1 - pool.free_count / (pool.count - 1) for pool in pools),
            num_forwards=self.runner.num_forwards,
        )

    # -------- steps

    def step(self) -> list[StepOutput]:
        """One pass over the rows that the scheduler chose; what it published, in no particular order of requests.

        Prefill chunks publish nothing. A request whose logits are not finite ends with "error", alone.
        """
        work = self.scheduler.schedule()
        if not work:
            return []
        with ops.kernel_threads():
            outputs = self.runner.execute(work)
        for item in work:
            if item.request.finish_reason is not None:
                self._finish(item.request)
            else:
                self._register_blocks(item.request)
                self._slide(item.request)
        return outputs

    def generate(self, request: Request) -> Iterator[StepOutput]:
        """Steps the engine until this request ends, yielding what it publishes; aborts it if the caller stops early."""
        try:
            while request.finish_reason is None:
                yield from (output for output in self.step() if output.request is request)
        finally:
            self.abort(request)

    def _finish(self, request: Request) -> None:
        if request.status is Status.RUNNING and request.finish_reason != "error":
            self._register_blocks(request)
        self.scheduler.remove(request)
        del self._requests[request.request_id]

    def _register_blocks(self, request: Request) -> None:
        """Names the blocks of which every row is final, so that other requests find them."""
        if request.salt is None:
            return
        done = request.num_computed // BLOCK_TOKENS
        if request.num_registered == done:
            return
        if len(request.block_names) < done:  # the names of the prompt are known, these blocks hold output
            request.block_names = block_names(request.token_ids, request.salt)
        for block in range(request.num_registered, done):
            page = request.pages.window[block]
            complete = request.depth > 0 and request.drafter_next >= (block + 1) * BLOCK_TOKENS
            self.cache.has_drafter_rows[page] = complete and request.drafter_first <= max(1, block * BLOCK_TOKENS)
            self.cache.prefixes.register(request.pages, block, request.block_names[block])
        request.num_registered = done

    def _slide(self, request: Request) -> None:
        """Gives back the window pages that the row at num_computed, the next to be computed, no longer needs."""
        position = request.num_computed
        request.pages.slide(
            min(
                position - self.config.sliding_window + 1,
                position // BLOCK_TOKENS * BLOCK_TOKENS,  # the open 1:128 window
                position // 4 * 4 - COMPRESSION_REACH,
            )
        )

    def _check_prompt(self, prompt_token_ids: Sequence[int]) -> None:
        if not prompt_token_ids:
            raise ConfigError("prompt: it has no tokens")
        if not all(0 <= token < self.config.vocab_size for token in prompt_token_ids):
            raise ConfigError(f"prompt: token ids must be in [0, {self.config.vocab_size})")
        if len(prompt_token_ids) >= self.max_model_len:
            raise ConfigError(
                f"prompt: {len(prompt_token_ids)} tokens leave no room in a context of {self.max_model_len}"
            )
