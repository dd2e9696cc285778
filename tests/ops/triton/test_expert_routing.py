"""Router and the order of (token, expert) pairs: against the reference and numpy, with padded rows and ties."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("triton")

from outrider.ops.reference import expert_routing as reference
from outrider.ops.reference.expert_routing import ExpertOrder, Routes, block_bound
from outrider.ops.reference.paged_attention import Queries
from outrider.ops.triton.expert_order import order_by_expert
from outrider.ops.triton.expert_routing import route_by_table, route_tokens

NAN, INF = float("nan"), float("inf")


def rows(live: list[bool], device: str) -> Queries:
    """Rows of which the dead ones are padded: by their position or their request, in turns."""
    positions = [7 if alive or i % 2 else -1 for i, alive in enumerate(live)]
    requests = [3 if alive or not i % 2 else -1 for i, alive in enumerate(live)]
    return Queries(*(torch.tensor(x, dtype=torch.int32, device=device) for x in (positions, requests)))


def on_cpu(found: tuple[Tensor, ...]) -> list[Tensor]:
    return [x.cpu() for x in found]


def check_routes(found: Routes, expected: Routes) -> None:
    assert found.selected.dtype == torch.int32 and found.shares.dtype == torch.float32
    assert torch.equal(found.selected.cpu(), expected.selected)
    assert torch.allclose(found.shares.cpu(), expected.shares, rtol=2e-6, atol=0, equal_nan=True)


# -------- router


@pytest.mark.parametrize(("experts", "topk", "scaling"), [(256, 6, 1.5), (384, 6, 2.5), (5, 5, 1.0), (9, 1, 3.0)])
def test_routes_are_the_references(experts: int, topk: int, scaling: float, device: str) -> None:
    """Logits from far below zero, where the score is e^(x/2), to far above; two padded rows."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(12, experts, generator=generator) * torch.tensor([1.0, 8.0, 40.0]).repeat(4)[:, None]
    bias = torch.randn(experts, generator=generator)
    live = [i not in (3, 8) for i in range(12)]
    found = route_tokens(logits.to(device), bias.to(device), topk, scaling, rows(live, device))
    check_routes(found, reference.route_tokens(logits, bias, topk, scaling, rows(live, "cpu")))
    assert found.selected[[3, 8]].tolist() == [[-1] * topk] * 2 and found.shares[[3, 8]].tolist() == [[0.0] * topk] * 2


def test_scores_against_float64(device: str) -> None:
    """Two experts, one of which scores sqrt(log 2): the shares give the other's score, also where e^x is tiny."""
    x = torch.tensor([-80.0, -30.0, -17.0, -9.0, -1.0, 0.0, 0.3, 5.0, 25.0, 300.0])
    logits = torch.stack([x, torch.zeros_like(x)], 1).to(device)
    shares = route_tokens(logits, torch.zeros(2, device=device), 2, 1.0, rows([True] * 10, device)).shares.cpu()
    scores = torch.log1p(torch.exp(-x.double().abs())).add(x.double().clamp_min(0)).sqrt()
    expected = scores / (scores + np.log(2.0) ** 0.5)
    rounding = (5.0 + x.double().abs()) * 2.0**-23  # of the exponent that a GPU's exp2 is given
    assert bool(((shares[:, 0].double() - expected).abs() <= rounding * expected).all())


def test_equal_scores_go_to_the_lowest_id(device: str) -> None:
    """32 equal scores, choose 8; then few values, so that the cut falls among equals; then values without an order."""
    live = rows([True], device)
    equal = torch.zeros(1, 32, device=device)
    assert route_tokens(equal, equal[0], 8, 1.0, live).selected.tolist() == [list(range(8))]
    generator = torch.Generator().manual_seed(1)
    logits = torch.tensor([-2.0, 0.5, 3.0])[torch.randint(3, (40, 32), generator=generator)]
    many = [True] * 40
    found = route_tokens(logits.to(device), equal[0], 6, 1.0, rows(many, device))
    check_routes(found, reference.route_tokens(logits, torch.zeros(32), 6, 1.0, rows(many, "cpu")))
    odd = torch.tensor([[-INF, NAN, 1.0, -INF, 2.0, -INF]], device=device)
    found = route_tokens(odd, torch.zeros(6, device=device), 4, 1.0, live)
    assert found.selected.tolist() == [[0, 1, 2, 4]] and bool(found.shares.isnan().all())


