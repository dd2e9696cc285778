"""The trunk against an implementation that shares nothing with ours: transformers' DeepseekV4ForCausalLM, float32.

Two random tiny models with every layer kind and both routings, 300 tokens. Both sides run without round trips; 16 index
heads keep exact zero scores, whose order is nobody's business, away from the cut-off.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tests.model.driving import TINY, TINY_CONFIGS, Session, TinyModel, random_ids, tiny_model
from torch import Tensor

from outrider import ops
from outrider.checkpoint.reader import Checkpoint
from outrider.checkpoint.writer import write_checkpoint
from outrider.config import Numerics, parse_model_config
from outrider.model.transformer import Transformer
from outrider.ops.reference import activations, experts

LENGTH = 300
TOLERANCE = 1e-4
WRONG = 1e-2


def from_pretrained(folder: Path) -> Any:
    """Loads official tensor names; every parameter of theirs must be in the files, and all files must be used."""
    from transformers import DeepseekV4ForCausalLM

    loaded: Any = DeepseekV4ForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    model, info = loaded
    assert not any(info.values()), info
    return model.eval()


@dataclass(frozen=True)
class Pair:
    """One model on both sides, and what theirs says to 300 tokens."""

    ours: TinyModel
    theirs: Any
    ids: Tensor
    logits: Tensor


@pytest.fixture(scope="module", params=TINY_CONFIGS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    ours = tiny_model(TINY_CONFIGS[request.param])
    assert ours.config.index_n_heads >= 16
    folder = tmp_path_factory.mktemp("hf")
    save_file(dict(ours.weights), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(ours.fields), encoding="utf-8")
    theirs = from_pretrained(folder)
    ids = random_ids(ours.config, LENGTH)
    return Pair(ours, theirs, ids, theirs(input_ids=ids[None], use_cache=False).logits[0])


def largest_difference(actual: Tensor, expected: Tensor) -> float:
    assert actual.shape == expected.shape
    return float((actual - expected).abs().max())


def test_prefill(pair: Pair) -> None:
    logits = Session(pair.ours).logits(pair.ids)
    assert largest_difference(logits, pair.logits) < TOLERANCE
    assert pair.logits.std() > 0.5  # the models say something


@pytest.mark.parametrize("start", [122, 250])
def test_decode_one_by_one(pair: Pair, start: int) -> None:
    """Both caches, across the ends of 1:4 windows and of a 1:128 window (127 and 255)."""
    session, end = Session(pair.ours), start + 12
    assert any((t + 1) % 128 == 0 for t in range(start, end))
    ours = [session.logits(pair.ids[:start])[-1]]
    out = pair.theirs(input_ids=pair.ids[None, :start], use_cache=True)
    theirs = [out.logits[0, -1]]
    for t in range(start, end):
        ours.append(session.logits(pair.ids[t : t + 1])[0])
        out = pair.theirs(input_ids=pair.ids[None, t : t + 1], cache=out.cache, use_cache=True)
        theirs.append(out.logits[0, -1])
    assert largest_difference(torch.stack(ours), torch.stack(theirs)) < TOLERANCE


def _untransposed_comb(patch: pytest.MonkeyPatch) -> None:
    right = ops.mhc_post
    patch.setattr(ops, "mhc_post", lambda y, streams, post, comb: right(y, streams, post, comb.mT))


def _no_inverse_rope(patch: pytest.MonkeyPatch) -> None:
    def stay(angles: ops.Rotation) -> ops.Rotation:
        return ops.Rotation(torch.ones_like(angles.cos), torch.zeros_like(angles.sin))

    patch.setattr(ops.Rotation, "inverse", stay)


def _gate_clamped_below(patch: pytest.MonkeyPatch) -> None:
    right = activations.clamped_swiglu
    patch.setattr(experts, "clamped_swiglu", lambda gate, up, limit: right(gate.clamp_min(-limit), up, limit))
    for name in ("expert_mlp", "routed_experts"):  # `ops` may be bound to kernels that do not call it
        patch.setattr(ops, name, getattr(experts, name))


def _first_entries_instead_of_the_best(patch: pytest.MonkeyPatch) -> None:
    def first(scores: Tensor, topk: int) -> Tensor:
        return torch.arange(topk).expand(scores.shape[0], topk)

    patch.setattr(ops, "top_entries", first)


def _no_head_norm(patch: pytest.MonkeyPatch) -> None:
    right = ops.rms_norm
    patch.setattr(ops, "rms_norm", lambda x, weight, eps: x if weight is None else right(x, weight, eps))


def _no_sink(patch: pytest.MonkeyPatch) -> None:
    right: Callable[..., Tensor] = ops.sparse_attention

    def without(*args: Any) -> Tensor:
        *others, sink, scale = args
        return right(*others, torch.full_like(sink, -1e9), scale)

    patch.setattr(ops, "sparse_attention", without)


def _no_gate_in_the_pool(patch: pytest.MonkeyPatch) -> None:
    def mean(values: Tensor, gates: Tensor) -> Tensor:
        kept = (gates > -math.inf).float()
        return (values * kept).sum(1) / kept.sum(1)

    patch.setattr(ops, "pool_windows", mean)


@pytest.mark.parametrize(
    "break_a_rule",
    [
        _untransposed_comb,
        _no_inverse_rope,
        _gate_clamped_below,
        _first_entries_instead_of_the_best,
        _no_head_norm,
        _no_sink,
        _no_gate_in_the_pool,
    ],
)
def test_a_wrong_rule_breaks_the_match(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, break_a_rule: Callable[[pytest.MonkeyPatch], None]
) -> None:
    break_a_rule(monkeypatch)
    logits = Session(pair.ours).logits(pair.ids[:140])
    assert largest_difference(logits, pair.logits[:140]) > WRONG


@pytest.mark.parametrize(
    "wrong",
    [
        {"sliding_window": -1},
        {"sliding_window": 1},
        {"index_topk": -1},
        {"compress_rope_theta": -150_000.0},  # the window layers' table in the compressing layers
        {"num_hash_layers": -1},
        {"swiglu_limit": 1e9},
        {"routed_scaling_factor": -0.5},
    ],
    ids=str,
)
def test_a_wrong_number_breaks_the_match(pair: Pair, wrong: dict[str, Any]) -> None:
    changed = {name: pair.ours.fields[name] + by for name, by in wrong.items()}
    config = pair.ours.config.model_copy(update=changed)
    weights = dict(pair.ours.weights)
    last_hashed = f"layers.{pair.ours.config.num_hash_layers - 1}.ffn.gate."
    weights[last_hashed + "bias"] = torch.zeros(config.n_routed_experts)
    trunk = Transformer(config, weights, Numerics.plain())
    session = Session(TinyModel(pair.ours.fields, weights, config, trunk, pair.ours.mtp))
    assert largest_difference(session.logits(pair.ids[:140]), pair.logits[:140]) > WRONG


def test_a_checkpoint_of_our_writer_says_the_same_to_both(tmp_path: Path) -> None:
    """Unquantised weights: our writer, their `from_pretrained` and our reader, over several shards."""
    direct = tiny_model(TINY)
    write_checkpoint(tmp_path, direct.config, direct.weights, config_json=TINY, max_shard_bytes=1 << 20)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    checkpoint = Checkpoint.open(tmp_path)
    assert (checkpoint.drafter, checkpoint.config) == ("mtp", parse_model_config(TINY))
    weights = dict(checkpoint.iter_weights())
    trunk = Transformer(checkpoint.config, weights, Numerics.plain())
    ids = random_ids(direct.config, 140)
    loaded = Session(TinyModel(TINY, weights, checkpoint.config, trunk, direct.mtp)).logits(ids)
    assert torch.equal(loaded, Session(direct).logits(ids))
    theirs = from_pretrained(tmp_path)(input_ids=ids[None], use_cache=False).logits[0]
    assert largest_difference(loaded, theirs) < TOLERANCE
