"""Softmax over a list of keys, a tile at a time, with a sink: the arithmetic that all attention kernels share.

    s_i = (q . k_i) scale;   o = sum_i exp(s_i - m) k_i / (sum_i exp(s_i - m) + exp(sink - m))

The list is cut into splits of a fixed number of keys and every split into tiles of a fixed number. A split starts with
m = sink, an empty sum and acc = 0; its tiles fold in from first to last; the splits merge from first to last. A query
with one split is finished by the arithmetic of a merge of one, so whether the batch holds longer queries does not show.
Since m starts at the sink it is never -inf: a query without keys gives 0, and no NaN arises that was not in an input.

Scores are in units of log2 (the scale holds log2 e), statistics and sums are float32; the weights exp(s - m) are
rounded to the keys' dtype for the product, not for the sum (official kernel: sparse_attn).
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from outrider.ops.reference.rope import Rotation
from outrider.ops.triton.arithmetic import add_product, as_float32, cast_like, product

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def query_and_heads(num_heads, BLOCK_H: tl.constexpr):  # type: ignore[no-untyped-def]
    """This program's query (int64), heads [BLOCK_H] and which of them exist. Grid axis 0: queries * head tiles."""
    head_tiles = tl.cdiv(num_heads, BLOCK_H)
    query = (tl.program_id(0) // head_tiles).to(tl.int64)
    heads = tl.program_id(0) % head_tiles * BLOCK_H + tl.arange(0, BLOCK_H)
    return query, heads, heads < num_heads


@triton.jit
def load_query(q, query, num_heads, heads, live_heads, D: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rows `heads` of a query of q [T, H, D]; 0 for heads that do not exist."""
    rows = q + (query * num_heads + heads)[:, None] * D + tl.arange(0, D)[None, :]
    return tl.load(rows, mask=live_heads[:, None], other=0.0)


@triton.jit
def load_sink(sink, heads, live_heads):  # type: ignore[no-untyped-def]
    """Sinks of heads [H] in units of log2."""
    return as_float32(tl.load(sink + heads, mask=live_heads, other=0.0)) * LOG2_E


@triton.jit
def _weigh(q, keys, valid, top, total, scale_log2e):  # type: ignore[no-untyped-def]
    """-> new (top [H], total [H]), the weights [H, N] as the product takes them, decay [H] of what was before."""
    scores = product(q, tl.trans(keys)) * scale_log2e
    scores = tl.where(valid[None, :], scores, float("-inf"))
    new_top = tl.maximum(top, tl.max(scores, 1))
    decay = tl.exp2(top - new_top)
    weights = tl.exp2(scores - new_top[:, None])
    return new_top, total * decay + tl.sum(weights, 1), cast_like(weights, keys.dtype), decay


@triton.jit
def fold_tile(q, keys, valid, here, top, total, acc, scale_log2e, PTX: tl.constexpr):  # type: ignore[no-untyped-def]
    """Folds keys [N, D] (valid: [N]) into (top [H], total [H], acc [H, D]) of q [H, D].

    here: that the tile lies within the query's list, a fact of the loop that the compiler does not know. Where Triton
    (3.6, 3.7) sees one product feed another, it gives a warp whole rows of scores: with 64 heads, Hopper's two
    warpgroups then compute every score twice. It does not look out of a branch. (On gfx950 one costs registers.)
    """
    if PTX:
        weights = tl.zeros((q.shape[0], keys.shape[0]), keys.dtype)
        decay = total
        if here:
            top, total, weights, decay = _weigh(q, keys, valid, top, total, scale_log2e)
    else:
        top, total, weights, decay = _weigh(q, keys, valid, top, total, scale_log2e)
    return top, total, add_product(weights, keys, acc * decay[:, None])


@triton.jit
def rotate_back(rows, cos, sin, live_heads, D: tl.constexpr, ROPE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Inverse rope, in place, of the last ROPE dims of out rows that this program has stored.

    rows: pointers [H] to them; cos, sin: pointers to the query's ROPE / 2 angles. Read back instead of taken apart in
    registers, where the accumulator leaves no room; so the output is rounded before it is rotated, as the reference
    inference does.
    """
    dims = tl.arange(0, ROPE)
    c = tl.load(cos + dims // 2)[None, :]
    s = tl.load(sin + dims // 2)[None, :]
    tail = rows[:, None] + (D - ROPE)
    tl.debug_barrier()
    own = as_float32(tl.load(tail + dims[None, :], mask=live_heads[:, None], other=0.0))
    other = as_float32(tl.load(tail + (dims ^ 1)[None, :], mask=live_heads[:, None], other=0.0))
    tl.debug_barrier()
    # (a, b) -> (a cos + b sin, b cos - a sin)
    turned = tl.where((dims % 2 == 0)[None, :], own * c + other * s, own * c - other * s)
    tl.store(tail + dims[None, :], cast_like(turned, rows.dtype.element_ty), mask=live_heads[:, None])


@triton.jit
def finish(  # type: ignore[no-untyped-def]
    out,
    acc,
    top,
    total,
    sink,
    query,
    num_heads,
    heads,
    live_heads,
    cos,
    sin,
    D: tl.constexpr,
    ROPE: tl.constexpr,
):
    """Divides by the sum with the sink and stores rows `heads` of a query of out [T, H, D]; rotates them back by the
    query's row of cos and sin [T, ROPE / 2] if ROPE > 0."""
    result = acc / (total + tl.exp2(sink - top))[:, None]
    dims = tl.arange(0, D)
    rows = out + query * num_heads * D + heads * D
    tl.store(rows[:, None] + dims[None, :], cast_like(result, out.dtype.element_ty), mask=live_heads[:, None])
    if ROPE > 0:
        angles = query * (ROPE // 2)
        rotate_back(rows, cos + angles, sin + angles, live_heads, D, ROPE)


def output_angles(rotation: Rotation | None, q: Tensor) -> tuple[Tensor, Tensor, int]:
    """(cos, sin, rope dims) for `finish`; without a rotation, tensors that are not read and 0."""
    if rotation is None:
        return q, q, 0
    rope = 2 * rotation.cos.shape[1]
    if rope & (rope - 1) or rope > q.shape[-1]:
        raise ValueError(f"rotation: {rope} dims of {q.shape[-1]}; the kernels take a power of two")
    return rotation.cos.contiguous(), rotation.sin.contiguous(), rope
