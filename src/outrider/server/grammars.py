"""Compiles grammars for the model's vocabulary, beside the event loop and the engine.

A grammar is bounded in size before it is compiled (`grammar.py`), and in time by a process that tries it first
(`grammar_trial.py`); llguidance lets other threads run while it compiles.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from llguidance import LLMatcher

from outrider.config import ModelConfig
from outrider.server.errors import OVERLOADED, ApiError, invalid
from outrider.server.grammar import Grammar, json_rule
from outrider.server.grammar_compiler import GrammarCompiler
from outrider.server.grammar_mask import GrammarMask
from outrider.server.grammar_trial import GrammarTrial
from outrider.text.tokenizer import Tokenizer

MAX_TEXT = 256 << 10  # characters of a grammar
COMPILE_SECONDS = 3.0
_WAIT_SECONDS = 30.0  # for other grammars, and for its own
_KEPT = 64  # compiled grammars
_WORKERS = 2


class Grammars:
    """The grammars of one model."""

    def __init__(self, tokenizer: Tokenizer, config: ModelConfig, *, seconds: float = COMPILE_SECONDS) -> None:
        """seconds: how long a grammar may take to compile."""
        self._config = config
        self._compiler = GrammarCompiler(tokenizer, config)
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="outrider-grammar")
        self._trials: SimpleQueue[GrammarTrial] = SimpleQueue()
        for _ in range(_WORKERS):
            self._trials.put(GrammarTrial(tokenizer, config, seconds))

    async def masks(self, grammar: Grammar, count: int) -> list[GrammarMask]:
        """One for each of `count` continuations. Raises ApiError, which names the field, for what cannot be served."""
        field = grammar.schemas[0][0] if grammar.schemas else "tools"
        if len(grammar.text) > MAX_TEXT:
            raise invalid(field, f"a grammar of {len(grammar.text)} characters, at most {MAX_TEXT} are served")
        matcher = self._compiled.get(grammar.text) or await self._compile_beside(grammar, field)
        self._compiled[grammar.text] = matcher
        self._compiled.move_to_end(grammar.text)
        while len(self._compiled) > _KEPT:
            self._compiled.popitem(last=False)
        size, eos = self._config.vocab_size, self._config.eos_token_id
        return [GrammarMask(matcher.deep_copy(), size, eos) for _ in range(count)]

    async def _compile_beside(self, grammar: Grammar, field: str) -> LLMatcher:
        compiling = asyncio.get_running_loop().run_in_executor(self._workers, self._compile, grammar, field)
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                return await compiling
        except TimeoutError:
            raise ApiError(
                429,
                f"the server is busy with other grammars; this one was not ready within {_WAIT_SECONDS:g} s",
                kind=OVERLOADED,
                code="queue_full",
                headers={"Retry-After": "1"},
            ) from None

    def _compile(self, grammar: Grammar, field: str) -> LLMatcher:
        parts = [(part, f"start: {json_rule(schema)}") for part, schema in grammar.schemas]
        trial = self._trials.get()
        try:
            problem = trial.problem(grammar.text, parts, field)
        finally:
            self._trials.put(trial)
        if problem is not None:
            raise invalid(*problem)
        return self._compiler.matcher(grammar.text)
