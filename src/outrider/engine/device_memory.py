"""What an engine takes of a GPU's memory beside its pages: weights as stored, rows as cached, a step, its graphs.

Weights and rows are exact. The workspace of a step is an upper bound: what the ops of ops/triton allocate, as if none
were freed within attention, experts or head. Graphs share one pool, in which a step of the largest captured size lies,
so it is counted again for them; what the driver keeps for each captured launch is an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from outrider.cache.layout import BLOCK_TOKENS, LayerLayout, cache_layout
from outrider.checkpoint.names import Part, TensorSpec
from outrider.config import EngineConfig, LayerKind, ModelConfig, Numerics
from outrider.engine.memory_plan import DEFAULT_UTILIZATION, CacheCost, MemoryPlan, with_pages

_BF16, _FLOAT, _INDEX = 2, 4, 4
_FP8_ROWS = 1 + _FLOAT / 128  # of a value with its share of a scale
SCRATCH_BYTES = 512 << 20  # that attention's splits and the indexer's scores may take in a launch, each
LAUNCHES_A_LAYER = 24  # 20 to 22 ops of a ratio-4 layer, top-k in parts not counted
NODE_BYTES = 4096  # of a captured launch in the driver; not measured yet


def plan_device_memory(
    config: ModelConfig,
    table: Mapping[str, TensorSpec],
    options: EngineConfig,
    numerics: Numerics,
    *,
    depth: int,
    available: int,
    graph_sizes: Sequence[int] = (),
) -> MemoryPlan:
    """The plan of an engine on a GPU that drafts up to `depth` tokens (0: no drafter is loaded).

    table: the checkpoint's, by name. available: free bytes of the device. graph_sizes: numbers of tokens at which steps
    are captured. Raises ConfigError for limits that contradict each other; `require_fit` is the caller's.
    """
    context = options.context_of(config)
    weights = device_weight_bytes(table)
    utilization = DEFAULT_UTILIZATION if options.gpu_memory_utilization is None else options.gpu_memory_utilization
    rows = options.max_num_batched_tokens
    num_logits = min(rows, options.max_num_seqs * (1 + depth))
    plan = MemoryPlan(
        weights=weights[False],
        drafter_weights=weights[True] if depth else 0,
        cache=device_cache_costs(config, numerics, with_drafter=depth > 0),
        workspace=device_workspace_bytes(config, context, depth, rows=rows, num_logits=num_logits),
        window_pages=0,
        entry_pages=0,
        caches=1,
        context=context,
        available=available,
        budget=int(utilization * available),
        utilization=utilization,
        graphs=graph_bytes(config, context, depth, sizes=graph_sizes, num_logits=num_logits),
    )
    return with_pages(plan, config.sliding_window, depth, options)


def device_weight_bytes(table: Mapping[str, TensorSpec]) -> dict[bool, int]:
    """Bytes on the device of the trunk's (False) and the drafter's (True) tensors, by name in the checkpoint's table.

    As stored, and for matrices in FP8 what `ops.fp8_weight` makes of them: scales in float32 (experts keep their
    bytes) and an int32 for every 64 rows.
    """
    found = {False: 0, True: 0}
    for spec in table.values():
        if spec.part is Part.DSPARK:
            continue
        size = spec.nbytes
        if spec.dtype == "F8_E4M3" and spec.scale is not None:
            scales = table[spec.scale]
            size += _FLOAT * math.prod(scales.shape) - scales.nbytes
        if len(spec.shape) == 2 and spec.dtype in ("F8_E4M3", "BF16") and spec.part is not Part.EMBEDDING:
            size += _INDEX * -(-spec.shape[0] // 64)
        found[spec.part is Part.MTP] += size
    return found


def device_cache_costs(config: ModelConfig, numerics: Numerics, *, with_drafter: bool) -> tuple[CacheCost, ...]:
    """Every kind of row as ops.KvRows holds it: FP8 rows keep the rotated dims in BF16; partial rows are float32."""
    layouts = cache_layout(config, with_drafter=with_drafter)
    trunk, drafter = layouts[: config.num_hidden_layers], layouts[config.num_hidden_layers :]
    row, key = _row_bytes(config, numerics), _key_bytes(config, numerics)
    streams = _BF16 * config.hc_mult * config.hidden_size
    partial = [_FLOAT * (layer.partial_width + layer.index_partial_width) for layer in trunk]
    kinds = [
        ("window", True, BLOCK_TOKENS * row * len(trunk)),
        ("partial group", True, BLOCK_TOKENS * sum(partial)),
        ("drafter", True, len(drafter) * (BLOCK_TOKENS * row + streams)),
        ("compressed", False, row * _entries(trunk, (LayerKind.CSA, LayerKind.HCA))),
        ("indexer", False, key * _entries(trunk, (LayerKind.CSA,))),
    ]
    return tuple(CacheCost(name, window, size) for name, window, size in kinds if size)


def _entries(trunk: Iterable[LayerLayout], kinds: tuple[LayerKind, ...]) -> int:
    """Of a block, in all layers of these kinds."""
    return sum(layer.entries_per_block for layer in trunk if layer.kind in kinds)


def _row_bytes(config: ModelConfig, numerics: Numerics) -> int:
    if numerics.kv_cache_dtype != "fp8":  # auto keeps the rounded values in bfloat16
        return _BF16 * config.head_dim
    return config.nope_head_dim + _BF16 * config.qk_rope_head_dim + config.nope_head_dim // config.kv_quant_block


def _key_bytes(config: ModelConfig, numerics: Numerics) -> int:
    width = config.index_head_dim
    return {"fp4": width // 2 + width // 32, "fp8": width + 1, "bf16": _BF16 * width}[numerics.indexer_dtype]


def device_workspace_bytes(config: ModelConfig, max_model_len: int, depth: int, *, rows: int, num_logits: int) -> int:
    """Bytes, at most, of a step of `rows` tokens of which `num_logits` need logits, drafting up to `depth` tokens."""
    streams = 3 * _BF16 * config.hc_mult * config.hidden_size * rows  # before and after a site, and its float32 sums
    phases = [_attention(config, max_model_len, rows), _experts(config, rows), _head(config, num_logits, depth)]
    return math.ceil(streams + max(phases))


def _attention(config: ModelConfig, max_model_len: int, rows: int) -> float:
    heads, width = config.num_attention_heads, config.head_dim
    projected = config.hidden_size * (_BF16 + _FP8_ROWS) + config.q_lora_rank * (2 * _BF16 + _FP8_ROWS) + _BF16 * width
    queries = 3 * _BF16 * heads * width + _FP8_ROWS * heads * width  # as projected, as rotated, the output and its FP8
    output = config.o_groups * config.o_lora_rank * (_BF16 + _FP8_ROWS) + _BF16 * config.hidden_size
    indexer = 0.0
    if config.kind_count(LayerKind.CSA):
        indexer = config.index_n_heads * (2 * _BF16 * config.index_head_dim + _FLOAT) + 2 * _INDEX * config.index_topk
    compressor = _FLOAT * 4 * (width + config.index_head_dim)
    scores = min(SCRATCH_BYTES, _FLOAT * rows * max(max_model_len // LayerKind.CSA, 1))
    keys = config.sliding_window + max_model_len // LayerKind.HCA
    parts = min(SCRATCH_BYTES, _FLOAT * rows * heads * (width + 2) * -(-keys // 128))
    return rows * (projected + queries + output + indexer + compressor) + scores + parts


def _experts(config: ModelConfig, rows: int) -> float:
    d, inner, chosen = config.hidden_size, config.moe_intermediate_size, config.num_experts_per_tok
    routed = _BF16 * d + chosen * (_BF16 * inner + _FLOAT * d + 4 * _INDEX) + _FLOAT * config.n_routed_experts
    shared = d * (_BF16 + _FP8_ROWS) + inner * (3 * _BF16 + _FP8_ROWS) + 2 * _BF16 * d
    return rows * (routed + shared) + 4 * _INDEX * (config.n_routed_experts + 1)


def _head(config: ModelConfig, num_logits: int, depth: int) -> float:
    """Float32 logits, and the drafter's rows (greedy drafts need no logits)."""
    drafting = _BF16 * 4 * config.hc_mult * config.hidden_size if depth else 0
    return num_logits * (_FLOAT * config.vocab_size + _BF16 * config.hidden_size + drafting)


def graph_bytes(config: ModelConfig, max_model_len: int, depth: int, *, sizes: Iterable[int], num_logits: int) -> int:
    """Of graphs captured at these numbers of tokens, which share a pool; 0 without any. num_logits: of the largest."""
    captured = list(sizes)
    if not captured:
        return 0
    pool = device_workspace_bytes(config, max_model_len, depth, rows=max(captured), num_logits=num_logits)
    layers = config.num_hidden_layers + bool(depth)
    return pool + NODE_BYTES * LAUNCHES_A_LAYER * layers * len(captured)
