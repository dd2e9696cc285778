"""Every op: a row's result has the same bits alone and in any batch, at any place of it.

Speculative decoding is lossless because of this (a verify row must equal the decode row it stands for), so the test
enumerates the ops: one without a case fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.ops.expert_row_cases import CASES
from tests.ops.row_cases import ROWS, Call, reference_ops
from torch import Tensor

from outrider import ops
from outrider.ops.reference.linear import ROW_TILE, Linear

BATCHES = (1, 2, 3, 5, 7, 33, 64)

# `ops` is bound to the native kernels where they can run; the reference must hold either way
BACKENDS = {"reference": reference_ops(), "native": ops}

NO_ROWS = {
    "inverse_frequencies": "a table of the model",
    "aligned": "its input, possibly copied",
    "check_combine": "host integers",
    "combined_width": "host integers",
    "paged_slots": "integers",
    "bf16_weight": "a weight of the model",
    "fp8_weight": "a weight of the model",
    "weight_values": "a weight of the model",
    "check_linear": "shapes",
    "combine_topk_swa_indices": "integers, of whole requests",
    "check_router_logits": "shapes",
    "check_table": "shapes",
    "check_experts": "shapes",
    "block_bound": "host integers",
    "order_by_expert": "integers, of the whole batch",
}


def public_ops() -> set[str]:
    """Every callable of `ops` and of ops/reference, without the tuples that carry arguments."""
    exported = {name: getattr(ops, name) for name in ops.__all__} | vars(reference_ops())
    return {
        name
        for name, value in exported.items()
        if callable(value) and not (isinstance(value, type) and issubclass(value, tuple))
    }


def test_every_op_has_a_case() -> None:
    assert public_ops() - NO_ROWS.keys() == {op for op, _ in CASES}
    assert NO_ROWS.keys() < public_ops()


def outputs(call: Call, rows: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    result = call(*rows)
    return result if isinstance(result, tuple) else (result,)


def rows_that_differ(call: Call, rows: tuple[Tensor, ...]) -> list[tuple[int, int]]:
    """(batch size, row) wherever a row of a batch has other bits than the same row alone.

    Each batch size is tried twice: on rows next to each other (a view, at any offset) and on rows drawn at random.
    """
    alone = [outputs(call, tuple(x[i : i + 1] for x in rows)) for i in range(ROWS)]
    assert all(out.shape[0] == 1 for out in alone[0])
    differ = []
    for count in BATCHES:
        start = (ROWS - count) // 2
        drawn = torch.randperm(ROWS)[:count]
        neighbours = torch.arange(start, start + count)
        for order, batch in (
            (drawn, tuple(x[drawn] for x in rows)),
            (neighbours, tuple(x[start : start + count] for x in rows)),
        ):
            for k, out in enumerate(outputs(call, batch)):
                assert out.shape[0] == count
                differ += [(count, i) for j, i in enumerate(order.tolist()) if not torch.equal(out[j], alone[i][k][0])]
    return differ


@pytest.fixture(params=[1])
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs torch on so many threads; the small shapes of most cases gain nothing from several."""
    count = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(count)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(
    ("backend", "op", "label"),
    [
        pytest.param(backend, op, label, id=f"{name} {op} {label}")
        for name, backend in BACKENDS.items()
        for op, label in CASES
        if name == "reference" or ops.backends().get(op) == name
    ],
)
def test_a_row_does_not_know_of_its_neighbours(backend: Any, op: str, label: str) -> None:
    call, rows = CASES[op, label](backend)
    assert rows_that_differ(call, rows) == []


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("threads", [2], indirect=True)
@pytest.mark.parametrize(
    ("op", "label"),
    [
        ("Linear", "1024 to 512"),
        ("Linear", f"{4 * 7168} to 24"),
        ("Linear", "123 to 77"),
        ("inverse_rms", "40000"),
        ("matrix_product", "5x123x33"),
    ],
)
def test_a_row_does_not_know_of_its_neighbours_on_two_threads(op: str, label: str) -> None:
    call, rows = CASES[op, label](BACKENDS["reference"])
    assert rows_that_differ(call, rows) == []


@pytest.mark.usefixtures("threads")
def test_linear_gives_the_same_bits_at_every_place_of_a_tile() -> None:
    widths = (*range(1, 18), 31, 33, 100, 123, 511)
    for k in widths:
        for n in widths:
            layer, tile = Linear(torch.randn(n, k)), torch.randn(1, k).expand(ROW_TILE, k)
            out = layer(tile)
            assert torch.equal(out, out[:1].expand_as(out)), (k, n)


def _tail_by_other_code(x: Tensor) -> Tensor:
    """What a vectorised loop does to elements that do not fill a vector, by one unit in the last place."""
    flat = x.flatten().clone()
    tail = flat.numel() // 8 * 8
    flat[tail:] = torch.nextafter(flat[tail:], torch.tensor(torch.inf))
    return flat.view_as(x)


@pytest.mark.parametrize(
    "op",
    [
        lambda x: x - x.mean(0),
        lambda x: x + torch.arange(x.shape[0])[:, None],
        lambda x: x * (1 + 2**-23 * (x.shape[0] == 33)),
        _tail_by_other_code,
    ],
    ids=["neighbours", "place", "count", "tail"],
)
def test_the_check_notices_a_batch(op: Call) -> None:
    assert rows_that_differ(op, (torch.randn(ROWS, 123),))


def test_both_ways_of_multiplying_are_covered() -> None:
    small, large = Linear(torch.randn(3, 5)), Linear(torch.randn(512, 1024))
    can_pack = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    assert (small._packed is None, large._packed is not None) == (True, can_pack)
