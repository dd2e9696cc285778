"""Between two sublayers: streams written, mixed, collapsed and normed, in two launches.

Formula and contract: ops/reference/mhc_site.py. The first launch writes the new streams and multiplies them, tile by
tile, with the site's matrix: float32 numbers of 24 bits as three bfloat16 ones, so that products with bfloat16 streams
are exact and only their sum rounds. The width of a stream is cut into SPLITS parts, fixed, each with a partial sum of
its own. The second launch, a program a token, adds the parts, takes the root of the mean square, iterates Sinkhorn, and
collapses and norms the streams. No sum of a token depends on how many tokens there are.

Floor: streams in twice and out once, 2 n d bytes each, y and the collapsed row 2 d each (V4-Flash: 115 KB a token).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.ops.reference import mhc_site as reference
from outrider.ops.reference.mhc_site import MixWeights, Site, Written
from outrider.ops.reference.row_norms import Rows
from outrider.ops.triton.arithmetic import add_product, as_bfloat16, as_float32
from outrider.ops.triton.key_rows import FORMATS
from outrider.ops.triton.launching import cdiv, has_kernels, launch, next_power_of_2
from outrider.ops.triton.row_norms import empty_rows, normed, row_dims, row_pointers, store_rows
from outrider.platforms.architectures import Fp8Dialect

STREAMS = 4
SPLITS = 32
# of the first launch: good for decoding and near the best for 4096 tokens (benchmarks/results/mhc_h200.md)
MIX_COLUMNS = 64  # of each stream, at a time; decides the order of a sum
MIX_TOKENS = 16
MIX_WARPS = 4
MIX_SPILLED = 128  # bytes that a lane may put aside; sm_90 does, and is faster for it than with half the columns
_MIX_ROWS = tl.constexpr(32)  # of the matrix: 24, or 4 of a head


@triton.jit
def mix_kernel(  # type: ignore[no-untyped-def]
    streams_in,
    streams,
    y,
    post,
    comb,
    fn,
    partial,
    num_tokens,
    width,
    mix_rows,
    WRITE: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Grid: (token tiles, splits). partial: [splits, tokens, 32]. Without WRITE streams are streams_in."""
    tokens = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    live = tokens < num_tokens
    tokens = tokens.to(tl.int64)
    outputs = tl.arange(0, _MIX_ROWS)
    steps = tl.cdiv(width, BLOCK_D)
    span = tl.cdiv(steps, tl.num_programs(1))
    total = tl.zeros((BLOCK_T, _MIX_ROWS), tl.float32)
    for step in range(tl.program_id(1) * span, tl.minimum((tl.program_id(1) + 1) * span, steps)):
        columns = step * BLOCK_D + tl.arange(0, BLOCK_D)
        inside = columns < width
        place = tokens[:, None] * (4 * width) + columns[None, :]
        both = live[:, None] & inside[None, :]
        if WRITE:
            written = tl.load(y + tokens[:, None] * width + columns[None, :], mask=both, other=0.0)
            x0 = tl.load(streams_in + place, mask=both, other=0.0)
            x1 = tl.load(streams_in + place + width, mask=both, other=0.0)
            x2 = tl.load(streams_in + place + 2 * width, mask=both, other=0.0)
            x3 = tl.load(streams_in + place + 3 * width, mask=both, other=0.0)
        for k in range(4):  # a loop: unrolled, the streams do not fit into registers
            if WRITE:
                # one product and one sum after the other, as the reference
                new = tl.load(post + tokens * 4 + k, mask=live, other=0.0)[:, None] * as_float32(written)
                shares = comb + tokens * 16 + k
                new += tl.load(shares, mask=live, other=0.0)[:, None] * as_float32(x0)
                new += tl.load(shares + 4, mask=live, other=0.0)[:, None] * as_float32(x1)
                new += tl.load(shares + 8, mask=live, other=0.0)[:, None] * as_float32(x2)
                new += tl.load(shares + 12, mask=live, other=0.0)[:, None] * as_float32(x3)
                value = as_bfloat16(new)
                tl.store(streams + place + k * width, value, mask=both)
            else:
                value = tl.load(streams_in + place + k * width, mask=both, other=0.0)
            matrix = tl.load(
                fn + outputs[None, :] * (4 * width) + k * width + columns[:, None],
                mask=(outputs < mix_rows)[None, :] & inside[:, None],
                other=0.0,
            )
            high = as_bfloat16(matrix)
            rest = matrix - as_float32(high)
            middle = as_bfloat16(rest)
            low = as_bfloat16(rest - as_float32(middle))
            total = add_product(value, low, total)
            total = add_product(value, middle, total)
            total = add_product(value, high, total)
    out = partial + (tl.program_id(1).to(tl.int64) * num_tokens + tokens)[:, None] * _MIX_ROWS + outputs[None, :]
    tl.store(out, total, mask=live[:, None] & (outputs < mix_rows)[None, :])


