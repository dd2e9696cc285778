"""Every op of ops/reference against its formula in float64, and the facts that published bugs got wrong.

The formulas here are written over single tokens, heads and channels where that is clearer, and share nothing with the
code. Number formats have their own file (test_formats.py).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import hadamard as sylvester
from torch import Tensor

from outrider.ops.reference import activations
from outrider.ops.reference.attention import key_slots, sparse_attention
from outrider.ops.reference.compressor import pool_windows
from outrider.ops.reference.experts import (
    ExpertWeights,
    expert_mlp,
    expert_weights,
    routed_experts,
    routing_scores,
    select_experts,
)
from outrider.ops.reference.hyper_connections import (
    HcHeadWeights,
    HyperConnectionWeights,
    hc_head,
    mhc_post,
    mhc_pre,
    sinkhorn,
)
from outrider.ops.reference.indexer import hadamard, indexer_scores, top_entries
from outrider.ops.reference.linear import Linear
from outrider.ops.reference.norms import inverse_rms, rms_norm
from outrider.ops.reference.rope import apply_rope, inverse_frequencies, rotation

EPS = 1e-6


def close(actual: Tensor, expected: Tensor, tolerance: float = 2e-6) -> bool:
    """Same shape, float32, and within `tolerance` of float64, relative to the largest value."""
    assert actual.shape == expected.shape
    assert actual.dtype == torch.float32
    return bool((actual.double() - expected).abs().max() <= tolerance * expected.abs().max().clamp_min(1.0))


# -------- products, norms, activations


@pytest.mark.parametrize(("k", "n"), [(1, 1), (5, 3), (123, 77), (256, 512), (1023, 129), (1024, 512)])
@pytest.mark.parametrize("rows", [0, 1, 3, 4, 9])
def test_linear(k: int, n: int, rows: int) -> None:
    weight, x = torch.randn(n, k), torch.randn(rows, k)
    y = Linear(weight)(x)
    assert y.shape == (rows, n)
    assert rows == 0 or close(y, x.double() @ weight.double().T, 1e-5)


def test_linear_keeps_leading_dims_and_takes_slices() -> None:
    weight, x = torch.randn(7, 10), torch.randn(5, 3, 30)
    part = x[..., 10:20]
    assert close(Linear(weight)(part), part.double() @ weight.double().T)


def test_rms_norm() -> None:
    x, weight = torch.randn(9, 123) * 3, torch.randn(123)
    rms = (x.double().pow(2).mean(-1, keepdim=True) + EPS).sqrt()
    assert close(inverse_rms(x, EPS), 1 / rms)
    assert close(rms_norm(x, weight, EPS), x.double() / rms * weight.double())
    assert close(rms_norm(x, None, EPS), x.double() / rms)
    assert torch.equal(rms_norm(torch.zeros(2, 5), None, EPS), torch.zeros(2, 5))


def test_inverse_rms_of_a_row_longer_than_a_thread_takes() -> None:
    x = torch.randn(1, 40_000)
    assert close(inverse_rms(x, EPS), (x.double().pow(2).mean(-1, keepdim=True) + EPS).rsqrt())


def test_activations_over_the_whole_range() -> None:
    x = torch.cat([torch.linspace(-120, 120, 4001), torch.tensor([0.0, -0.0, 1e-30, -1e-30, 3e38, -3e38])])
    wide = x.double()
    assert close(activations.sigmoid(x), torch.special.expit(wide))
    assert close(activations.silu(x[:4001]), wide[:4001] * torch.special.expit(wide[:4001]))
    assert close(activations.softplus(x), torch.logaddexp(wide, torch.zeros_like(wide)))
    for activation in (activations.sigmoid, activations.silu, activations.softplus):
        assert not activation(x).isnan().any()


def test_swiglu_clamps_the_gate_above_and_the_other_branch_on_both_sides() -> None:
    gate = torch.tensor([50.0, 50.0, -50.0, 3.0, 3.0, -3.0])
    up = torch.tensor([-50.0, 50.0, 50.0, 2.0, -11.0, 1.0])

    def silu(g: float) -> float:
        return g / (1 + math.exp(-g))

    expected = [silu(10) * -10, silu(10) * 10, silu(-50) * 10, silu(3) * 2, silu(3) * -10, silu(-3)]
    actual = activations.clamped_swiglu(gate, up, 10.0)
    assert close(actual, torch.tensor(expected, dtype=torch.float64))
    assert actual[0].item() == pytest.approx(-99.995, abs=1e-3)


# -------- rope


def test_yarn_ramp_of_the_released_models() -> None:
    """Spec 2.3: of 32 pairs, 0-15 keep their frequency, 25-31 are divided by 16, those between are blended."""
    plain = inverse_frequencies(64, 160000.0)
    yarn = inverse_frequencies(
        64, 160000.0, factor=16, beta_fast=32, beta_slow=1, original_max_position_embeddings=65536
    )
    expected = torch.tensor([160000.0 ** (-2 * i / 64) for i in range(32)], dtype=torch.float64)
    assert close(plain, expected)
    ratio = yarn / plain
    assert torch.equal(ratio[:16], torch.ones(16))
    assert torch.allclose(ratio[25:], torch.full((7,), 1 / 16))
    blend = torch.tensor([1 - (i - 15) / 10 * (1 - 1 / 16) for i in range(16, 25)])
    assert torch.allclose(ratio[16:25], blend, atol=1e-6)


def test_no_yarn_without_a_factor() -> None:
    assert torch.equal(inverse_frequencies(16, 10000.0, factor=1.0), inverse_frequencies(16, 10000.0))


def test_a_ramp_without_width_is_a_step() -> None:
    freqs = inverse_frequencies(4, 10000.0, factor=16, original_max_position_embeddings=10**9)
    assert freqs.isfinite().all()


@pytest.mark.parametrize("shape", [(24,), (3, 24)])
def test_rope_turns_pairs_of_the_last_dims_as_complex_numbers(shape: tuple[int, ...]) -> None:
    x, positions = torch.randn(5, *shape), torch.tensor([0, 1, 7, 128, 4095])
    freqs = inverse_frequencies(10, 10000.0)
    angle = positions.double()[:, None] * freqs.double()
    if len(shape) == 2:
        angle = angle[:, None]
    pairs = torch.view_as_complex(x.double()[..., 14:].unflatten(-1, (5, 2)).contiguous())
    turned = torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)
    angles = rotation(positions, freqs)
    actual = apply_rope(x.clone(), angles)
    # float32 angles: at position 4095 they are right to about 2e-4
    assert close(actual, torch.cat([x.double()[..., :14], turned], -1), 5e-4)
    assert close(apply_rope(actual.clone(), angles.inverse()), x.double())
    assert torch.equal(actual[..., :14], x[..., :14])
    assert torch.equal(actual[0], x[0])
    picked = angles.select(torch.tensor([3, 1]))
    assert torch.equal(apply_rope(x[[3, 1]].clone(), picked), actual[[3, 1]])


def test_rotated_products_depend_on_the_distance_alone() -> None:
    freqs = inverse_frequencies(16, 10000.0)
    q, k = torch.randn(1, 16), torch.randn(1, 16)

    def product(at_q: int, at_k: int) -> float:
        turned = [apply_rope(v.clone(), rotation(torch.tensor([p]), freqs)) for v, p in ((q, at_q), (k, at_k))]
        return float((turned[0] * turned[1]).sum())

    assert product(20, 3) == pytest.approx(product(117, 100), abs=1e-4)
    assert abs(product(20, 3) - product(20, 4)) > 1e-2


# -------- hyper-connections


def _mix(streams: Tensor, fn: Tensor) -> Tensor:
    flat = streams.double().flatten(1)
    return flat @ fn.double().T / (flat.pow(2).mean(-1, keepdim=True) + EPS).sqrt()


def _sinkhorn(logits: Tensor, iterations: int) -> Tensor:
    c = logits.double().softmax(-1) + EPS
    for i in range(iterations):
        if i:
            c = c / (c.sum(2, keepdim=True) + EPS)
        c = c / (c.sum(1, keepdim=True) + EPS)
    return c


def test_mhc_pre() -> None:
    n, d = 4, 61
    streams, fn, base, scale = torch.randn(7, n, d), torch.randn(24, n * d) / 16, torch.randn(24), torch.rand(3) + 0.5
    weights = HyperConnectionWeights(Linear(fn), base, scale)
    u, post, comb = mhc_pre(streams, weights, iterations=20, hc_eps=EPS, norm_eps=EPS)
    m, b, s = _mix(streams, fn), base.double(), scale.double()
    pre = torch.special.expit(m[:, :4] * s[0] + b[:4]) + EPS
    assert close(u, (pre[..., None] * streams.double()).sum(1))
    assert close(post, 2 * torch.special.expit(m[:, 4:8] * s[1] + b[4:8]))
    assert close(comb, _sinkhorn((m[:, 8:] * s[2] + b[8:]).view(-1, n, n), 20))


def test_mhc_post_sums_over_the_source_stream() -> None:
    y, streams, post, comb = torch.randn(6, 5), torch.randn(6, 3, 5), torch.randn(6, 3), torch.randn(6, 3, 3)
    expected = torch.empty(6, 3, 5, dtype=torch.float64)
    for t in range(6):
        for k in range(3):
            mixed = sum(comb[t, j, k].double() * streams[t, j].double() for j in range(3))
            expected[t, k] = post[t, k].double() * y[t].double() + mixed
    assert close(mhc_post(y, streams, post, comb), expected)
    assert not close(mhc_post(y, streams, post, comb.mT), expected, 1e-2)


def test_hc_head() -> None:
    streams, fn, base, scale = torch.randn(7, 4, 33), torch.randn(4, 132), torch.randn(4), torch.rand(1) + 0.5
    actual = hc_head(streams, HcHeadWeights(Linear(fn), base, scale), hc_eps=EPS, norm_eps=EPS)
    weight = torch.special.expit(_mix(streams, fn) * scale.double() + base.double()) + EPS
    assert close(actual, (weight[..., None] * streams.double()).sum(1))


def test_sinkhorn_ends_with_columns() -> None:
    """Columns (over the source) sum to 1; rows only nearly, as the model was trained."""
    logits = 2 * torch.randn(512, 4, 4)
    c = sinkhorn(logits, 20, EPS)
    assert close(c, _sinkhorn(logits, 20))
    assert (c.sum(1) - 1).abs().max() < 5e-6
    assert 1e-5 < (c.sum(2) - 1).abs().max() < 0.1
    assert not close(c, _sinkhorn(logits, 10), 1e-4)


# -------- attention, compressor, indexer


def test_attention_with_sink() -> None:
    heads, d = 3, 10
    window_cache, entry_cache, sink = torch.randn(40, d), torch.randn(30, d), torch.randn(heads)
    window_cache[0] = entry_cache[0] = 0
    q = torch.randn(5, heads, d)
    window, entries = torch.randint(1, 40, (5, 6)), torch.randint(1, 30, (5, 4))
    window[0, :4] = -1
    entries[1] = -1
    entries[2, 2:] = -1
    out = sparse_attention(q, window_cache, key_slots(window), entry_cache, key_slots(entries), sink, d**-0.5)
    expected = torch.zeros(5, heads, d, dtype=torch.float64)
    for t in range(5):
        keys = [entry_cache[i].double() for i in entries[t] if i >= 0]
        keys += [window_cache[i].double() for i in window[t] if i >= 0]
        for h in range(heads):
            mass = [torch.exp(q[t, h].double() @ k * d**-0.5) for k in keys]
            total = sum(mass) + torch.exp(sink[h].double())
            expected[t, h] = sum(m / total * k for m, k in zip(mass, keys, strict=True))
    assert close(out, expected)


def test_attention_without_any_key_gives_zero_and_large_scores_stay_finite() -> None:
    cache, sink = torch.zeros(4, 8), torch.tensor([0.0, -50.0])
    nothing = key_slots(torch.full((3, 5), -1))
    q = torch.randn(3, 2, 8)
    assert torch.equal(sparse_attention(q, cache, nothing, None, None, sink, 1.0), torch.zeros(3, 2, 8))
    cache[1], cache[2] = 100.0, -100.0
    slots = key_slots(torch.tensor([[1, 2, -1]]))
    out = sparse_attention(torch.full((1, 2, 8), 100.0), cache, slots, None, None, sink, 1.0)
    assert torch.equal(out, torch.full((1, 2, 8), 100.0))
    # a sink that outweighs every key takes all the mass and adds nothing
    out = sparse_attention(q[:1], cache, slots, None, None, torch.tensor([1e9, 1e9]), 1.0)
    assert torch.equal(out, torch.zeros(1, 2, 8))


def test_attention_treats_more_queries_than_it_gathers_at_once() -> None:
    cache, q, slots = torch.randn(300, 8), torch.randn(130, 2, 8), torch.randint(0, 300, (130, 7))
    whole = sparse_attention(q, cache, key_slots(slots), None, None, torch.zeros(2), 1.0)
    keys = key_slots(slots)
    part = torch.tensor([0, 63, 64, 65, 127, 128, 129])
    some = sparse_attention(q[part], cache, keys.select(part), None, None, torch.zeros(2), 1.0)
    assert torch.equal(whole[part], some)


def test_attention_reads_the_rows_it_is_told_and_no_others() -> None:
    """The same keys elsewhere in a cache whose other rows are NaN: the same bits."""
    heads, d = 2, 12
    cache, q, slots = torch.randn(50, d), torch.randn(6, heads, d), torch.randint(1, 50, (6, 9))
    cache[0] = 0
    slots[::2, :3] = -1
    moved = torch.randperm(200)[:50] + 1
    moved[0] = 0
    larger = torch.full((202, d), math.nan)
    larger[moved] = cache
    sink = torch.randn(heads)
    here = sparse_attention(q, cache, key_slots(slots), None, None, sink, 0.3)
    there_slots = torch.where(slots < 0, -1, moved[slots.clamp_min(0)])
    there = sparse_attention(q, larger, key_slots(there_slots), None, None, sink, 0.3)
    assert torch.equal(here, there)


def test_pool_windows_has_a_softmax_for_every_channel() -> None:
    values, gates = torch.randn(5, 8, 7), 4 * torch.randn(5, 8, 7)
    gates[0, :4] = -math.inf  # there is no window before the first
    expected = torch.empty(5, 7, dtype=torch.float64)
    for window in range(5):
        for channel in range(7):
            weight = gates[window, :, channel].double().exp()
            expected[window, channel] = (weight * values[window, :, channel].double()).sum() / weight.sum()
    assert close(pool_windows(values, gates), expected)
    assert torch.equal(pool_windows(values, gates)[0], pool_windows(values[:1, 4:], gates[:1, 4:])[0])


@pytest.mark.parametrize("n", [1, 2, 32, 128])
def test_hadamard_is_sylvesters_and_orthonormal(n: int) -> None:
    expected = torch.from_numpy(sylvester(n).astype(np.float64)) / math.sqrt(n)
    matrix = hadamard(torch.eye(n))
    assert close(matrix, expected)
    assert close(matrix @ matrix.T, torch.eye(n, dtype=torch.float64))
    x = torch.randn(3, 2, n)
    assert close(hadamard(x), x.double() @ expected)


def test_indexer_scores() -> None:
    q, w, keys = torch.randn(5, 16), torch.randn(5), torch.randn(9, 16)
    expected = torch.zeros(9, dtype=torch.float64)
    for h in range(5):
        expected += w[h].double() * (keys.double() @ q[h].double()).clamp_min(0)
    assert close(indexer_scores(q, w, keys), expected)
    assert (expected < 0).any()  # head weights may be negative, and the relu is inside the sum


@settings(max_examples=100)
@given(st.data())
def test_top_entries_gives_ties_to_the_lowest_index(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 40))
    topk = data.draw(st.integers(1, n))
    visible = data.draw(st.integers(topk, n))
    scores = data.draw(st.lists(st.sampled_from([-1.5, 0.0, -0.0, 0.25, 3.0]), min_size=visible, max_size=visible))
    row = torch.tensor([*scores, *[-math.inf] * (n - visible)])
    best = sorted(range(visible), key=lambda j: (-scores[j], j))[:topk]
    assert top_entries(row[None], topk).tolist() == [sorted(best)]


def test_32_equal_scores_choose_the_8_lowest_every_time() -> None:
    for _ in range(100):
        assert torch.equal(top_entries(torch.full((3, 32), 0.7), 8), torch.arange(8).expand(3, 8))


# -------- experts


@pytest.mark.parametrize("tokens", [1, 2, 63, 64, 65, 257])
def test_routing_gives_every_token_its_experts_once(tokens: int) -> None:
    experts, topk = 256, 6
    scores, bias = routing_scores(3 * torch.randn(tokens, experts)), torch.randn(experts)
    selected = select_experts(scores, bias, topk)
    assert selected.shape == (tokens, topk)
    counts = torch.bincount(selected.flatten(), minlength=experts)
    assert (int(counts.sum()), len(counts)) == (topk * tokens, experts)  # no id beyond the last expert: no padding
    assert (selected.diff(dim=1) > 0).all()  # ascending, so each pair once
    biased = (scores.double() + bias.double()).numpy()
    by_numpy = np.sort(np.argsort(-biased, axis=1, kind="stable")[:, :topk], axis=1)
    assert np.array_equal(selected.numpy(), by_numpy)


@settings(max_examples=50)
@given(st.lists(st.sampled_from([0.25, 0.5, 0.75]), min_size=8, max_size=8), st.integers(1, 8))
def test_expert_ties_go_to_the_lowest_id(scores: list[float], topk: int) -> None:
    best = sorted(range(8), key=lambda e: (-scores[e], e))[:topk]
    assert select_experts(torch.tensor([scores]), torch.zeros(8), topk).tolist() == [sorted(best)]


def test_the_bias_selects_and_never_weighs() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    scores = routing_scores(logits)
    assert close(scores, torch.log1p(logits.double().exp()).sqrt())
    selected = select_experts(scores, torch.tensor([-9.0, 0.0, 0.0, 9.0]), 2)
    assert selected.tolist() == [[1, 3]]
    chosen = torch.log1p(torch.tensor([1.0, -1.0], dtype=torch.float64).exp()).sqrt()
    assert close(expert_weights(scores, selected, 2.5), (chosen / chosen.sum() * 2.5)[None])


RawExpert = tuple[Tensor, Tensor, Tensor]  # w1, w3, w2


def _expert(x: Tensor, weights: RawExpert, limit: float) -> Tensor:
    w1, w3, w2 = weights
    gate = (x.double() @ w1.double().T).clamp(max=limit)
    up = (x.double() @ w3.double().T).clamp(-limit, limit)
    return (gate * torch.special.expit(gate) * up) @ w2.double().T


def _expert_weights(d: int, inner: int) -> tuple[RawExpert, ExpertWeights]:
    w1, w3, w2 = torch.randn(inner, d), torch.randn(inner, d), torch.randn(d, inner)
    return (w1, w3, w2), ExpertWeights(Linear(torch.cat([w1, w3])), Linear(w2))


def test_one_expert() -> None:
    raw, weights = _expert_weights(11, 7)
    x, share = torch.randn(5, 11), torch.rand(5, 1)
    assert close(expert_mlp(x, weights, 1.5, None, lambda h: h), _expert(x, raw, 1.5))
    assert close(expert_mlp(x, weights, 1.5, share, lambda h: h), share.double() * _expert(x, raw, 1.5))


def test_the_share_multiplies_before_the_down_projection_rounds_its_input() -> None:
    """With a round trip the order shows: the official implementation rounds the product with the share."""
    _, weights = _expert_weights(8, 8)
    x, share = torch.randn(4, 8), torch.full((4, 1), 0.3)
    before = expert_mlp(x, weights, 9.0, share, torch.round)
    after = expert_mlp(x, weights, 9.0, None, torch.round) * share
    gate, up = weights.gate_up(x).chunk(2, dim=-1)
    hidden = activations.clamped_swiglu(gate, up, 9.0)
    assert torch.equal(before, weights.down((hidden * share).round()))
    assert not torch.equal(before, after)


def test_routed_experts() -> None:
    made = [_expert_weights(9, 5) for _ in range(6)]
    raws, weights = [raw for raw, _ in made], [ready for _, ready in made]
    x = torch.randn(13, 9)
    selected = torch.rand(13, 6).argsort(-1)[:, :3]  # in any order, as a hash table gives them
    shares = torch.rand(13, 3)
    expected = torch.zeros(13, 9, dtype=torch.float64)
    for t in range(13):
        for e, share in zip(selected[t].tolist(), shares[t].double(), strict=True):
            expected[t] += share * _expert(x[t : t + 1], raws[e], 0.8)[0]
    assert close(routed_experts(x, selected, shares, weights, 0.8, lambda h: h), expected)
    order = torch.tensor([2, 0, 1])
    same = routed_experts(x, selected[:, order], shares[:, order], weights, 0.8, lambda h: h)
    assert torch.equal(same, routed_experts(x, selected, shares, weights, 0.8, lambda h: h))