def test_the_bias_selects_and_does_not_weigh(device: str) -> None:
    logits, bias = torch.tensor([[0.0, 0.0, 9.0]], device=device), torch.tensor([5.0, 5.0, -5.0], device=device)
    found = route_tokens(logits, bias, 2, 1.5, rows([True], device))
    assert found.selected.tolist() == [[0, 1]] and found.shares.tolist() == [[0.75, 0.75]]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_routes_by_token_id(dtype: torch.dtype, device: str) -> None:
    """A row in any order of ids, ids outside the table, padded rows; and the order of a row does not show."""
    generator = torch.Generator().manual_seed(2)
    table = torch.stack([torch.randperm(256, generator=generator)[:6] for _ in range(30)]).to(dtype)
    logits = torch.randn(9, 256, generator=generator) * 5
    ids = torch.tensor([3, 29, 0, 3, 30, -1, 17, 17, 8])
    live = [i != 6 for i in range(9)]
    found = route_by_table(logits.to(device), table.to(device), ids.to(device), 1.5, rows(live, device))
    check_routes(found, reference.route_by_table(logits, table, ids, 1.5, rows(live, "cpu")))
    assert [row[0] == -1 for row in found.selected.tolist()] == [i in (4, 5, 6) for i in range(9)]
    turned = route_by_table(logits.to(device), table.flip(1).to(device), ids.to(device), 1.5, rows(live, device))
    assert torch.equal(turned.selected, found.selected) and torch.equal(turned.shares, found.shares)


def test_a_row_alone_is_the_row_in_a_batch(device: str) -> None:
    logits = torch.randn(7, 256, generator=torch.Generator().manual_seed(3)).to(device)
    bias = torch.zeros(256, device=device)
    together = route_tokens(logits, bias, 6, 1.5, rows([True] * 7, device))
    alone = route_tokens(logits[5:6], bias, 6, 1.5, rows([True], device))
    assert torch.equal(alone.selected[0], together.selected[5]) and torch.equal(alone.shares[0], together.shares[5])


def test_what_does_not_fit_is_refused(device: str) -> None:
    logits, live = torch.zeros(2, 8, device=device), rows([True, True], device)
    with pytest.raises(ValueError, match=r"router_logits: \[2, 8\] torch.bfloat16, expected \[T, E\] float32"):
        route_tokens(logits.bfloat16(), logits[0], 2, 1.0, live)
    with pytest.raises(ValueError, match=r"num_experts_per_tok 9: expected 1 .. 8"):
        route_tokens(logits, logits[0], 9, 1.0, live)
    with pytest.raises(ValueError, match=r"gate.bias: \[7\] torch.float32, expected \[8\]"):
        route_tokens(logits, logits[0, :7], 2, 1.0, live)
    with pytest.raises(ValueError, match=r"queries: positions \[1\], requests \[1\] for 2 rows"):
        route_tokens(logits, logits[0], 2, 1.0, rows([True], device))
    with pytest.raises(ValueError, match=r"tid2eid: \[4, 2\] torch.float32, expected \[vocab, k\]"):
        route_by_table(logits, torch.zeros(4, 2, device=device), torch.zeros(2, device=device), 1.0, live)
    with pytest.raises(ValueError, match=r"selected: torch.int64, expected"):
        order_by_expert(torch.zeros(2, 2, dtype=torch.int64, device=device), 8, 16)


# -------- order


