"""`outrider doctor`'s ten seconds: does the drafter draft, does it change nothing, do the kernels compute the model?"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from outrider import ops
from outrider.assets import shipped_model
from outrider.checkpoint.reader import Checkpoint
from outrider.cli.timed_run import TimedRun, run_once
from outrider.config import ConfigError, EngineConfig, LayerKind, Numerics, SpeculativeConfig
from outrider.engine.engine import Engine
from outrider.engine.loading import load_model, load_tokenizer
from outrider.engine.scoring import teacher_forced_logits
from outrider.evaluation import arithmetic
from outrider.model.transformer import Transformer
from outrider.sampling.params import SamplingParams

TOKENS = 64  # generated, by each arm
LEAST_ACCEPTANCE = 0.3  # of first drafts. An MTP layer that is wired wrongly gets next to none
LARGEST_ERROR = 1e-3  # of one layer's logits, relative to their largest: rounding is 1e-6, a wrong kernel is 1
LAYER_TOKENS = 320  # beyond what the indexer takes whole
_CHILD_SECONDS = 120


@dataclass(frozen=True)
class Check:
    """ok None: there is nothing here to be tested."""

    name: str
    ok: bool | None
    detail: str


def run_checks() -> Iterator[Check]:
    """One after the other, as they are done."""
    try:
        shipped_model()
    except ConfigError as error:
        yield Check("self-test", None, str(error))
        return
    yield from _speculation()
    yield _kernels()


def _speculation() -> Iterator[Check]:
    checkpoint = Checkpoint.open(shipped_model())
    tokenizer = load_tokenizer(checkpoint)
    speculation = SpeculativeConfig(method="mtp", num_speculative_tokens=3, adaptive=False)
    options = EngineConfig(max_num_seqs=1, max_model_len=256, enable_prefix_caching=False)
    loaded = load_model(checkpoint, speculative_config=speculation, engine_config=options, engines=2)
    question = next(arithmetic.problems(1, 1, "train")).question
    prompt = tokenizer.chat_prompt(question)
    params = SamplingParams(max_tokens=TOKENS, ignore_eos=True, seed=1)
    plain = run_once(loaded.engine(None), prompt, params)
    drafted = run_once(loaded.engine(speculation), prompt, params)
    first = (drafted.statistics.acceptance_per_position or [0.0])[0]
    detail = (
        f"{first:.2f} of first drafts stood (at least {LEAST_ACCEPTANCE}), acceptance length "
        f"{drafted.statistics.acceptance_length:.2f}; {_speed(plain)} plain, {_speed(drafted)} with 3 drafts"
    )
    yield Check("drafter", first >= LEAST_ACCEPTANCE, detail)
    same = plain.token_ids == drafted.token_ids
    yield Check("same text with and without drafts", same, f"{TOKENS} tokens" if same else "THE TEXTS DIFFER")


def _speed(run: TimedRun) -> str:
    return "-" if run.tokens_per_second is None else f"{run.tokens_per_second:.0f} tokens/s"


def _kernels() -> Check:
    """This process's backends against the reference, which a second process computes: ops are bound at import."""
    name = "kernels against the reference, one layer"
    used = sorted(set(ops.backends().values()) - {"reference"})
    if not used:
        return Check(name, None, "every op is the reference")
    try:
        expected = _reference_logits()
    except (subprocess.SubprocessError, OSError) as failure:
        said = (getattr(failure, "stderr", None) or str(failure)).strip().splitlines()[-1]
        return Check(name, False, f"the reference failed: {said}")
    found = layer_logits()
    error = float((found - expected).abs().max() / expected.abs().max())
    detail = f"{', '.join(used)}: largest error {error:.1e} of the largest logit (at most {LARGEST_ERROR:g})"
    return Check(name, error <= LARGEST_ERROR, detail)  # NaN is not


def _reference_logits() -> Tensor:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "logits.pt")
        code = "import sys; sys.modules['numba'] = sys.modules['triton'] = None; "
        code += "from outrider.cli.self_test import write_layer_logits; write_layer_logits(sys.argv[1])"
        command = [sys.executable, "-c", code, path]
        subprocess.run(command, capture_output=True, text=True, timeout=_CHILD_SECONDS, check=True)
        found: Tensor = torch.load(path, weights_only=True)
        return found


def write_layer_logits(path: str) -> None:
    """Computes `layer_logits` with whatever this process has, and writes it."""
    torch.save(layer_logits(), path)


def layer_logits() -> Tensor:
    """[T, V] float32, of a model of one layer: the shipped one's first with an indexer and a learned router."""
    checkpoint = Checkpoint.open(shipped_model())
    config = checkpoint.config
    layer = next(
        number
        for number, kind in enumerate(config.layer_kinds)
        if kind is LayerKind.CSA and number >= config.num_hash_layers
    )
    prefix = f"layers.{layer}."
    names = [n for n in checkpoint.weight_names() if n.startswith(prefix) or not n.startswith(("layers.", "mtp."))]
    weights: Mapping[str, Tensor] = {
        name.replace(prefix, "layers.0."): weight for name, weight in checkpoint.iter_weights(names)
    }
    one_layer = config.model_copy(
        update={"num_hidden_layers": 1, "num_hash_layers": 0, "compress_ratios": (int(LayerKind.CSA), 0)}
    )
    model = Transformer(one_layer, weights, Numerics.plain())
    tokenizer = load_tokenizer(checkpoint)
    text = "\n".join(arithmetic.as_text(problem) for problem in arithmetic.problems(1, 8))
    ids = tokenizer.completion_prompt(text)[:LAYER_TOKENS]
    return teacher_forced_logits(Engine(model, engine_config=EngineConfig(max_num_seqs=1, max_model_len=512)), ids)
