"""The training forward equals the oracle; quantisation equals the checkpoint's formats; gradients reach everything."""

from __future__ import annotations

import pytest
import torch
from tests import oracle
from training.decode import Decoder
from training.model import Model, padded, parameter_shapes, stored_form

from training import quantise

LENGTH = 300


@pytest.fixture(scope="module")
def setup() -> tuple[Model, dict[str, torch.Tensor], torch.Tensor]:
    weights = oracle.random_weights(oracle.make_cfg(oracle.TINY_CONFIG))
    model = Model(oracle.TINY_CONFIG)
    model.load_official(weights)
    ids = torch.randint(0, 97, (2, LENGTH), generator=torch.Generator().manual_seed(7))
    return model, weights, ids


def run(model: Model, ids: torch.Tensor, on: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Trunk and MTP logits [B, LENGTH(-1), V] of the training forward."""
    with torch.no_grad():
        w, flags = model.prepare(quantised=on), model.flags(quantise=on)
        row = padded(ids, model.z.sequence_multiple)
        X = model.trunk(row, w, flags).streams
        shifted = padded(ids[:, 1:], model.z.sequence_multiple)
        Z = model.mtp(X, shifted, w, flags).streams
        return model.logits(X, w)[:, :LENGTH], model.logits(Z, w, mtp=True)[:, : LENGTH - 1]


def rounded(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    forms = {n: stored_form(n) for n in weights}
    return {n: t if n.endswith("tid2eid") else quantise.ROUND[forms[n]](t) for n, t in weights.items()}


@pytest.mark.parametrize("on", [False, True])
def test_forward_equals_oracle(setup: tuple[Model, dict[str, torch.Tensor], torch.Tensor], on: bool) -> None:
    model, weights, ids = setup
    trunk, mtp = run(model, ids, on)
    cfg = oracle.make_cfg(oracle.TINY_CONFIG)
    W = rounded(weights) if on else weights
    for b in range(ids.shape[0]):
        X, want = oracle.main_forward(ids[b], W, cfg, simq=on, act8=on)
        _, want_mtp = oracle.mtp_forward(X[:-1], ids[b, 1:], torch.arange(LENGTH - 1), W, cfg, simq=on, act8=on)
        for got, reference in ((trunk[b], want), (mtp[b], want_mtp)):
            difference = (got - reference).abs()
            if on:  # a last-bit difference can move a value to the next FP8 or FP4 step: rare, then visible
                assert difference.median() < 1e-4
                assert (got.argmax(-1) == reference.argmax(-1)).float().mean() > 0.9
            else:
                assert difference.max() < 1e-4


def test_chain_equals_drafting_one_by_one(setup: tuple[Model, dict[str, torch.Tensor], torch.Tensor]) -> None:
    """Depth 3 of `mtp_chain` against the oracle's block run on the rows an engine would hold for one chain."""
    model, weights, ids = setup
    cfg = oracle.make_cfg(oracle.TINY_CONFIG)
    S = model.z.sequence_multiple
    row = padded(ids[:1], S + 3)[:, : S + 3]
    with torch.no_grad():
        w, flags = model.prepare(), model.flags()
        X = model.trunk(row[:, :S].contiguous(), w, flags).streams
        chains = model.mtp_chain(X, row, w, flags, depth=3)
    for t in (0, 1, 5, 40, 200):
        streams = X[0, : t + 1]
        for j in range(1, 4):  # rows 0..t from the trunk, then this chain's own rows
            n = t + j
            Z, logits = oracle.mtp_forward(streams, row[0, 1 : n + 1], torch.arange(n), weights, cfg)
            torch.testing.assert_close(chains[j - 1][0, t], logits[-1], atol=1e-4, rtol=1e-4)
            streams = torch.cat([streams, Z[-1:]])


def test_gradients_reach_every_parameter(setup: tuple[Model, dict[str, torch.Tensor], torch.Tensor]) -> None:
    model, _, ids = setup
    w, flags = model.prepare(quantised=True), model.flags(quantise=True)
    row = padded(ids, model.z.sequence_multiple)
    out = model.trunk(row, w, flags)
    Z = model.mtp(out.streams, row.roll(-1, 1), w, flags).streams
    main, _ = model.functions.loss(model.logits(out.streams, w), row)
    mtp, _ = model.functions.loss(model.logits(Z, w, mtp=True), row)
    (main.mean() + mtp.mean() + out.index_loss).backward()
    for name, t in model.tensors.items():
        if t.requires_grad:
            assert t.grad is not None and torch.isfinite(t.grad).all() and t.grad.abs().max() > 0, name
            t.grad = None


def test_official_names(setup: tuple[Model, dict[str, torch.Tensor], torch.Tensor]) -> None:
    model, weights, _ = setup
    out = model.official_tensors()
    assert out.keys() == weights.keys()
    assert all(torch.equal(out[n], weights[n]) for n in weights)
    assert len(parameter_shapes(model.z)) < len(out)


def test_quantise_equals_formats() -> None:
    formats = pytest.importorskip("outrider.ops.formats")
    w = torch.randn(256, 384, generator=torch.Generator().manual_seed(3)) * torch.logspace(-3, 2, 384)
    assert torch.equal(quantise.fp8_weight(w), formats.dequantize_fp8_block(*formats.quantize_fp8_block(w)))
    assert torch.equal(quantise.fp4_weight(w), formats.dequantize_fp4_block(*formats.quantize_fp4_block(w)))
    assert torch.equal(quantise.fp8_rows(w, 64), formats.round_trip_fp8(w, 64))
    assert torch.equal(quantise.fp4_rows(w), formats.round_trip_fp4(w, 32))
    for form in ("fp8", "fp4"):
        once = quantise.ROUND[form](w)
        assert torch.equal(quantise.ROUND[form](once), once)


@pytest.mark.parametrize("on", [False, True])
def test_lockstep_decoding_equals_forward(setup: tuple[Model, dict[str, torch.Tensor], torch.Tensor], on: bool) -> None:
    model, _, ids = setup
    with torch.no_grad():
        w, flags = model.prepare(quantised=on), model.flags(quantise=on)
        want = model.logits(model.trunk(padded(ids, model.z.sequence_multiple), w, flags).streams, w)
        decoder = Decoder(model, w, flags, ids.shape[0], LENGTH)
        got = torch.stack([decoder.step(ids[:, t], t) for t in range(LENGTH)], 1)
    difference = (got - want[:, :LENGTH]).abs()
    if on:
        assert difference.median() < 1e-4
    else:
        assert difference.max() < 1e-4