def check_order(selected: Tensor, experts: int, token_tile: int, **options: int) -> ExpertOrder:
    """Against numpy, and every block against what it should cover. The reference has the same words."""
    found = order_by_expert(selected, experts, token_tile, **options)
    expected = reference.order_by_expert(selected.cpu(), experts, token_tile)
    for x, y in zip(on_cpu(found), expected, strict=True):
        assert x.dtype == torch.int32 and torch.equal(x, y)
    flat = selected.cpu().flatten().numpy()
    live = (flat >= 0) & (flat < experts)
    offsets, pairs = found.offsets.cpu().numpy(), found.pairs.cpu().numpy()
    assert np.array_equal(np.diff(offsets), np.bincount(flat[live], minlength=experts))
    assert np.array_equal(pairs[: live.sum()], np.argsort(np.where(live, flat, experts), kind="stable")[: live.sum()])
    assert (pairs[live.sum() :] == -1).all()
    covered: list[int] = []
    for expert, start in zip(found.block_experts.tolist(), found.block_starts.tolist(), strict=True):
        if expert >= 0:
            assert start >= offsets[expert]
            covered += range(start, min(start + token_tile, int(offsets[expert + 1])))
    assert covered == list(range(int(live.sum())))
    return found


def choices(tokens: int, experts: int, topk: int, generator: torch.Generator) -> Tensor:
    scores = torch.rand(tokens, experts, generator=generator)
    return scores.topk(topk).indices.sort(dim=-1).values.to(torch.int32)


def test_counts_are_numpys_from_1_to_257_tokens(device: str) -> None:
    """All of them on a GPU; the interpreter takes those around multiples of 64."""
    generator = torch.Generator().manual_seed(4)
    selected = choices(257, 8, 2, generator)
    for tokens in range(1, 258) if device == "cuda" else (1, 2, 3, 63, 64, 65, 127, 128, 129, 256, 257):
        part = selected[:tokens].clone()
        part[torch.rand(tokens, generator=generator) < 0.2] = -1
        found = order_by_expert(part.to(device), 8, 16)
        flat = part.flatten().numpy()
        assert np.array_equal(np.diff(found.offsets.cpu().numpy()), np.bincount(flat[flat >= 0], minlength=8))


@pytest.mark.parametrize(("experts", "tokens", "token_tile"), [(256, 16, 16), (384, 257, 64)])
def test_order_at_full_shape(experts: int, tokens: int, token_tile: int, device: str) -> None:
    selected = choices(tokens, experts, 6, torch.Generator().manual_seed(5))
    selected[1::5] = -1
    check_order(selected.to(device), experts, token_tile)


@settings(max_examples=15, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(data=st.data())
def test_any_choice(data: st.DataObject) -> None:
    """Ids of any kind, several tiles of pairs, experts with none, few and many; -1 and ids that do not exist."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    experts = data.draw(st.integers(1, 12))
    topk = data.draw(st.integers(1, 4))
    ids = st.integers(-1, experts)
    flat = data.draw(st.lists(ids, min_size=0, max_size=40))
    flat = flat[: len(flat) // topk * topk]
    selected = torch.tensor(flat, dtype=torch.int32, device=device).view(-1, topk)
    check_order(selected, experts, data.draw(st.sampled_from([1, 2, 16])), pair_tile=16)


def test_everything_to_one_expert_and_nothing_to_any(device: str) -> None:
    """Blocks of one expert, as many blocks as there can be, and none."""
    found = check_order(torch.full((200, 1), 3, dtype=torch.int32, device=device), 5, 16)
    assert found.block_experts.tolist() == [3] * 13 + [-1] * 4
    spread = torch.tensor([[0], [1]] + [[2]] * 7, dtype=torch.int32, device=device)
    assert block_bound(9, 3, 3) == 5
    assert check_order(spread, 3, 3).block_experts.tolist() == [0, 1, 2, 2, 2]
    nothing = check_order(torch.full((6, 4), -1, dtype=torch.int32, device=device), 5, 16)
    assert bool((nothing.block_experts == -1).all()) and bool((nothing.offsets == 0).all())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_large_orders_1000_times() -> None:
    selected = choices(8192, 256, 6, torch.Generator().manual_seed(6)).cuda()
    selected[7::9] = -1
    first = check_order(selected, 256, 128)
    small = check_order(selected[:64], 256, 16)
    for _ in range(1000):
        assert all(map(torch.equal, order_by_expert(selected[:64], 256, 16), small))
    for _ in range(20):
        assert all(map(torch.equal, order_by_expert(selected, 256, 128), first))
