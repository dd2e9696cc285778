"""What a grammar costs a request: compiling it, and the masks of a step, on one core of the host.

    OMP_NUM_THREADS=1 python benchmarks/grammar_masks_cpu.py [--drafts 3] [--answers 20] [--json FILE]

Answers are drawn under the grammar, any allowed token alike, and then taken step by step as an engine takes them: the
drafter asks for the mask in front of each draft, the verifier for those and the one behind the last, and the step's
tokens are accepted. Four in five drafts stand; the others are another allowed token. A mask that is asked for twice is
made once. No model runs. Two vocabularies: the shipped model's, and one as large as DeepSeek-V4's, made by putting
pieces of the shipped one together (its real tokens are in no package).
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import numpy as np

from outrider.assets import shipped_model
from outrider.bench.environment import environment_report
from outrider.checkpoint.reader import Checkpoint
from outrider.config import ModelConfig
from outrider.engine.loading import load_tokenizer
from outrider.server.grammar import json_rule
from outrider.server.grammar_compiler import GrammarCompiler
from outrider.server.grammar_mask import GrammarMask
from outrider.text.tokenizer import Tokenizer

V4_VOCAB_SIZE = 129_280
ACCEPTANCE = 0.8
MOST_TOKENS = 200

SCHEMAS: dict[str, dict[str, Any]] = {
    "any object": {"type": "object", "maxProperties": 4},
    "a few fields": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 20},
            "total": {"type": "integer", "minimum": 0, "maximum": 9999},
            "kind": {"enum": ["add", "take"]},
        },
        "required": ["name", "total", "kind"],
        "additionalProperties": False,
    },
    "list of records": {
        "type": "array",
        "minItems": 2,
        "maxItems": 3,
        "items": {
            "type": "object",
            "properties": {f"field_{i}": {"type": ("integer", "boolean", "null")[i % 3]} for i in range(8)},
            "required": [f"field_{i}" for i in range(8)],
            "additionalProperties": False,
        },
    },
    "pattern": {"type": "string", "pattern": "^([a-z]{2,6}-){3}[0-9]{4}$"},
}


class LargerVocabulary:
    """The shipped tokenizer with more tokens behind its own, in what a grammar's compiler reads of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer, own: int, vocab_size: int) -> None:
        self.added_token_ids = tokenizer.added_token_ids
        self.encode_prompt = tokenizer.encode_prompt
        self._bytes = [tokenizer.token_bytes(token) for token in range(own)]
        plain = [data for token, data in enumerate(self._bytes) if token not in self.added_token_ids]
        rng, known = random.Random(0), set(self._bytes)
        while len(self._bytes) < vocab_size:
            data = rng.choice(plain) + rng.choice(plain)
            if data not in known:
                known.add(data)
                self._bytes.append(data)

    def token_bytes(self, token: int) -> bytes:
        return self._bytes[token]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drafts", type=int, default=3)
    parser.add_argument("--answers", type=int, default=20, help="for each schema")
    parser.add_argument("--json", type=Path, default=None)
    a = parser.parse_args()
    checkpoint = Checkpoint.open(shipped_model())
    tokenizer, config = load_tokenizer(checkpoint), checkpoint.config
    larger = cast(Tokenizer, LargerVocabulary(tokenizer, config.vocab_size, V4_VOCAB_SIZE))
    report: dict[str, Any] = environment_report() | {"drafts": a.drafts, "answers": a.answers, "vocabularies": {}}
    for vocabulary, own in ((tokenizer, config), (larger, config.model_copy(update={"vocab_size": V4_VOCAB_SIZE}))):
        begin = perf_counter()
        compiler = GrammarCompiler(vocabulary, own)
        print(f"{own.vocab_size:,} tokens: {perf_counter() - begin:.2f} s for the vocabulary, once")
        found = report["vocabularies"][own.vocab_size] = {}
        for name, schema in SCHEMAS.items():
            figures = found[name] = measure(compiler, own, schema, a.drafts, a.answers)
            print(
                f"  {name:16} compile {figures['compile_ms']:5.1f} ms, mask {figures['mask_us_p50']:4.0f} us "
                f"(p99 {figures['mask_us_p99']:5.0f}), step {figures['step_us_p50']:4.0f} us "
                f"(p99 {figures['step_us_p99']:5.0f}), {figures['masks_a_step']:.1f} masks and "
                f"{figures['tokens_a_step']:.1f} tokens a step"
            )
    if a.json is not None:
        a.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def measure(
    compiler: GrammarCompiler, config: ModelConfig, schema: Mapping[str, Any], drafts: int, answers: int
) -> dict[str, float]:
    text = "start: answer\nanswer: " + json_rule(schema)
    compiles, masks, steps, tokens = [], [], [], 0
    for seed in range(answers):
        begin = perf_counter()
        matcher = compiler.matcher(text)
        compiles.append(perf_counter() - begin)
        assert not matcher.is_error(), matcher.get_error()
        rng = random.Random(seed)
        answer = draw(GrammarMask(matcher.deep_copy(), config.vocab_size, config.eos_token_id), config, rng)
        mask = GrammarMask(matcher, config.vocab_size, config.eos_token_id)
        at = 0
        while at < len(answer):
            taken, own = step(mask, answer[at:], drafts, rng)
            at, tokens = at + taken, tokens + taken
            masks += own[:-1]
            steps.append(sum(own))
    return {
        "compile_ms": float(np.median(compiles)) * 1e3,
        "mask_us_p50": float(np.percentile(masks, 50)) * 1e6,
        "mask_us_p99": float(np.percentile(masks, 99)) * 1e6,
        "step_us_p50": float(np.percentile(steps, 50)) * 1e6,
        "step_us_p99": float(np.percentile(steps, 99)) * 1e6,
        "masks_a_step": len(masks) / len(steps),
        "tokens_a_step": tokens / len(steps),
    }


def draw(mask: GrammarMask, config: ModelConfig, rng: random.Random) -> list[int]:
    """Token ids of one answer, the end token included unless it is cut."""
    answer: list[int] = []
    while len(answer) < MOST_TOKENS and (not answer or answer[-1] != config.eos_token_id):
        answer.append(another(mask, [], rng))
        mask.accept(answer[-1:])
    return answer


def another(mask: GrammarMask, drafts: list[int], rng: random.Random) -> int:
    allowed = mask.allowed(drafts)
    assert allowed is not None
    return int(rng.choice(allowed.nonzero().flatten().tolist()))


def step(mask: GrammarMask, coming: list[int], drafts: int, rng: random.Random) -> tuple[int, list[float]]:
    """(tokens taken, seconds of every mask that was made and of the tokens' acceptance)."""
    guessed: list[int] = []
    stands = 0
    seconds = []
    for place in range(drafts + 1):
        begin = perf_counter()
        allowed = mask.allowed(guessed)
        seconds.append(perf_counter() - begin)
        if allowed is None or place == drafts:  # nothing comes behind an end
            break
        if stands == place and place < len(coming) and rng.random() < ACCEPTANCE:
            guessed.append(coming[place])
            stands += 1
        else:
            guessed.append(another(mask, guessed, rng))
    taken = min(stands + 1, len(coming))
    begin = perf_counter()
    mask.accept(coming[:taken])
    seconds.append(perf_counter() - begin)
    return taken, seconds


if __name__ == "__main__":
    main()
