"""Seeded histories for the engine: who asks what, when, with which limits. The same seed gives the same history."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import torch
from tests.masks import HashMask
from tests.tiny import random_tensors, tiny_config

from outrider.config import ConfigError, EngineConfig, Numerics, parse_model_config
from outrider.engine.memory_plan import page_counts
from outrider.model.mtp import MultiTokenPredictor
from outrider.model.transformer import Transformer
from outrider.sampling.noise import derived_seed
from outrider.sampling.params import SamplingParams

VOCAB = 64
WINDOW = 16
LONGEST = 320
BASES = 4  # texts whose beginnings prompts share
BOOK = 32  # asks of each base that come up again and again, so that their plain answers can be kept
SHAPE: dict[str, Any] = {
    "num_hidden_layers": 2, "compress_ratios": [4, 128, 0], "num_hash_layers": 1, "hc_sinkhorn_iters": 2,
    "hc_mult": 2, "sliding_window": WINDOW, "vocab_size": VOCAB, "max_position_embeddings": 512, "hidden_size": 32,
    "num_attention_heads": 2, "head_dim": 32, "q_lora_rank": 16, "o_lora_rank": 16, "n_routed_experts": 4,
    "moe_intermediate_size": 32, "index_n_heads": 8,
}  # fmt: skip


class Model(NamedTuple):
    trunk: Transformer
    mtp: MultiTokenPredictor


@dataclass(frozen=True)
class Ask:
    """One request of a history. follows: index of the request whose prompt it waits for."""

    prompt: tuple[int, ...]
    params: SamplingParams
    mask: tuple[int, int] | None = None  # (salt, share) of a HashMask
    arrives: int = 0  # step
    aborted: int | None = None  # step
    priority: int = 0
    speculation: int | None = None
    right: tuple[int, ...] | None = None  # an oracle, right for so many of its i-th drafts; None: the MTP layer itself
    follows: int | None = None
    stop_at: int | None = None  # the output token of this index becomes a stop token

    def new_mask(self) -> HashMask | None:
        return None if self.mask is None else HashMask(VOCAB, *self.mask)


@dataclass(frozen=True)
class History:
    seed: int
    depth: int  # 0: no speculation
    options: EngineConfig
    asks: tuple[Ask, ...]
    poison: bool  # fill free pages with NaN as they are given back
    random_depths: bool  # instead of a fixed one

    def describe(self) -> str:
        """One line that tells what kind of history it is."""
        o = self.options
        lengths = "+".join(str(len(ask.prompt)) for ask in self.asks)
        return (
            f"seed {self.seed}: depth {self.depth}, prompts {lengths}, {o.max_num_seqs} seqs, "
            f"{o.max_num_batched_tokens}/{o.max_prefill_tokens} tokens, pages {o.window_pages}/{o.entry_pages}, "
            f"context {o.max_model_len}, prefix caching {o.enable_prefix_caching}, poison {self.poison}, "
            f"random depths {self.random_depths}"
        )


@cache
def tiny_model(seed: int = 0, **overrides: Any) -> Model:
    """Two narrow layers that compress, each with its window, and the MTP layer, which has only a window."""
    config = parse_model_config(tiny_config(**{**SHAPE, **overrides}))
    weights = random_tensors(config, seed)
    with torch.inference_mode():
        trunk = Transformer(config, weights, Numerics())
        return Model(trunk, MultiTokenPredictor(trunk, weights, Numerics()))


def least_pages(options: EngineConfig, depth: int, sliding_window: int = WINDOW) -> tuple[int, int]:
    """The smallest legal (window pages, entry pages) for these limits."""
    context = options.max_model_len
    assert context is not None

    def legal(**pages: int) -> bool:
        try:
            page_counts(sliding_window, context, depth, options.model_copy(update=pages))
        except ConfigError:
            return False
        return True

    counts = range(2, 1000)
    return (
        next(n for n in counts if legal(window_pages=n, entry_pages=1000)),
        next(n for n in counts if legal(window_pages=1000, entry_pages=n)),
    )


def make_history(seed: int) -> History:
    rng = random.Random(seed)
    depth = rng.choice([0, 1, 2, 3, 3, 5, 7])
    context = rng.choice([64, 140, LONGEST, LONGEST, LONGEST])
    crowd = rng.random() < 0.3  # many requests that outgrow their block, in the smallest pools: preemption
    if crowd:
        context = LONGEST
    seqs = rng.randint(4, 8) if crowd else rng.randint(1, 8)
    options = EngineConfig(
        max_model_len=context,
        max_num_seqs=seqs,
        max_num_batched_tokens=rng.choice([max(seqs, 8), 13, 16, 32, 64, 200]),
        max_prefill_tokens=rng.choice([1, 5, 16, 64, 256]) if rng.random() < 0.5 else 256,
        enable_prefix_caching=rng.random() < 0.75,
    )
    window_pages, entry_pages = least_pages(options, depth)
    if crowd or rng.random() < 0.7:  # tiny pools
        most = 1 if crowd else 3
        pages = {"window_pages": window_pages + rng.randint(0, most), "entry_pages": entry_pages + rng.randint(0, most)}
        options = options.model_copy(update=pages)
    text = rng.randrange(BASES)
    base = _base(text)
    asks: list[Ask] = []
    step = 0
    for _ in range(rng.randint(2, 6)):
        asked = _book(text, rng.randrange(BOOK)) if rng.random() < 0.7 else _ask(rng, base)
        ask = _arrival(rng, asked, context, depth, step)
        if crowd:
            length = rng.choice([128, 128, 256]) - rng.randint(0, 11)
            prompt = (*base[: rng.choice([0, 0, 128])], *(rng.randrange(2, VOCAB) for _ in range(length)))[:length]
            ask = replace(ask, prompt=prompt, params=replace(ask.params, max_tokens=16))
        asks.append(ask)
        if rng.random() < 0.15:  # three samples of one prompt
            leader = len(asks) - 1
            for index in (1, 2):
                params = replace(ask.params, seed=derived_seed(ask.params.seed or 0, index), n=1)
                asks.append(replace(ask, params=params, follows=leader, aborted=None, right=_right(rng, depth)))
        step += rng.choice([0, 0, 1, 2, 3]) if crowd else rng.choice([0, 0, 1, 2, 4, 7])
    return History(seed, depth, options, tuple(asks), poison=rng.random() < 0.5, random_depths=seed % 2 == 1)


def _base(text: int) -> list[int]:
    rng = random.Random(f"base {text}")
    return [rng.randrange(2, VOCAB) for _ in range(LONGEST)]


@cache
def _book(text: int, page: int) -> Ask:
    return _ask(random.Random(f"ask {text} {page}"), _base(text))


def _ask(rng: random.Random, base: list[int]) -> Ask:
    """What is asked for: all that its plain answer depends on."""
    params = _params(rng)
    return Ask(
        prompt=tuple(_prompt(rng, base)),
        params=params,
        mask=(rng.randrange(10_000), rng.randint(1, 7)) if rng.random() < 0.25 else None,
        stop_at=rng.randrange(params.max_tokens) if rng.random() < 0.3 else None,
    )


def _arrival(rng: random.Random, ask: Ask, context: int, depth: int, step: int) -> Ask:
    """When and how it comes to the engine."""
    return replace(
        ask,
        prompt=ask.prompt[: context - 1],
        arrives=step,
        aborted=step + rng.randint(0, 15) if rng.random() < 0.15 else None,
        priority=rng.choice([0, 0, 0, 1, -1]),
        speculation=rng.choice([0, 1, 2]) if rng.random() < 0.2 else None,
        right=_right(rng, depth),
    )


def _right(rng: random.Random, depth: int) -> tuple[int, ...] | None:
    if rng.random() < 0.25:
        return None
    return tuple(rng.randint(0, depth) for _ in range(rng.randint(1, 4)))


def _prompt(rng: random.Random, base: list[int]) -> list[int]:
    kind = rng.random()
    if kind < 0.25:
        length = rng.randint(1, rng.choice([2, 40, 40]))
    elif kind < 0.45:
        length = 4 * rng.randint(1, 9) + rng.randint(-1, 1)
    elif kind < 0.55:
        length = WINDOW * rng.randint(1, 2) + rng.randint(-1, 1)
    elif kind < 0.75:
        length = rng.choice([120, 126, 127, 128, 129, 130, 131, 132, 140])
    elif kind < 0.9:
        length = rng.randint(115, 145)
    else:
        length = rng.choice([250, 254, 255, 256, 257, 258, 260])
    shared = rng.choice([0, length, length - 1, 127, 128, 129, 255, 256])
    shared = max(0, min(shared, length))
    return base[:shared] + [rng.randrange(2, VOCAB) for _ in range(length - shared)]


def _params(rng: random.Random) -> SamplingParams:
    def often(probability: float) -> bool:
        return rng.random() < probability

    max_tokens = rng.choice([1, 2, 3, 5, 8, 12, 16])
    changed: dict[str, Any] = {"max_tokens": max_tokens, "seed": rng.getrandbits(64)}
    if often(0.6):
        changed["temperature"] = 0.7
        if often(0.3):
            changed["top_p"] = rng.choice([0.3, 0.8, 0.95])
        if often(0.3):
            changed["min_p"] = rng.choice([0.02, 0.2])
        if often(0.3):
            changed["top_k"] = rng.choice([1, 3, 20])
    if often(0.2):
        changed["frequency_penalty"] = rng.choice([2.0, 0.5, -0.5])
    if often(0.2):
        changed["presence_penalty"] = rng.choice([1.5, -0.5])
    if often(0.2):
        changed["repetition_penalty"] = rng.choice([1.3, 0.8])
    if often(0.15):
        changed["logit_bias"] = {rng.randrange(VOCAB): rng.choice([-50.0, 1.5, 4.0]) for _ in range(3)}
    if often(0.2):
        # short words over few tokens, so that they do come up
        words = [tuple(rng.randrange(VOCAB) for _ in range(rng.randint(1, 2))) for _ in range(12)]
        changed["bad_words"] = tuple(words)
    if often(0.15):
        changed["allowed_token_ids"] = tuple(sorted(rng.sample(range(2, VOCAB), 20)))
    if often(0.2):
        changed["min_tokens"] = rng.randint(0, max_tokens)
    if often(0.4):
        changed["ignore_eos"] = True
    if often(0.5):
        changed["logprobs"] = rng.randint(0, 3)
    if often(0.15):
        changed["prompt_logprobs"] = rng.randint(0, 2)
    return SamplingParams(**changed)
