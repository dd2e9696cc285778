"""llguidance for one model's vocabulary: from the text of a grammar to a matcher. Imports no torch (see `trial`)."""

from __future__ import annotations

import re

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from outrider.config import ModelConfig
from outrider.text.encoding import ChatPrompt
from outrider.text.protocol import DSML
from outrider.text.tokenizer import Tokenizer


class GrammarCompiler:
    def __init__(self, tokenizer: Tokenizer, config: ModelConfig) -> None:
        self._vocabulary = LLTokenizer(
            TokenizerWrapper(_Vocabulary(tokenizer, config)), n_vocab=config.vocab_size, eos_token=config.eos_token_id
        )
        # what one step may cost is bounded: other requests wait for it
        self._limits = LLParserLimits(
            step_lexer_fuel=50_000, step_max_items=20_000, max_lexer_states=50_000, verbose_errors=False
        )

    def matcher(self, text: str) -> LLMatcher:
        """At its start; `is_error` says whether it is of any use. Most texts take milliseconds, some take hours."""
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


def error_line(matcher: LLMatcher) -> str:
    """What is wrong with it, in one line."""
    text = matcher.get_error().partition("\n   1 |")[0].partition("<backtrace>")[0]
    text = text.rpartition("failed to compile JSON schema: ")[2]
    return " ".join(text.replace("<non-verbose/>", "").split())[:300]
