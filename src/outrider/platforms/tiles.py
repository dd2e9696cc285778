"""Tile sizes of the attention and indexer kernels, one row an architecture.

`key_tile`, `head_tile` and `split_keys` decide the bits of a result (on an H200, 16, 32 and 64 heads did not all
agree), so an architecture has one of each, for a kind of cache, in prefill, decode and verify. The rest changes speed
alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.platforms.architectures import Architecture


@dataclass(frozen=True)
class AttentionTiles:
    """One program: `head_tile` heads of one query over one split, `key_tile` keys at a time.

    split_keys: keys at which a query's list is split, a multiple of key_tile. 640 is top-k 512 and the window of 128,
    so that a query of V4-Flash is split only in layers that attend everything, beyond 64 K tokens. Fewer would spread a
    small batch over more processors, and cost prefill its single pass (benchmarks/notes.md).
    spilled_bytes: a lane may put so many aside; more than 0 only where that was measured to beat smaller tiles.
    """

    head_tile: int
    key_tile: int
    split_keys: int
    num_warps: int
    num_stages: int
    spilled_bytes: int = 0

    def __post_init__(self) -> None:
        assert self.split_keys % self.key_tile == 0


_PLAIN = {
    "gfx942": AttentionTiles(head_tile=32, key_tile=16, split_keys=640, num_warps=4, num_stages=1),
    "gfx950": AttentionTiles(head_tile=64, key_tile=16, split_keys=640, num_warps=8, num_stages=1),
    "sm_90": AttentionTiles(head_tile=64, key_tile=64, split_keys=640, num_warps=8, num_stages=2, spilled_bytes=64),
}
_FP8 = {  # decoding needs registers of its own
    "gfx942": AttentionTiles(head_tile=32, key_tile=16, split_keys=640, num_warps=4, num_stages=1),
    "gfx950": AttentionTiles(head_tile=64, key_tile=16, split_keys=640, num_warps=8, num_stages=1),
    "sm_90": AttentionTiles(head_tile=64, key_tile=64, split_keys=640, num_warps=8, num_stages=1, spilled_bytes=640),
}
INTERPRETER_TILES = AttentionTiles(
    head_tile=16, key_tile=64, split_keys=640, num_warps=4, num_stages=1
)  # few steps, since each is slow


def attention_tiles(target: Architecture, *, fp8: bool) -> AttentionTiles:
    """Tiles for caches of this kind. sm_90: the fastest of benchmarks/results/kernels_h200.md. gfx942 and gfx950, which
    could not be timed: the largest that spill no register."""
    return (_FP8 if fp8 else _PLAIN)[target.name]


@dataclass(frozen=True)
class IndexerTiles:
    """One program: `key_tile` keys at a time, all heads. Like attention's key tile it belongs to the architecture."""

    key_tile: int
    num_warps: int


_INDEXER = {
    "gfx942": IndexerTiles(key_tile=128, num_warps=4),
    "gfx950": IndexerTiles(key_tile=128, num_warps=4),
    "sm_90": IndexerTiles(key_tile=128, num_warps=4),
}
INTERPRETER_INDEXER_TILES = IndexerTiles(key_tile=32, num_warps=4)


def indexer_tiles(target: Architecture) -> IndexerTiles:
    """The largest that compile without spilling registers, in every format."""
    return _INDEXER[target.name]


@dataclass(frozen=True)
class LinearTiles:
    """One program of a linear layer: `rows` of the weight (64 or 128) by `tokens`. Changes speed alone: the bits of a
    product do not depend on it (ops/triton/scaled_linear.py)."""

    rows: int
    tokens: int
    num_warps: int
    num_stages: int


@dataclass(frozen=True)
class ExpertTiles:
    """One program: 128 weight rows against a block of at most `token_tile` pairs, `k_tile` of the inner dim at a time.

    `k_tile` decides the order of a sum, so an architecture has one; the token tile does not show in the bits.
    """

    token_tile: int
    k_tile: int
    num_warps: int
    num_stages: int


_LINEAR_STAGES = {"gfx942": 2, "gfx950": 2, "sm_90": 4}
INTERPRETER_LINEAR_TILES = LinearTiles(rows=64, tokens=16, num_warps=4, num_stages=1)
_FILLS_A_GPU = 128  # tiles


def linear_tiles(target: Architecture, tokens: int, rows: int, splits: int) -> LinearTiles:
    """Tiles for a product of so many tokens with a weight of so many rows, whose width is cut into so many splits."""
    stages = _LINEAR_STAGES[target.name]
    if tokens <= 64:
        return LinearTiles(64, 16 if tokens <= 16 else 32 if tokens <= 32 else 64, 4, stages)
    if (rows // 128) * -(-tokens // 128) < _FILLS_A_GPU:
        return LinearTiles(64, 64, 4, stages)
    return LinearTiles(128, 128 if splits == 1 else 64, 8, stages - 1)  # splits need a second accumulator


_FEW_TOKENS = {
    "gfx942": ExpertTiles(token_tile=16, k_tile=128, num_warps=8, num_stages=2),
    "gfx950": ExpertTiles(token_tile=16, k_tile=128, num_warps=8, num_stages=2),
    "sm_90": ExpertTiles(token_tile=16, k_tile=128, num_warps=8, num_stages=4),
}
_MANY_TOKENS = {
    "gfx942": ExpertTiles(token_tile=64, k_tile=128, num_warps=8, num_stages=1),
    "gfx950": ExpertTiles(token_tile=64, k_tile=128, num_warps=8, num_stages=2),
    "sm_90": ExpertTiles(token_tile=64, k_tile=128, num_warps=8, num_stages=3),
}
INTERPRETER_EXPERT_TILES = ExpertTiles(token_tile=16, k_tile=128, num_warps=4, num_stages=1)


def expert_tiles(target: Architecture, pairs: int, experts: int) -> ExpertTiles:
    """For so many (token, expert) pairs: few an expert are bound by its bytes, many by arithmetic."""
    return (_FEW_TOKENS if pairs <= 16 * experts else _MANY_TOKENS)[target.name]
