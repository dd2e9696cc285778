"""The compiled ops: which are chosen, rows that do not know of each other, and agreement with the reference."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, randn

pytest.importorskip("numba")

from outrider import ops
from outrider.ops import formats
from outrider.ops.native import attention as native_attention
from outrider.ops.native import compressor, hyper_connections, indexer, linear, norms, rope, routing
from outrider.ops.native import experts as native_experts
from outrider.ops.native import round_trips as native_round_trips
from outrider.ops.native import threads as native_threads
from outrider.ops.reference import attention as reference_attention
from outrider.ops.reference import compressor as reference_compressor
from outrider.ops.reference import experts as reference_experts
from outrider.ops.reference import hyper_connections as reference_hyper_connections
from outrider.ops.reference import indexer as reference_indexer
from outrider.ops.reference import linear as reference_linear
from outrider.ops.reference import norms as reference_norms
from outrider.ops.reference import rope as reference_rope

ROWS = (1, 2, 3, 5, 7, 33, 64)
WITHOUT_A_KERNEL = {"bf16_weight", "fp8_weight", "inverse_frequencies", "key_slots", "rotation", "top_entries"}
ON_A_GPU = {  # ops/triton has kernels of these, for tensors in a GPU's memory
    "combine_topk_swa_indices",
    "compress_index_keys",
    "compress_insert",
    "gather_rows",
    "gathered_sparse_attention",
    "greedy_tokens",
    "grouped_experts",
    "index_queries",
    "indexer_logits",
    "mhc_head",
    "mhc_site",
    "mtp_rows",
    "norm_rope_insert",
    "norm_rows",
    "order_by_expert",
    "paged_sparse_attention",
    "quantize_rows",
    "route_by_table",
    "route_tokens",
    "sample_tokens",
    "scaled_linear",
    "select_entries",
    "swiglu_rows",
    "top_visible_entries",
}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    count = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(count)


def close(actual: Tensor, expected: Tensor, tolerance: float = 3e-6) -> None:
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    assert bool(((actual - expected).abs() <= tolerance * expected.abs().max().clamp_min(1.0)).all())


def same_bits(actual: Tensor, expected: Tensor) -> bool:
    """NaN equals NaN, and -0 is not 0."""
    nan = actual.isnan()
    return torch.equal(nan, expected.isnan()) and torch.equal(
        actual.view(torch.int32)[~nan], expected.view(torch.int32)[~nan]
    )


# -------- which backend


def test_backends_says_what_is_bound() -> None:
    kinds = ops.backends()
    assert {name for name, kind in kinds.items() if kind != "native"} == WITHOUT_A_KERNEL | ON_A_GPU
    assert {kinds[name] for name in ON_A_GPU | WITHOUT_A_KERNEL} == {"reference"}
    assert kinds["Linear"] == "native"
    on_gpu = ops.backends(torch.device("cuda"))
    assert on_gpu.keys() == kinds.keys() and "native" not in on_gpu.values()
    expected = ON_A_GPU if torch.cuda.is_available() else set()
    assert {name for name, kind in on_gpu.items() if kind == "triton"} == expected


def test_backends_in_one_line() -> None:
    line = ops.describe_backends()
    assert line.startswith("ops on cpu: native: ") and "; reference: " in line and "\n" not in line
    named = {word for part in line.removeprefix("ops on cpu: ").split("; ") for word in part.split()[1:]}
    assert named == ops.backends().keys()


RUN_WITHOUT_NUMBA = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numba", "llvmlite"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocker())
import torch
from outrider import ops
assert "native" not in ops.backends().values(), ops.backends()
x, w = torch.randn(3, 40), torch.randn(7, 40)
assert torch.allclose(ops.Linear(w)(x), x @ w.T, atol=1e-4)
assert ops.rms_norm(x, None, 1e-6).shape == x.shape
assert not [name for name in sys.modules if name.startswith(("numba", "outrider.ops.native."))]
"""


