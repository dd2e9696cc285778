"""Compiles grammars for the model's vocabulary, beside the event loop and the engine.

A grammar is bounded in size before it is compiled (`grammar.py`), in work by llguidance's own limits, and in the time
that a request waits for it. llguidance lets other threads run while it compiles.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from outrider.config import ModelConfig
from outrider.server.errors import invalid
from outrider.server.grammar import Grammar, json_rule
from outrider.server.grammar_mask import GrammarMask, error_line
from outrider.text.encoding import ChatPrompt
from outrider.text.protocol import DSML
from outrider.text.tokenizer import Tokenizer

MAX_TEXT = 256 << 10  # characters of a grammar
COMPILE_SECONDS = 5.0
_KEPT = 64  # compiled grammars
_WORKERS = 2


class Grammars:
    """The grammars of one model."""

    def __init__(self, tokenizer: Tokenizer, config: ModelConfig, *, seconds: float = COMPILE_SECONDS) -> None:
        """seconds: how long a request waits for its grammar."""
        self._config = config
        self._seconds = seconds
        self._vocabulary = LLTokenizer(
            TokenizerWrapper(_Vocabulary(tokenizer, config)), n_vocab=config.vocab_size, eos_token=config.eos_token_id
        )
        # what one step may cost is bounded too: other requests wait for it
        self._limits = LLParserLimits(
            step_lexer_fuel=50_000, step_max_items=20_000, max_lexer_states=50_000, verbose_errors=False
        )
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="outrider-grammar")

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
            async with asyncio.timeout(self._seconds):
                return await compiling
        except TimeoutError:
            raise invalid(field, f"its grammar was not ready within {self._seconds:g} s") from None

    def _compile(self, grammar: Grammar, field: str) -> LLMatcher:
        matcher = self._matcher(grammar.text)
        if matcher.is_error():
            for part, schema in grammar.schemas:
                alone = self._matcher(f"start: {json_rule(schema)}")
                if alone.is_error():
                    raise invalid(part, error_line(alone))
            raise invalid(field, error_line(matcher))
        first = matcher.deep_copy()
        first.compute_bitmask()
        if first.is_error():
            raise invalid(field, f"no answer can follow it ({error_line(first)})")
        return matcher

    def _matcher(self, text: str) -> LLMatcher:
        return LLMatcher(self._vocabulary, text, limits=self._limits, log_level=0)


class _Vocabulary:
    """What llguidance wants to know of a tokenizer. In a grammar's eyes `｜DSML｜` is text, other added tokens are not.

    Where a grammar leaves no choice it asks for the tokens that the text would be encoded as.
    """

    def __init__(self, tokenizer: Tokenizer, config: ModelConfig) -> None:
        self.bos_token_id = config.bos_token_id
        self.eos_token_id = config.eos_token_id
        self.tokens = [tokenizer.token_bytes(token) for token in range(config.vocab_size)]
        dsml = DSML.encode()
        self.special_token_ids = [token for token in tokenizer.added_token_ids if self.tokens[token] != dsml]
        self._tokenizer = tokenizer

    def __call__(self, text: str) -> list[int]:
        spans = tuple(match.span() for match in re.finditer(DSML, text))
        return self._tokenizer.encode_prompt(ChatPrompt(text, spans, starts_in_reasoning=False))
