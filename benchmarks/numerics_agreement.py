"""How far the default CPU arithmetic is from the one the model was trained in.

    python benchmarks/numerics_agreement.py [--model M] [--problems 40]

Teacher-forced over held-out problems with their worked answers. Against `--exact-qat` (all rounding that the model was
trained with): the default (KV and indexer rows rounded, activations of the linear layers not), and no rounding at all.
Printed: share of positions with the same best token, mean and largest difference of the logits.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from outrider.assets import shipped_model
from outrider.cache.batch import RequestRows
from outrider.checkpoint.reader import Checkpoint
from outrider.config import EngineConfig, Numerics
from outrider.engine.engine import Engine
from outrider.engine.loading import load_model, load_tokenizer
from outrider.evaluation.arithmetic import problems

MODES = {"exact_qat": Numerics.exact_qat(), "default": Numerics(), "no rounding": Numerics.plain()}


def logits_of(engine: Engine, token_ids: list[int]) -> Tensor:
    pages = engine.cache.new_request()
    pages.reserve(len(token_ids))
    streams = engine.runner.model.forward(
        torch.tensor(token_ids), [RequestRows(pages, 0, len(token_ids))], engine.cache
    )
    pages.release()
    return engine.runner.model.logits(streams)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=None)
    parser.add_argument("--problems", type=int, default=40)
    a = parser.parse_args()
    checkpoint = Checkpoint.open(a.model or shipped_model())
    tokenizer = load_tokenizer(checkpoint)
    texts = [
        [*tokenizer.chat_prompt(p.question), *tokenizer.encode(p.answer)]
        for p in problems(seed=2026, count=a.problems, split="heldout")
    ]
    logits = {}
    for name, numerics in MODES.items():
        engine = load_model(checkpoint, numerics=numerics).engine(engine_config=EngineConfig(max_model_len=512))
        logits[name] = torch.cat([logits_of(engine, text) for text in texts])
    reference = logits.pop("exact_qat")
    print(f"{reference.shape[0]} positions, logits of standard deviation {reference.std():.2f}")
    for name, found in logits.items():
        agree = (found.argmax(-1) == reference.argmax(-1)).float().mean()
        gap = (found - reference).abs()
        print(f"{name:12s} same best token {agree:.4f}, |difference| mean {gap.mean():.4f} max {gap.max():.3f}")


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
