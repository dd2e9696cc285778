"""Plain decode on the CPU at batch 1 against Hugging Face transformers: same weights, same run, same threads.

    python benchmarks/plain_decode_cpu.py [--model M] [--tokens 48] [--rounds 5] [--threads N]

Both arms decode greedily after the same prompt, with their KV caches on, in float32. transformers loads the weights
dequantised, from a checkpoint written for the purpose; it does not round the KV rows, so texts can part (printed).
Arms alternate; the time of a round is that of the tokens after the first.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from transformers import DeepseekV4ForCausalLM

from outrider import ops
from outrider.assets import shipped_model
from outrider.bench.environment import environment_report
from outrider.checkpoint.reader import Checkpoint
from outrider.checkpoint.writer import write_checkpoint
from outrider.cli.timed_run import run_once
from outrider.config import EngineConfig, parse_model_config
from outrider.engine.loading import load_model, load_tokenizer
from outrider.evaluation.arithmetic import problems
from outrider.sampling.params import SamplingParams


def transformers_model(checkpoint: Checkpoint) -> Any:
    """The same weights as float32 in a DeepseekV4ForCausalLM."""
    raw = json.loads((checkpoint.folder / "config.json").read_text())
    for field in ("quantization_config", "expert_dtype"):
        raw.pop(field, None)
    raw["torch_dtype"] = "float32"
    weights = dict(checkpoint.iter_weights())
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder), parse_model_config(raw), weights, config_json=raw)
        return DeepseekV4ForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def transformers_decode(model: Any, prompt: list[int], count: int) -> tuple[list[int], float]:
    """Greedy tokens after the prompt, and seconds for those after the first."""
    out = model(input_ids=torch.tensor([prompt]), use_cache=True)
    tokens = [int(out.logits[0, -1].argmax())]
    start = perf_counter()
    while len(tokens) < count:
        out = model(input_ids=torch.tensor([tokens[-1:]]), cache=out.cache, use_cache=True)
        tokens.append(int(out.logits[0, -1].argmax()))
    return tokens, perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=None)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None)
    a = parser.parse_args()
    if a.threads:
        torch.set_num_threads(a.threads)
    checkpoint = Checkpoint.open(a.model or shipped_model())
    (problem,) = problems(seed=2026, count=1, split="heldout")
    prompt = load_tokenizer(checkpoint).chat_prompt(problem.question)
    engine = load_model(checkpoint).engine(engine_config=EngineConfig(max_num_seqs=1, enable_prefix_caching=False))
    params = SamplingParams(max_tokens=a.tokens, ignore_eos=True)
    peer = transformers_model(checkpoint)

    ours, theirs = [], []
    for number in range(-1, a.rounds):  # the round before the first warms up
        run = run_once(engine, prompt, params)
        tokens, seconds = transformers_decode(peer, prompt, a.tokens)
        if number >= 0:
            ours.append((a.tokens - 1) / run.decode_seconds)
            theirs.append((a.tokens - 1) / seconds)
    same = next((i for i, (x, y) in enumerate(zip(run.token_ids, tokens, strict=True)) if x != y), a.tokens)
    ratios = sorted(x / y for x, y in zip(ours, theirs, strict=True))
    print(f"outrider {median(ours):.1f} tok/s, transformers {median(theirs):.1f} tok/s")
    print(f"ratio {median(ratios):.2f} [{ratios[0]:.2f}, {ratios[-1]:.2f}]; same tokens up to {same} of {a.tokens}")
    print(json.dumps(environment_report() | {"backends": ops.backends()}))


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
