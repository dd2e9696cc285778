"""Dot products of a few rows with a few columns, sharing loads and nothing else.

A dot product keeps one accumulator of LANES floats, adds products to it by fused multiply-add in ascending order, adds
its lanes pairwise (8, 4, 2, 1) and then the elements that do not fill a vector, one at a time. An element therefore has
the same bits in every tile shape: that is what makes the kernels row-invariant.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from outrider.ops.native.vector import (
    FLOAT,
    FLOAT_BYTES,
    LANES,
    VECTOR,
    WORD,
    fma,
    read,
    read_bfloat16,
    vector_loop,
    write,
)

BFLOAT16_BYTES = 2


def _dots(builder: Any, rows: list[Any], columns: list[Any], reader: Any, w_bytes: int, length: Any) -> list[Any]:
    """The dot product of every row with every column, row by row; all begin at the addresses given."""
    zero = ir.Constant(VECTOR, [0.0] * LANES)
    wide = [cgutils.alloca_once_value(builder, zero) for _ in range(len(rows) * len(columns))]
    narrow = [cgutils.alloca_once(builder, FLOAT) for _ in wide]

    def accumulate(kind: ir.Type, index: Any) -> None:
        values = [read(builder, kind, start, builder.mul(index, WORD(FLOAT_BYTES))) for start in rows]
        weights = [reader(builder, kind, start, builder.mul(index, WORD(w_bytes))) for start in columns]
        for i, place in enumerate(wide if kind is VECTOR else narrow):
            product = values[i // len(columns)], weights[i % len(columns)]
            builder.store(fma(builder, *product, builder.load(place)), place)

    def add_lanes() -> None:
        for vector, place in zip(wide, narrow, strict=True):
            builder.store(_sum_of_lanes(builder, builder.load(vector)), place)

    vector_loop(builder, length, accumulate, add_lanes)
    return [builder.load(place) for place in narrow]


def _fill_tile(builder: Any, rows: int, columns: int, reader: Any, w_bytes: int, args: Any) -> None:
    x, x_pitch, w, w_pitch, length, y, y_pitch = args
    row_starts = [builder.add(x, builder.mul(x_pitch, WORD(r))) for r in range(rows)]
    column_starts = [builder.add(w, builder.mul(w_pitch, WORD(c))) for c in range(columns)]
    for i, value in enumerate(_dots(builder, row_starts, column_starts, reader, w_bytes, length)):
        target = builder.add(y, builder.mul(y_pitch, WORD(i // columns)))
        write(builder, value, target, WORD(i % columns * FLOAT_BYTES))


def _sum_of_lanes(builder: Any, vector: Any) -> Any:
    width = LANES
    while width > 1:
        width //= 2
        low, high = (
            ir.Constant(ir.VectorType(ir.IntType(32), width), list(range(start, start + width))) for start in (0, width)
        )
        vector = builder.fadd(builder.shuffle_vector(vector, vector, low), builder.shuffle_vector(vector, vector, high))
    return builder.extract_element(vector, ir.IntType(32)(0))


def build_dot(builder: Any, x: Any, y: Any, length: Any) -> Any:
    """x . y of addresses of floats."""
    return _dots(builder, [x], [y], read, FLOAT_BYTES, length)[0]


def dot_tile(rows: int, columns: int) -> Any:
    """dots(x, x_pitch, w, w_pitch, length, y, y_pitch): y[r][c] = x[r] . w[c]; addresses, and pitches in bytes."""

    @intrinsic
    def dots(typingctx, x, x_pitch, w, w_pitch, length, y, y_pitch):  # type: ignore[no-untyped-def]
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _fill_tile(builder, rows, columns, read, FLOAT_BYTES, args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), build

    return dots


def weight_tile(builder: Any, rows: int, columns: int, args: Any) -> None:
    """Builds y[r][c] = x[r] . w[c] for args x, x_pitch, w, w_pitch, w_bytes, length, y, y_pitch.

    w: float32 (4 bytes) or bfloat16 (2). A bfloat16 weight is a float32 of fewer bits: both give the same results.
    """
    kept = [*args[:4], *args[5:]]
    with builder.if_else(builder.icmp_signed("==", args[4], WORD(BFLOAT16_BYTES))) as (half, full):
        with half:
            _fill_tile(builder, rows, columns, read_bfloat16, BFLOAT16_BYTES, kept)
        with full:
            _fill_tile(builder, rows, columns, read, FLOAT_BYTES, kept)
