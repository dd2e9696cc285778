"""The workspace of the memory plan is an upper bound of what steps are seen to take."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.histories import SHAPE
from tests.tiny import random_tensors, tiny_config
from torch.profiler import ProfilerActivity, profile

from outrider.config import EngineConfig, Numerics, SpeculativeConfig, parse_model_config
from outrider.engine.engine import Engine
from outrider.engine.workspace import workspace_bytes
from outrider.model.mtp import MultiTokenPredictor
from outrider.model.transformer import Transformer
from outrider.sampling.params import SamplingParams

DEPTH = 3
# whatever takes memory beside the model itself
PARAMS = SamplingParams(temperature=0.8, top_p=0.9, top_k=40, seed=1, max_tokens=3, logprobs=5, prompt_logprobs=5)
SHAPES: dict[str, dict[str, Any]] = {
    "narrow": {},
    "wide heads": {"num_attention_heads": 16, "head_dim": 64, "q_lora_rank": 64, "sliding_window": 128},
    "many experts": {"n_routed_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 128},
    "large vocabulary": {"vocab_size": 2048},
    "short lists": {"index_topk": 64, "index_n_heads": 32},
}


def peak_bytes(engine: Engine) -> int:
    """The most that PyTorch holds at a time in any step of the engine's work, beyond what it held before."""
    peak = 0
    while engine.has_unfinished:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
            engine.step()
        held = 0
        for event in record.profiler.kineto_results.events():
            if event.name() == "[memory]":
                held += event.nbytes()
                peak = max(peak, held)
    return peak


@pytest.mark.parametrize(("shape", "rows"), [*((shape, 32) for shape in SHAPES), ("many experts", 128)])
def test_no_step_takes_more(shape: str, rows: int) -> None:
    config = parse_model_config(tiny_config(**{**SHAPE, **SHAPES[shape]}))
    weights = random_tensors(config)
    with torch.inference_mode():
        trunk = Transformer(config, weights, Numerics())
        mtp = MultiTokenPredictor(trunk, weights, Numerics())
    options = EngineConfig(max_model_len=320, max_num_seqs=4, max_num_batched_tokens=rows, max_prefill_tokens=rows)
    engine = Engine(trunk, mtp, SpeculativeConfig(method="mtp", num_speculative_tokens=DEPTH, adaptive=False), options)
    generator = torch.Generator().manual_seed(3)
    for length in (1, 150, 300):
        prompt = torch.randint(2, config.vocab_size, (length,), generator=generator).tolist()
        engine.add_request(prompt, PARAMS)
    planned = workspace_bytes(config, engine.max_model_len, DEPTH, options)
    taken = peak_bytes(engine)
    assert planned / 8 < taken <= planned, (taken, planned)