@triton.jit
def _sigmoid(x):  # type: ignore[no-untyped-def]
    return tl.div_rn(tl.full(x.shape, 1.0, tl.float32), 1.0 + tl.exp(-x))


@triton.jit
def _stream(streams, dims, live):  # type: ignore[no-untyped-def]
    return as_float32(tl.load(streams + dims, mask=live, other=0.0))


@triton.jit
def site_kernel(  # type: ignore[no-untyped-def]
    streams,
    partial,
    base,
    scale,
    norm_weight,
    values,
    codes,
    scales,
    post,
    comb,
    width,
    hc_eps,
    eps,
    HEAD: tl.constexpr,
    ITERATIONS: tl.constexpr,
    SPLITS: tl.constexpr,
    FP8: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Grid: (tokens,)."""
    # from the last to the first: what the first launch has just written may still be in cache
    num_tokens = tl.num_programs(0)
    token = (num_tokens - 1 - tl.program_id(0)).to(tl.int64)
    dims, groups = row_dims(BLOCK)
    live = dims < width
    streams += token * 4 * width
    x0 = _stream(streams, dims, live)
    x1 = _stream(streams + width, dims, live)
    x2 = _stream(streams + 2 * width, dims, live)
    x3 = _stream(streams + 3 * width, dims, live)
    squares = x0 * x0 + x1 * x1 + x2 * x2 + x3 * x3
    inverse_rms = 1.0 / tl.sqrt(tl.sum(tl.sum(squares, 1), 0) / (4 * width) + eps)

    split = tl.arange(0, SPLITS)
    four = tl.arange(0, 4)
    parts = partial + (split.to(tl.int64) * num_tokens + token) * _MIX_ROWS
    mix = tl.sum(tl.load(parts[:, None] + four[None, :]), 0) * inverse_rms
    pre = _sigmoid(mix * tl.load(scale) + tl.load(base + four)) + hc_eps
    u = tl.sum(tl.where(four == 0, pre, 0.0), 0) * x0
    u += tl.sum(tl.where(four == 1, pre, 0.0), 0) * x1
    u += tl.sum(tl.where(four == 2, pre, 0.0), 0) * x2
    u += tl.sum(tl.where(four == 3, pre, 0.0), 0) * x3
    x = normed(as_float32(as_bfloat16(u)), norm_weight, dims, live, width, eps)
    store_rows(
        x, values + token * width, codes + token * width, scales + token * (width // 128), dims, groups, width,
        True, FP8,
    )  # fmt: skip

    if not HEAD:
        mix = tl.sum(tl.load(parts[:, None] + 4 + four[None, :]), 0) * inverse_rms
        tl.store(post + token * 4 + four, 2.0 * _sigmoid(mix * tl.load(scale + 1) + tl.load(base + 4 + four)))
        cells = 4 * four[:, None] + four[None, :]  # [source, destination]
        mix = tl.sum(tl.load(parts[:, None, None] + 8 + cells[None, :, :]), 0) * inverse_rms
        logits = mix * tl.load(scale + 2) + tl.load(base + 8 + cells)
        c = tl.exp(logits - tl.max(logits, 1)[:, None])
        c = c / tl.sum(c, 1)[:, None] + hc_eps
        c = c / (tl.sum(c, 0)[None, :] + hc_eps)
        for _ in range(ITERATIONS - 1):
            c = c / (tl.sum(c, 1)[:, None] + hc_eps)
            c = c / (tl.sum(c, 0)[None, :] + hc_eps)
        tl.store(comb + token * 16 + cells, c)


def mhc_site(
    streams: Tensor,
    written: Written | None,
    weights: MixWeights,
    norm_weight: Tensor,
    *,
    iterations: int,
    hc_eps: float,
    norm_eps: float,
    dialect: Fp8Dialect | None = None,
) -> Site:
    """As the reference. ValueError for streams that the kernels do not serve."""
    if not has_kernels(streams):
        return reference.mhc_site(
            streams, written, weights, norm_weight,
            iterations=iterations, hc_eps=hc_eps, norm_eps=norm_eps, dialect=dialect,
        )  # fmt: skip
    tokens = streams.shape[0]
    post = torch.empty(tokens, STREAMS, device=streams.device)
    comb = torch.empty(tokens, STREAMS, STREAMS, device=streams.device)
    out, rows = _launch(
        streams, written, weights, norm_weight, post, comb, iterations, hc_eps, norm_eps, dialect, head=False
    )
    return Site(out, rows, post, comb)


def mhc_head(
    streams: Tensor,
    written: Written | None,
    weights: MixWeights,
    norm_weight: Tensor,
    *,
    hc_eps: float,
    norm_eps: float,
    dialect: Fp8Dialect | None = None,
) -> tuple[Tensor, Rows]:
    """As the reference."""
    if not has_kernels(streams):
        return reference.mhc_head(
            streams, written, weights, norm_weight, hc_eps=hc_eps, norm_eps=norm_eps, dialect=dialect
        )
    unused = weights.base
    return _launch(streams, written, weights, norm_weight, unused, unused, 1, hc_eps, norm_eps, dialect, head=True)


def _launch(
    streams: Tensor,
    written: Written | None,
    weights: MixWeights,
    norm_weight: Tensor,
    post: Tensor,
    comb: Tensor,
    iterations: int,
    hc_eps: float,
    norm_eps: float,
    dialect: Fp8Dialect | None,
    *,
    head: bool,
) -> tuple[Tensor, Rows]:
    tokens, n, width = streams.shape
    mix_rows = n if head else (2 + n) * n
    if n != STREAMS or streams.dtype != torch.bfloat16 or weights.fn.shape != (mix_rows, n * width):
        raise ValueError(
            f"streams: {list(streams.shape)} {streams.dtype} with fn {list(weights.fn.shape)}; the kernels take "
            f"[T, 4, d] bfloat16 with fn [{mix_rows}, 4 d]"
        )
    streams = streams.contiguous()
    out = streams if written is None else torch.empty_like(streams)
    rows = empty_rows(streams, (tokens, width), dialect)
    if tokens == 0:
        return out, rows
    y, old_post, old_comb = (streams, post, comb) if written is None else (x.contiguous() for x in written)
    partial = torch.empty(SPLITS, tokens, _MIX_ROWS.value, device=streams.device)
    launch_mix(streams, out, (y, old_post, old_comb), weights.fn, partial, write=written is not None)
    block = max(128, next_power_of_2(width))
    launch(
        site_kernel,
        (tokens,),
        out,
        partial,
        weights.base,
        weights.scale,
        norm_weight,
        *row_pointers(rows),
        post,
        comb,
        width,
        hc_eps,
        norm_eps,
        HEAD=head,
        ITERATIONS=iterations,
        SPLITS=SPLITS,
        FP8=FORMATS[dialect],
        BLOCK=block,
        num_warps=warps_for_site(block),
    )
    return out, rows


def launch_mix(
    streams: Tensor,
    out: Tensor,
    written: tuple[Tensor, Tensor, Tensor],
    fn: Tensor,
    partial: Tensor,
    *,
    write: bool,
    tokens_at_once: int = MIX_TOKENS,
    columns: int = MIX_COLUMNS,
    num_warps: int = MIX_WARPS,
) -> None:
    """The first launch. A benchmark asks for other tiles than the ones that ship."""
    tokens, _, width = streams.shape
    launch(
        mix_kernel,
        (cdiv(tokens, tokens_at_once), SPLITS),
        streams,
        out,
        *written,
        fn,
        partial,
        tokens,
        width,
        fn.shape[0],
        WRITE=write,
        BLOCK_T=tokens_at_once,
        BLOCK_D=columns,
        num_warps=num_warps,
    )


def warps_for_site(block: int) -> int:
    """Warps of the second launch; decides the bits of its sums, and follows from the width alone."""
    return min(16, max(1, block // 512))
