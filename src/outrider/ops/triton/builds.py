"""Every kernel as it ships: argument types, constants of V4's shapes, and tiles, for compilation ahead of time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from triton import next_power_of_2

from outrider.ops.triton.compressor import compress_insert_kernel, kernel_constants, warps_for
from outrider.ops.triton.expert_order import PAIR_TILE, block_map_kernel, order_pairs_kernel
from outrider.ops.triton.expert_products import combine_experts_kernel, expert_down_kernel, expert_gate_up_kernel
from outrider.ops.triton.expert_routing import route_by_table_kernel, route_tokens_kernel
from outrider.ops.triton.gather_rows import gather_rows_kernel
from outrider.ops.triton.gathered_attention import gathered_attention_kernel
from outrider.ops.triton.greedy_head import greedy_head_kernel
from outrider.ops.triton.index_queries import HEAD_TILE as INDEX_HEAD_TILE
from outrider.ops.triton.index_queries import index_queries_kernel
from outrider.ops.triton.indexer_logits import MOST_QUERIES, indexer_logits_kernel
from outrider.ops.triton.key_rows import FORMATS
from outrider.ops.triton.mhc_site import (
    MIX_COLUMNS,
    MIX_SPILLED,
    MIX_TOKENS,
    MIX_WARPS,
    SPLITS,
    mix_kernel,
    site_kernel,
    warps_for_site,
)
from outrider.ops.triton.norm_rope_insert import norm_rope_insert_kernel
from outrider.ops.triton.paged_attention import paged_attention_kernel
from outrider.ops.triton.radix_select import (
    PART,
    TILE,
    WARPS,
    count_chosen_kernel,
    count_digit_kernel,
    select_row_kernel,
    store_chosen_kernel,
)
from outrider.ops.triton.row_norms import mtp_rows_kernel, norm_rows_kernel, swiglu_rows_kernel, warps_for_row
from outrider.ops.triton.sampling import (
    FILTER_TILE,
    FILTER_WARPS,
    best_part_kernel,
    draw_kernel,
    filter_kernel,
)
from outrider.ops.triton.sampling import PART as SAMPLING_PART
from outrider.ops.triton.scaled_linear import scaled_linear_kernel
from outrider.ops.triton.splits import merge_kernel
from outrider.ops.triton.stage_inputs import COLUMNS, stage_inputs_kernel
from outrider.ops.triton.topk_swa import combine_kernel
from outrider.platforms.architectures import Architecture
from outrider.platforms.tiles import attention_tiles, expert_tiles, indexer_tiles, linear_tiles

_POINTERS = {
    **dict.fromkeys(("q", "q_in", "q_out", "out", "kv", "rows", "values", "window_rows", "entry_rows"), "*bf16"),
    **dict.fromkeys(("codes", "scales", "window_codes", "window_scales", "entry_codes", "entry_scales"), "*u8"),
    **dict.fromkeys(("partial_acc", "partial_top", "partial_total", "sink", "cos", "sin", "kv_norm_weight"), "*fp32"),
    **dict.fromkeys(("positions", "requests", "first_positions", "window_table", "entry_table"), "*i32"),
    **dict.fromkeys(("topk_indices", "combined", "combined_indices", "combined_lens", "lens", "key_counts"), "*i32"),
    **dict.fromkeys(("query_start_loc", "seq_lens", "gather_lens"), "*i32"),
    **dict.fromkeys(("index_rows",), "*bf16"),
    **dict.fromkeys(("index_codes", "index_scales"), "*u8"),
    **dict.fromkeys(("head_weights", "logits"), "*fp32"),
    **dict.fromkeys(("digit_counts", "part_counts", "chosen_indices"), "*i32"),
    **dict.fromkeys(("write_slots", "slots"), "*i64"),
    **dict.fromkeys(("values_gates", "ape", "norm_weight", "partial"), "*fp32"),
    "partial_table": "*i32",
    **dict.fromkeys(("x", "staged", "hidden", "shared"), "*bf16"),
    **dict.fromkeys(("router_logits", "bias", "shares"), "*fp32"),
    **dict.fromkeys(("selected", "offsets", "pairs", "block_experts", "block_starts"), "*i32"),
    **dict.fromkeys(("table", "token_ids"), "*i64"),
}
_FLOATS = {"scale_log2e", "eps", "scaling", "limit"}
_ALIGNED = {
    *("num_heads", "row_stride", "window_row_stride", "entry_row_stride", "kv_stride", "topk_stride"),
    *("input_stride", "partial_stride"),
    *("width", "x_stride", "group_rows", "num_rows"),
}


@dataclass(frozen=True)
class Build:
    """One kernel with one set of constants. `matrix`: it must use the matrix instructions of the architecture;
    `spilled_bytes`: what a lane may put aside."""

    label: str
    kernel: Any
    constants: Mapping[str, object]
    num_warps: int = 4
    num_stages: int = 1
    matrix: bool = False
    types: Mapping[str, str] = field(default_factory=dict)
    spilled_bytes: int = 0

    def signature(self) -> dict[str, str]:
        """Type of every argument, as the compiler names them; offsets that can pass 2^31 are int64 in the kernels."""
        return {name: self._type(name) for name in self.kernel.arg_names}

    def _type(self, name: str) -> str:
        if name in self.constants:
            return "constexpr"
        if name in self.types:
            return self.types[name]
        return _POINTERS.get(name, "fp32" if name in _FLOATS else "i32")

    def attributes(self) -> dict[tuple[int, ...], list[list[object]]]:
        """Arguments that are multiples of 16: tensors' addresses, and strides of V4's shapes."""
        return {
            (i,): [["tt.divisibility", 16]]
            for i, (name, kind) in enumerate(self.signature().items())
            if kind.startswith("*") or name in _ALIGNED
        }


def builds(target: Architecture, *, every: bool) -> Iterator[Build]:
    """The builds of an architecture: one configuration a kernel, or with `every` all that a V4 model launches."""
    fp8, ptx = FORMATS[target.fp8], target.backend == "cuda"
    for shape, topk in (("flash", 512), ("pro", 1024)) if every else (("flash", 512),):
        yield Build(f"combine {shape}", combine_kernel, _combine(topk), num_warps=4)
    for name in ("plain", fp8):
        yield Build(f"gather_rows {name}", gather_rows_kernel, _rows(name) | {"BLOCK_N": 16, "PTX": ptx}, num_warps=8)
        yield Build(f"norm_rope_insert {name}", norm_rope_insert_kernel, _insert(name, round_trip=name == "plain"))
        if every and name == "plain":
            yield Build("norm_rope_insert unrounded", norm_rope_insert_kernel, _insert(name, round_trip=False))
        yield _gathered(target, name)
        for ratio, listed in ((4, True), (128, False), (0, False), (4, False)) if every else ((4, True),):
            yield _paged(target, name, ratio, listed=listed)
    for rope in (64, 0) if every else (64,):
        split_keys = attention_tiles(target, fp8=True).split_keys
        constants = {"SPLIT_KEYS": split_keys, "D": 512, "ROPE": rope, "BLOCK_H": 4}
        yield Build(f"merge rope {rope}", merge_kernel, constants)
    yield from _compressor(target, every=every)
    yield from _indexer(target, every=every)
    yield from _linear(target, every=every)
    yield from _row_norms(target, every=every)
    yield from _mhc(target, every=every)
    yield from _sampling(every=every)
    yield from _routing(every=every)
    yield from _experts(target, every=every)


def _rows(name: str) -> dict[str, object]:
    nope, block = (512, 512) if name == "plain" else (448, 64)
    return {"FORMAT": name, "D": 512, "NOPE": nope, "QUANT_BLOCK": block}


def _combine(topk: int) -> dict[str, object]:
    return {"WIDTH": topk + 128, "SEARCH_STEPS": 7, "ROWS": 4, "COLUMNS": 128}


def _insert(name: str, *, round_trip: bool) -> dict[str, object]:
    return {"FORMAT": name, "D": 512, "NOPE": 448, "QUANT_BLOCK": 64, "ROUND_TRIP": round_trip, "BLOCK_H": 8}


def _attention(target: Architecture, name: str) -> dict[str, object]:
    tiles = attention_tiles(target, fp8=name != "plain")
    return _rows(name) | {
        "PTX": target.backend == "cuda",
        "ROPE_OUT": 64,
        "BLOCK_H": tiles.head_tile,
        "BLOCK_N": tiles.key_tile,
        "SPLIT_KEYS": tiles.split_keys,
    }


def _compressor(target: Architecture, *, every: bool) -> Iterator[Build]:
    """Main KV of both ratios, rounded plain rows and FP8; indexer keys."""
    fp8 = FORMATS[target.fp8]
    for ratio in (4, 128) if every else (4,):
        for name in ("rounded", fp8):
            written = {"FORMAT": name, "D": 512, "ROPE": 64, "CODED": 448, "QUANT_BLOCK": 64, "HADAMARD": False}
            constants = kernel_constants(512, ratio, 128, overlap=ratio == 4) | written
            yield Build(f"compress_insert {name} ratio {ratio}", compress_insert_kernel, constants, warps_for(512))
    for name, block in (("fp4", 32), (fp8, 128)) if every else (("fp4", 32),):
        written = {"FORMAT": name, "D": 128, "ROPE": 64, "CODED": 128, "QUANT_BLOCK": block, "HADAMARD": True}
        constants = kernel_constants(128, 4, 128, overlap=True) | written
        yield Build(f"compress_insert index {name}", compress_insert_kernel, constants, warps_for(128))


def _gathered(target: Architecture, name: str) -> Build:
    tiles = attention_tiles(target, fp8=name != "plain")
    return Build(
        f"gathered_attention {name}",
        gathered_attention_kernel,
        _attention(target, name),
        tiles.num_warps,
        tiles.num_stages,
        matrix=True,
        spilled_bytes=tiles.spilled_bytes,
    )


def _paged(target: Architecture, name: str, ratio: int, *, listed: bool) -> Build:
    tiles = attention_tiles(target, fp8=name != "plain")
    constants = {
        "WINDOW": 128,
        "RATIO": ratio,
        "LISTED": listed,
        "PAGE_TOKENS": 128,
        "SPLIT_CEIL": next_power_of_2(tiles.split_keys),
    }
    return Build(
        f"paged_attention {name} ratio {ratio}{' listed' if listed else ''}",
        paged_attention_kernel,
        _attention(target, name) | constants,
        tiles.num_warps,
        tiles.num_stages,
        matrix=True,
        spilled_bytes=tiles.spilled_bytes,
    )


def _indexer(target: Architecture, *, every: bool) -> Iterator[Build]:
    tiles = indexer_tiles(target)
    shape = {"D": 128, "LOG2_D": 7, "SCALE": 128**-0.5, "NOPE": 64, "BLOCK_H": INDEX_HEAD_TILE}
    for name, block in (("fp4", 32), ("fp8", 128), ("plain", 128)) if every else (("fp4", 32), ("fp8", 128)):
        constants: dict[str, object] = shape | {"FORMAT": name, "QUANT_BLOCK": block}
        yield Build(f"index_queries {name}", index_queries_kernel, constants)
    for name in ("plain", FORMATS[target.fp8], "fp4"):
        constants = {"RATIO": 4, "PER_PAGE": 32, "FORMAT": name, "D": 128, "BLOCK_H": 64, "BLOCK_N": tiles.key_tile}
        constants |= {"MOST_QUERIES": MOST_QUERIES}
        label = f"indexer_logits {name}"
        yield Build(label, indexer_logits_kernel, constants, tiles.num_warps, matrix=True)
    for shape_name, topk in (("flash", 512), ("pro", 1024)) if every else (("flash", 512),):
        constants = {"RATIO": 4, "TOPK": topk, "TILE": TILE}
        columns, part = {"COLUMNS": topk}, {"PART": PART}
        yield Build(f"select_row {shape_name}", select_row_kernel, constants | columns, WARPS)
        for digit in range(4) if every else (3,):
            more = constants | part | {"DIGIT": digit}
            yield Build(f"count_digit {shape_name} {digit}", count_digit_kernel, more, WARPS)
        yield Build(f"count_chosen {shape_name}", count_chosen_kernel, constants | part, WARPS)
        yield Build(f"store_chosen {shape_name}", store_chosen_kernel, constants | part | columns, WARPS)


_PARTS = {"part_scores": "*fp32", "part_ids": "*i32", "tokens": "*i64"}


def _linear(target: Architecture, *, every: bool) -> Iterator[Build]:
    """FP8 weights with bfloat16 and FP8 rows, bfloat16 ones (the head), for each tile of tokens."""
    fp8 = FORMATS[target.fp8]
    pairs = ((fp8, "plain"), (fp8, fp8), ("plain", "plain"))
    for w, x in pairs:
        for tokens in (16, 32, 64, 4096) if every else (16, 4096):
            for splits in (1, 4):
                tiles = linear_tiles(target, tokens, 4096, splits)
                shared = splits > 1 and tokens <= 64
                constants = {"W_FORMAT": w, "X_FORMAT": x, "SHARED": shared, "SINGLE": splits == 1}
                constants |= {"BLOCK_N": tiles.rows, "BLOCK_T": tiles.tokens}
                form = (tiles.num_warps, tiles.num_stages, True, _operands(w, x))
                label = f"{w} x {x} {tiles.rows}x{tiles.tokens}"
                split = " split" if splits > 1 else ""
                yield Build(f"scaled_linear {label}{split}", scaled_linear_kernel, constants, *form)
                if splits == 1:
                    del constants["SHARED"]
                    yield Build(f"greedy_head {label}", greedy_head_kernel, constants, *form)


def _operands(w: str, x: str) -> dict[str, str]:
    """Types of the arguments of a product."""
    fp8 = {"plain": "*bf16", "ocp": "*fp8e4nv", "fnuz": "*fp8e4b8"}
    named = {"weight": fp8[w], "x": fp8[x], "weight_scales": "*fp32", "x_scales": "*fp32"}
    return named | {"partial": "*fp32", "tickets": "*i32", "out": "*bf16"} | _PARTS


def _row_norms(target: Architecture, *, every: bool) -> Iterator[Build]:
    """Rows of 4096; of 7168 (Pro) as well with `every`."""
    types = {"x": "*bf16", "norm_weight": "*bf16", "streams": "*bf16", "embedding": "*bf16", "token_ids": "*i64"}
    types |= {"enorm": "*bf16", "hnorm": "*bf16", "scales": "*fp32", "limit": "fp32"}
    for block in (4096, 8192) if every else (4096,):
        for name in (FORMATS[target.fp8], "plain") if every else (FORMATS[target.fp8],):
            constants = {"FP8": name, "BLOCK": block}
            warps = warps_for_row(block)
            for norm in (True, False) if name != "plain" else (True,):
                label = f"{'norm' if norm else 'quantize'}_rows {name} {block}"
                yield Build(label, norm_rows_kernel, constants | {"NORM": norm}, warps, types=types)
            yield Build(f"mtp_rows {name} {block}", mtp_rows_kernel, constants, warps, types=types)
            yield Build(f"swiglu_rows {name} {block}", swiglu_rows_kernel, constants, warps, types=types)


def _mhc(target: Architecture, *, every: bool) -> Iterator[Build]:
    """Sites of width 4096, written and read; of 7168 (Pro), the first read and the heads as well with `every`."""
    floats = ("fn", "partial", "base", "scale", "post", "comb", "scales")
    types = dict.fromkeys(floats, "*fp32") | dict.fromkeys(("streams_in", "streams", "y", "norm_weight"), "*bf16")
    types |= {"hc_eps": "fp32"}
    for write in (True, False) if every else (True,):
        constants: dict[str, object] = {"WRITE": write, "BLOCK_T": MIX_TOKENS, "BLOCK_D": MIX_COLUMNS}
        label = f"mix {'written' if write else 'read'}"
        yield Build(label, mix_kernel, constants, MIX_WARPS, matrix=True, types=types, spilled_bytes=MIX_SPILLED)
    for block in (4096, 8192) if every else (4096,):
        for name in (FORMATS[target.fp8], "plain") if every else (FORMATS[target.fp8],):
            for head in (False, True) if every else (False,):
                constants = {"HEAD": head, "ITERATIONS": 20, "SPLITS": SPLITS, "FP8": name, "BLOCK": block}
                label = f"site {name} {block}{' head' if head else ''}"
                yield Build(label, site_kernel, constants, warps_for_site(block), types=types)


def _sampling(*, every: bool) -> Iterator[Build]:
    types = _PARTS | dict.fromkeys(("temperatures", "top_p", "min_p", "tops"), "*fp32")
    types |= {"allowed": "*u8", "seeds": "*i64", "positions": "*i64"}
    types |= dict.fromkeys(("top_k", "thresholds", "last_ids"), "*i32")
    for masked in (False, True) if every else (True,):
        mask = " masked" if masked else ""
        constants: dict[str, object] = {"MASKED": masked, "TILE": FILTER_TILE}
        yield Build(f"filter{mask}", filter_kernel, constants, FILTER_WARPS, types=types)
        for filtered in (False, True) if every else (True,):
            constants = {"FILTERED": filtered, "MASKED": masked, "PART": SAMPLING_PART}
            yield Build(f"draw{mask}{' filtered' if filtered else ''}", draw_kernel, constants, types=types)
    yield Build("best_part", best_part_kernel, {"TILE": 128}, types=types)


def _routing(*, every: bool) -> Iterator[Build]:
    for shape, experts in (("flash", 256), ("pro", 512)) if every else (("flash", 256),):
        constants: dict[str, object] = {"TOPK": 6, "BLOCK_E": experts, "BLOCK_K": 8}
        yield Build(f"route_tokens {shape}", route_tokens_kernel, constants, num_warps=1)
        constants = {"TOKEN_TILE": 16, "BLOCK_E": experts}
        yield Build(f"block_map {shape}", block_map_kernel, constants)
    yield Build("route_by_table", route_by_table_kernel, {"TOPK": 6, "BLOCK_K": 8}, num_warps=1)
    yield Build("order_pairs", order_pairs_kernel, {"TILE": PAIR_TILE})


def _experts(target: Architecture, *, every: bool) -> Iterator[Build]:
    """Decode blocks of FP4 experts; with `every` FP8 ones, prefill blocks and V4-Pro."""
    ptx = target.backend == "cuda"
    for shape, d, width in (("flash", 4096, 2048), ("pro", 7168, 3072)) if every else (("flash", 4096, 2048),):
        staged: dict[str, object] = {"K": d, "PARTS": 4, "ROUND_TRIP": True, "COLUMNS": COLUMNS}
        yield Build(f"stage_inputs {shape}", stage_inputs_kernel, staged)
        combined: dict[str, object] = {"D": d, "TOPK": 6, "SHARED": True, "COLUMNS": COLUMNS}
        yield Build(f"combine_experts {shape}", combine_experts_kernel, combined, types={"partial": "*fp32"})
        for name in ("fp4", FORMATS[target.fp8]) if every else ("fp4",):
            for pairs in (1, 1 << 20) if every else (1,):
                tiles = expert_tiles(target, pairs, 256)
                cut = {"FORMAT": name, "K_TILE": tiles.k_tile, "TOKEN_TILE": tiles.token_tile, "PTX": ptx}
                gate_up = cut | {"K": d, "WIDTH": width, "TOPK": 6, "ROUND_TRIP": True}
                down = cut | {"D": d, "K": width}
                types = {"codes": "*i16", "scales": "*i32" if name == "fp4" else "*u8"}
                for kernel, what, constants in (
                    (expert_gate_up_kernel, "expert_gate_up", gate_up),
                    (expert_down_kernel, "expert_down", down),
                ):
                    label = f"{what} {shape} {name} x {tiles.token_tile}"
                    yield Build(label, kernel, constants, tiles.num_warps, tiles.num_stages, matrix=True, types=types)
