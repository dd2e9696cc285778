"""Upper bound of the memory that one step takes beside weights and cache.

It counts, for max_num_batched_tokens rows, what is alive at a time: residual streams and slot lists for the whole step,
and the largest of attention, experts and vocabulary head, each with every intermediate as if none were freed. Factors
are copies of a tensor that the code makes (before and after a norm, a rotation, a rounding); measured peaks stay below
(tests/engine/test_workspace.py).
"""

from __future__ import annotations

from outrider import ops
from outrider.cache.batch import ENTRY_TILE
from outrider.config import EngineConfig, LayerKind, ModelConfig

_FLOAT = 4
_SLOT = 20  # of a listed key: int64 index, int64 slot, float32 bias
_SLOT_MAKING = 56  # what is alive while a list is made
_SORTED = 32  # of a sorted value: float32 and int64 in and out
_DRAWING = 128  # of a token while its noise is computed in int64
_GATHERED_QUERIES = 64  # of the reference's attention, at a time


def workspace_bytes(config: ModelConfig, max_model_len: int, depth: int, options: EngineConfig) -> int:
    """Bytes, at most, of a step of an engine that drafts up to `depth` tokens."""
    rows = options.max_num_batched_tokens
    streams = 6 * _FLOAT * config.hc_mult * config.hidden_size * rows
    lists = _lists(config, max_model_len, rows)
    attention = _attention(config, max_model_len, rows, min(options.max_num_seqs, rows))
    return streams + lists + max(attention, _experts(config, rows), _head(config, rows, depth))


def _entries_read(config: ModelConfig, max_model_len: int) -> dict[LayerKind, int]:
    """Entries that a query attends, at most, by kind of layer."""
    read = {}
    for kind in (LayerKind.CSA, LayerKind.HCA):
        if config.kind_count(kind):
            visible = _visible(max_model_len, kind)
            read[kind] = min(visible, config.index_topk) if kind == LayerKind.CSA else visible
    return read


def _visible(max_model_len: int, kind: LayerKind) -> int:
    return -(-(max_model_len // kind) // ENTRY_TILE) * ENTRY_TILE


def _lists(config: ModelConfig, max_model_len: int, rows: int) -> int:
    counts = [config.sliding_window, *_entries_read(config, max_model_len).values()]
    return rows * (_SLOT * sum(counts) + _SLOT_MAKING * max(counts))


def _attention(config: ModelConfig, max_model_len: int, rows: int, requests: int) -> int:
    heads, width = config.num_attention_heads, config.head_dim
    elements = 5 * config.hidden_size + 6 * heads * width + 4 * (config.q_lora_rank + width)
    elements += 4 * config.o_groups * config.o_lora_rank
    size = _FLOAT * rows * elements
    if ops.backends()["sparse_attention"] != "native":
        keys = config.sliding_window + max(_entries_read(config, max_model_len).values(), default=0)
        size += _FLOAT * min(rows, _GATHERED_QUERIES) * keys * 3 * (width + heads)
    compressing = [_compressor(kind, width, rows, requests) for kind in LayerKind if config.kind_count(kind) and kind]
    scoring = 0
    if config.kind_count(LayerKind.CSA) and _visible(max_model_len, LayerKind.CSA) > config.index_topk:
        scoring = _indexer(config, _visible(max_model_len, LayerKind.CSA), rows)
    return size + max([*compressing, scoring], default=0)


def _compressor(kind: LayerKind, width: int, rows: int, requests: int) -> int:
    """Windows that close in a step, gathered token by token, weighed and pooled."""
    halves, span = (2, 2 * kind) if kind == LayerKind.CSA else (1, int(kind))
    closing = min(rows, rows // kind + requests)
    gathered = closing * span * (2 * halves * width + 5 * width)
    return _FLOAT * (gathered + rows * 4 * halves * width) + closing * span * _SLOT_MAKING


def _indexer(config: ModelConfig, visible: int, rows: int) -> int:
    heads, width = config.index_n_heads, config.index_head_dim
    queries = rows * (5 * heads * width + 2 * heads)
    one_query = visible * (3 * width + 3 * heads)
    return _FLOAT * (queries + one_query) + visible * (rows * (_FLOAT + _SORTED) + _SLOT_MAKING)


def _experts(config: ModelConfig, rows: int) -> int:
    inner, chosen = config.moe_intermediate_size, config.num_experts_per_tok
    elements = 8 * config.hidden_size + 3 * chosen * inner + 10 * inner
    return rows * (_FLOAT * elements + config.n_routed_experts * (3 * _FLOAT + _SORTED))


def _head(config: ModelConfig, rows: int, depth: int) -> int:
    """Logits of every row, as prompt_logprobs asks for, and the draws of one request."""
    logits = rows * config.vocab_size * (2 * _FLOAT + _SORTED)
    return logits + (depth + 1) * config.vocab_size * _DRAWING + _FLOAT * rows * 4 * config.hidden_size