def run_python(source: str, **environment: str) -> None:
    paths = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, "-c", source]
    inherited = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    result = subprocess.run(
        command, env={**inherited, "PYTHONPATH": paths, **environment}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def test_without_numba_the_reference_is_chosen() -> None:
    run_python(RUN_WITHOUT_NUMBA)


RUN_FROM_ANOTHER_FOLDER = """
from pathlib import Path
import torch
import outrider
from outrider import ops
from outrider.ops.native import norms
assert Path(outrider.__file__).is_relative_to("FOLDER")
assert ops.backends()["rms_norm"] == "native"
x = torch.randn(3, 40)
assert torch.allclose(ops.rms_norm(x, None, 0.0).square().mean(1), torch.ones(3))
stats = norms._rms_norm.stats
assert (stats.cache_path is None) == (not EXPECTED), stats
"""


@pytest.mark.parametrize("home", ["home", "nowhere"])
def test_a_read_only_package_is_cached_elsewhere_or_not_at_all(tmp_path: Path, home: str) -> None:
    source = Path(ops.__file__).parents[1]
    copy = tmp_path / "outrider"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__", "assets"))
    (copy / "ops/native/__pycache__").write_text("a file in the way of the folder")
    (tmp_path / "nowhere").write_text("another one")
    (tmp_path / "home").mkdir()
    program = RUN_FROM_ANOTHER_FOLDER.replace("FOLDER", str(tmp_path)).replace("EXPECTED", repr(home == "home"))
    paths = os.pathsep.join([str(tmp_path), *(path for path in sys.path if path)])
    folder = str(tmp_path / home)
    run_python(program, PYTHONPATH=paths, HOME=folder, XDG_CACHE_HOME=folder + "/cache", IPYTHONDIR=folder)
    assert bool(list((tmp_path / "home").rglob("*.nbi"))) == (home == "home")


def test_inputs_that_have_no_kernel_go_to_the_reference() -> None:
    x, w = randn(3, 40), randn(7, 40)
    x.requires_grad_()
    ops.rms_norm(ops.Linear(w)(x), None, 1e-6).sum().backward()
    assert x.grad is not None
    assert ops.rms_norm(randn(3, 5).double(), None, 1e-6).dtype == torch.float64


# -------- products


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(("k", "n"), [(1, 1), (5, 3), (9, 6), (123, 77), (256, 2048), (1023, 129), (1024, 1000)])
def test_linear_rows_and_columns(k: int, n: int) -> None:
    weight, x = randn(n, k), randn(64, k)
    layer = linear.Linear(weight)
    alone = torch.cat([layer(row) for row in x.split(1)])
    for count in ROWS:
        assert torch.equal(layer(x[64 - count :]), alone[64 - count :]), count
    close(alone, reference_linear.Linear(weight)(x), 1e-5)
    # an output does not depend on its place among the others either
    columns = torch.cat([linear.Linear(row)(x) for row in weight[:5].split(1)], dim=1)
    assert torch.equal(columns, alone[:, :5])


@pytest.mark.parametrize(("k", "n"), [(1, 1), (9, 6), (123, 77), (256, 130)])
def test_a_weight_kept_in_half_the_bytes_gives_the_bits_of_the_whole_one(k: int, n: int) -> None:
    weight, x = randn(n, k).bfloat16().float(), randn(7, k)
    half = linear.Linear(weight)
    # one more row, which needs more bits, keeps the others in float32
    full = linear.Linear(torch.cat([weight, torch.full((1, k), 1.0 + 2.0**-20)]))
    assert (half.weight_bytes, full.weight_bytes) == (2, 4)
    assert torch.equal(half.weight, weight)
    for count in ROWS[:5]:
        assert torch.equal(half(x[:count]), full(x[:count])[:, :n]), count


def test_linear_on_several_threads_gives_the_bits_of_one() -> None:
    layer, x = linear.Linear(randn(1000, 512)), randn(64, 512)
    count = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = layer(x)
        torch.set_num_threads(3)
        assert torch.equal(layer(x), one)
    finally:
        torch.set_num_threads(count)


def test_linear_takes_any_layout() -> None:
    layer, wide = linear.Linear(randn(7, 12)), randn(5, 30)
    for x in (wide[:, 3:15], wide[::2, :12], wide[:, ::2][:, :12], randn(2, 3, 12), randn(12, 4).t()):
        close(layer(x), x @ layer.weight.t(), 1e-5)
    assert layer(wide[:0, :12]).shape == (0, 7)


# -------- agreement with the reference


@pytest.mark.parametrize(("n", "d"), [(4, 5), (4, 256), (3, 41), (2, 123)])
def test_hyper_connections(n: int, d: int) -> None:
    rows = (2 + n) * n
    fn, base, scale, streams = randn(rows, n * d), randn(rows), randn(3), randn(7, n, d)
    options = {"hc_eps": 1e-6, "norm_eps": 1e-6}
    actual = hyper_connections.mhc_pre(
        streams, ops.HyperConnectionWeights(linear.Linear(fn), base, scale), iterations=20, **options
    )
    expected = reference_hyper_connections.mhc_pre(
        streams, ops.HyperConnectionWeights(reference_linear.Linear(fn), base, scale), iterations=20, **options
    )
    for a, e in zip(actual, expected, strict=True):
        close(a, e, 2e-5)
    y = randn(7, d)
    close(
        hyper_connections.mhc_post(y, streams, *expected[1:]),
        reference_hyper_connections.mhc_post(y, streams, *expected[1:]),
    )
    close(
        hyper_connections.hc_head(streams, ops.HcHeadWeights(linear.Linear(fn[:n]), base[:n], scale[:1]), **options),
        reference_hyper_connections.hc_head(
            streams, ops.HcHeadWeights(reference_linear.Linear(fn[:n]), base[:n], scale[:1]), **options
        ),
        2e-5,
    )


def _slots(t: int, count: int, size: int) -> Tensor:
    return torch.randint(1, size, (t, count)).masked_fill(torch.rand(t, count) < 0.3, -1)


@pytest.mark.parametrize(("heads", "d", "window", "entries"), [(3, 5, 7, 0), (5, 123, 24, 9), (4, 512, 128, 64)])
def test_attention_never_reads_a_masked_slot(heads: int, d: int, window: int, entries: int) -> None:
    caches = randn(50, d), randn(40, d)
    for cache in caches:
        cache[0] = 0
    sink, q = randn(heads), randn(9, heads, d)
    window_slots, entry_slots = _slots(9, window, 50), _slots(9, entries, 40)
    window_slots[3], entry_slots[3] = -1, -1  # a query without any key
    keys = ops.key_slots(window_slots), ops.key_slots(entry_slots) if entries else None
    expected = reference_attention.sparse_attention(q, caches[0], keys[0], caches[1], keys[1], sink, d**-0.5)
    for cache in caches:
        cache[0] = float("nan")
    actual = native_attention.sparse_attention(q, caches[0], keys[0], caches[1], keys[1], sink, d**-0.5)
    close(actual, expected)
    assert torch.equal(actual[3], torch.zeros(heads, d))


def test_attention_does_not_depend_on_how_its_list_is_padded() -> None:
    cache, sink, q = randn(50, 40), randn(4), randn(2, 4, 40)
    slots = torch.randint(1, 50, (2, 17))
    spread = torch.full((2, 64), -1)
    spread[:, 5:39:2] = slots
    one, other = (
        native_attention.sparse_attention(q, cache, ops.key_slots(s), None, None, sink, 0.1) for s in (slots, spread)
    )
    assert torch.equal(one, other)


@pytest.mark.parametrize(("d", "inner", "experts", "k"), [(5, 3, 5, 2), (123, 61, 8, 3), (256, 128, 8, 2)])
def test_experts(d: int, inner: int, experts: int, k: int) -> None:
    weights = [(randn(2 * inner, d) / d**0.5, randn(d, inner) / inner**0.5) for _ in range(experts)]
    natives = [ops.ExpertWeights(linear.Linear(a), linear.Linear(b)) for a, b in weights]
    references = [ops.ExpertWeights(reference_linear.Linear(a), reference_linear.Linear(b)) for a, b in weights]
    x, shares = 3 * randn(64, d), torch.rand(64, k)
    selected = torch.rand(64, experts).argsort(-1)[:, :k]  # not ascending, not contiguous

    def rounded(x: Tensor) -> Tensor:
        return x.bfloat16().float()

    for round_trip in (lambda h: h, rounded):
        run = native_experts.routed_experts
        close(
            run(x, selected, shares, natives, 0.9, round_trip),
            reference_experts.routed_experts(x, selected, shares, references, 0.9, round_trip),
            3e-6 if round_trip is not rounded else 1e-2,
        )

    def on(rows: slice) -> Tensor:
        return run(x[rows], selected[rows], shares[rows], natives, 0.9, rounded)

    alone = torch.cat([on(slice(i, i + 1)) for i in range(64)])
    for count in ROWS:
        assert torch.equal(on(slice(0, count)), alone[:count])
    for share in (None, shares[:, :1]):
        close(
            native_experts.expert_mlp(x, natives[0], 0.9, share, lambda h: h),
            reference_experts.expert_mlp(x, references[0], 0.9, share, lambda h: h),
        )


def test_routing() -> None:
    x = torch.cat([12 * randn(31, 9), torch.tensor([[-80.0, -20, -1e-6, 0, 1e-6, 20, 80, 1, -1]])])
    scores = routing.routing_scores(x)
    close(scores, reference_experts.routing_scores(x), 1e-6)
    ties, bias = torch.rand(32, 9).round(decimals=1), torch.rand(9).round(decimals=1)
    selected = routing.select_experts(ties, bias, 4)
    assert torch.equal(selected, reference_experts.select_experts(ties, bias, 4))
    close(routing.expert_weights(scores, selected, 1.5), reference_experts.expert_weights(scores, selected, 1.5))


@pytest.mark.parametrize("d", [5, 64, 123, 512])
def test_norm_rope_and_pool(d: int) -> None:
    x, weight = randn(7, 3, d), randn(d)
    close(norms.rms_norm(x, weight, 1e-6), reference_norms.rms_norm(x, weight, 1e-6))
    close(norms.rms_norm(x[:, 1], None, 1e-6), reference_norms.rms_norm(x[:, 1], None, 1e-6))
    angles = ops.rotation(torch.arange(7) * 1000, ops.inverse_frequencies(d // 2 * 2, 1e4))
    for part in (x, x[:, 1]):
        close(rope.apply_rope(part.clone(), angles), reference_rope.apply_rope(part.clone(), angles), 1e-6)
    values, gates = randn(5, 8, 2 * d).chunk(2, dim=-1)
    gates = gates.masked_fill(torch.arange(8)[:, None] < 4, float("-inf"))
    close(compressor.pool_windows(values, gates), reference_compressor.pool_windows(values, gates))


@pytest.mark.parametrize(("heads", "d", "n"), [(3, 5, 7), (16, 128, 64)])
def test_indexer(heads: int, d: int, n: int) -> None:
    q, weights, keys = randn(heads, d), randn(heads), randn(n, d)
    scores = indexer.indexer_scores(q, weights, keys)
    close(scores, reference_indexer.indexer_scores(q, weights, keys))
    assert torch.equal(indexer.indexer_scores(q, weights, keys[2:5]), scores[2:5])


# -------- round trips: the same bits as the tables


def _edges(block: int) -> Tensor:
    """Blocks of every float16 and bfloat16 value, values near each grid point, subnormals, NaN and infinity."""
    every = torch.arange(1 << 16).to(torch.int32).to(torch.int16)
    values = [every.view(torch.float16).float(), every.view(torch.bfloat16).float(), torch.zeros(block)]
    grid = formats.decode_e4m3(torch.arange(256, dtype=torch.uint8)).nan_to_num()
    halves = (grid[:126] + grid[1:127]) / 2
    for x in (grid, halves, formats.decode_e2m1(torch.arange(16, dtype=torch.uint8)), torch.tensor([0.25, 2.5, 5.0])):
        values += [x, torch.nextafter(x, torch.tensor(torch.inf)), torch.nextafter(x, torch.tensor(-torch.inf))]
    flat = torch.cat([x * 2.0**e for x in values[3:] for e in (0, -20, 60, -126)] + values)
    flat = torch.cat([flat, randn(-flat.numel() % (2 * block))])
    # in the company of others of their size, and next to the largest value, which sets the scale
    return torch.cat([flat.view(-1, block), flat.sort().values.view(-1, block), flat.clamp(-448, 448).view(-1, block)])


@pytest.mark.parametrize("block", [16, 32, 64])
@pytest.mark.parametrize(
    ("native", "reference"),
    [
        (native_round_trips.round_trip_fp8, formats.round_trip_fp8),
        (native_round_trips.round_trip_fp4, formats.round_trip_fp4),
    ],
    ids=["fp8", "fp4"],
)
def test_round_trip_has_the_bits_of_the_format(
    native: Callable[[Tensor, int], Tensor], reference: Callable[[Tensor, int], Tensor], block: int
) -> None:
    x = _edges(block)
    assert same_bits(native(x, block), reference(x, block))
    wide = torch.cat([x[:64], randn(64, 3)], dim=1)
    assert same_bits(native(wide[:, :block], block), reference(wide[:, :block], block))


@pytest.mark.parametrize("shape", [(2,), (3, 32), (16, 128)])
def test_hadamard_has_the_bits_of_the_reference(shape: tuple[int, ...]) -> None:
    x = randn(*shape)
    assert torch.equal(indexer.hadamard(x), reference_indexer.hadamard(x))


def test_exponential() -> None:
    from outrider.ops.native.compilation import kernel
    from outrider.ops.native.vector import exp, floats

    @kernel
    def run(x, count, out):  # type: ignore[no-untyped-def]
        source, target = floats(x), floats(out)
        for i in range(count):
            target[i] = exp(source[i])

    x = torch.cat([torch.linspace(-87, 88, 1_000_001), torch.tensor([-torch.inf, -200, 0, 88.5, torch.inf, torch.nan])])
    out = torch.empty_like(x)
    run(x.data_ptr(), x.numel(), out.data_ptr())
    exact = torch.exp(x[:-6].double())
    assert bool(((out[:-6] - exact).abs() <= 2.0**-23 * exact).all())
    assert out[-6:].tolist()[:5] == [0.0, 0.0, 1.0, torch.inf, torch.inf]
    assert bool(out[-1].isnan())


# -------- threads


def test_threads_belong_to_the_kernels_within_a_step() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with ops.kernel_threads(), ops.kernel_threads():
            assert torch.get_num_threads() == 1
            assert native_threads._num_threads() == 3
        assert (torch.get_num_threads(), native_threads._num_threads()) == (3, 3)
        with pytest.raises(RuntimeError), ops.kernel_threads():
            raise RuntimeError
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
