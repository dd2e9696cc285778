"""What the kernels are made of: raw pointers, dot products whose order is written out, and an exponential.

A dot product keeps one accumulator of LANES floats, adds products to it by fused multiply-add in ascending order, adds
its lanes pairwise (8, 4, 2, 1) and then the elements that do not fill a vector, one at a time. The order is spelled out
in LLVM's own instructions, which the compiler may not reorder, so an element has the same bits in every tile shape:
that is what makes the kernels row-invariant. `exp` is elementary arithmetic for the same reason: a library's vector
version and its scalar one differ in the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from outrider.ops.native.compilation import part

LANES = 8
FLOAT_BYTES = 4

_FLOAT = ir.FloatType()
_WORD = ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, LANES)


def _pointer_to(element: Any) -> Any:
    @intrinsic
    def cast(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(element)(types.int64), codegen

    return cast


floats = _pointer_to(types.float32)
"""floats(address) -> pointer: p[i] reads and writes float32 without bounds or negative indices."""
integers = _pointer_to(types.int64)


def _reinterpret(source: Any, target: Any, llvm_type: ir.Type) -> Any:
    @intrinsic
    def cast(typingctx: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], llvm_type)

        return target(source), codegen

    return cast


float_bits = _reinterpret(types.float32, types.int32, ir.IntType(32))
bits_float = _reinterpret(types.int32, types.float32, _FLOAT)


def _dot_tile(rows: int, columns: int) -> Any:
    """dots(x_0, .., x_{rows-1}, w, pitch, length) -> float32 dots, row by row; addresses and pitch are in bytes."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        starts, (weight, pitch, length) = args[:rows], args[rows:]
        starts = [*starts, *(builder.add(weight, builder.mul(pitch, _WORD(c))) for c in range(columns))]

        def accumulate(kind: ir.Type, sums: list[Any], index: Any) -> None:
            offset = builder.mul(index, _WORD(FLOAT_BYTES))
            values = [
                builder.load(builder.inttoptr(builder.add(s, offset), kind.as_pointer()), align=FLOAT_BYTES)
                for s in starts
            ]
            for i, total in enumerate(sums):
                product = [values[i // columns], values[rows + i % columns], builder.load(total)]
                builder.store(builder.call(_fma(builder, kind), product), total)

        def accumulators(kind: ir.Type, initial: list[Any]) -> list[Any]:
            places = [cgutils.alloca_once(builder, kind) for _ in initial]
            for place, value in zip(places, initial, strict=True):
                builder.store(value, place)
            return places

        vectors = builder.sdiv(length, _WORD(LANES))
        wide = accumulators(_VECTOR, [ir.Constant(_VECTOR, [0.0] * LANES)] * (rows * columns))
        with cgutils.for_range(builder, vectors) as loop:
            accumulate(_VECTOR, wide, builder.mul(loop.index, _WORD(LANES)))
        sums = accumulators(_FLOAT, [_add_lanes(builder, builder.load(place)) for place in wide])
        done = builder.mul(vectors, _WORD(LANES))
        with cgutils.for_range(builder, builder.sub(length, done)) as loop:
            accumulate(_FLOAT, sums, builder.add(done, loop.index))
        return cgutils.pack_array(builder, [builder.load(place) for place in sums])

    result = types.UniTuple(types.float32, rows * columns)
    signature = result(*[types.int64] * (rows + 3))
    if rows == 1:

        @intrinsic
        def dots(typingctx: Any, x: Any, w: Any, pitch: Any, length: Any) -> Any:
            return signature, build

    elif rows == 2:

        @intrinsic
        def dots(typingctx: Any, x: Any, y: Any, w: Any, pitch: Any, length: Any) -> Any:
            return signature, build

    else:

        @intrinsic
        def dots(typingctx: Any, x: Any, y: Any, z: Any, a: Any, w: Any, pitch: Any, length: Any) -> Any:
            return signature, build

    return dots


def _add_lanes(builder: Any, vector: Any) -> Any:
    width = LANES
    while width > 1:
        width //= 2
        low, high = (
            ir.Constant(ir.VectorType(ir.IntType(32), width), list(range(start, start + width))) for start in (0, width)
        )
        vector = builder.fadd(builder.shuffle_vector(vector, vector, low), builder.shuffle_vector(vector, vector, high))
    return builder.extract_element(vector, ir.IntType(32)(0))


dot_1x1 = _dot_tile(1, 1)
dot_1x4 = _dot_tile(1, 4)
dot_2x1 = _dot_tile(2, 1)
dot_2x4 = _dot_tile(2, 4)
dot_4x1 = _dot_tile(4, 1)
dot_4x2 = _dot_tile(4, 2)


def _add_scaled(count: int) -> Any:
    """add(sums, weights, rows, length): sums[i] += weights[0] * rows[0][i], then the next, fused, `count` rows in all.

    sums: address of floats; weights: address of `count` floats; rows: address of `count` addresses of floats.
    """

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        sums, weights, rows, length = args

        def read(kind: ir.Type, address: Any, offset: Any) -> Any:
            pointer = builder.inttoptr(builder.add(address, offset), kind.as_pointer())
            return builder.load(pointer, align=FLOAT_BYTES)

        starts = [read(_WORD, rows, _WORD(i * 8)) for i in range(count)]
        scalars = [read(_FLOAT, weights, _WORD(i * FLOAT_BYTES)) for i in range(count)]

        def accumulate(kind: ir.Type, factors: list[Any], index: Any) -> None:
            offset = builder.mul(index, _WORD(FLOAT_BYTES))
            total = read(kind, sums, offset)
            for start, factor in zip(starts, factors, strict=True):
                total = builder.call(_fma(builder, kind), [factor, read(kind, start, offset), total])
            pointer = builder.inttoptr(builder.add(sums, offset), kind.as_pointer())
            builder.store(total, pointer, align=FLOAT_BYTES)

        vectors = builder.sdiv(length, _WORD(LANES))
        with cgutils.for_range(builder, vectors) as loop:
            accumulate(_VECTOR, [_broadcast(builder, x) for x in scalars], builder.mul(loop.index, _WORD(LANES)))
        done = builder.mul(vectors, _WORD(LANES))
        with cgutils.for_range(builder, builder.sub(length, done)) as loop:
            accumulate(_FLOAT, scalars, builder.add(done, loop.index))
        return context.get_dummy_value()

    @intrinsic
    def add(typingctx: Any, sums: Any, weights: Any, rows: Any, length: Any) -> Any:
        return types.void(*[types.int64] * 4), build

    return add


def _fma(builder: Any, kind: ir.Type) -> Any:
    name = "llvm.fma.v8f32" if kind is _VECTOR else "llvm.fma.f32"
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3), name)


def _broadcast(builder: Any, value: Any) -> Any:
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, ir.IntType(32)(0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(one, one, lanes)


add_scaled_1 = _add_scaled(1)
add_scaled_8 = _add_scaled(8)


_LOG2_E = np.float32(1.4426950408889634)
_LN2_HIGH = np.float32(0.693359375)  # few bits: its product with a small integer is exact
_LN2_LOW = np.float32(-2.12194440e-4)
_ROUND = np.float32(12582912.0)  # 1.5 * 2^23: adding it rounds to the nearest integer
_C2, _C3, _C4, _C5, _C6, _C7 = (np.float32(1.0 / k) for k in (2, 6, 24, 120, 720, 5040))
_ONE = np.float32(1.0)
_LOWEST, _HIGHEST = np.float32(-87.0), np.float32(88.0)
_ZERO, _INFINITY = np.float32(0.0), np.float32(np.inf)


@part
def exp(x):  # type: ignore[no-untyped-def]
    """e^x in float32, within 2 units in the last place; 0 below -87, infinite above 88, NaN stays."""
    clamped = x
    if clamped < _LOWEST:
        clamped = _LOWEST
    if clamped > _HIGHEST:
        clamped = _HIGHEST
    shifted = clamped * _LOG2_E + _ROUND
    whole = shifted - _ROUND
    r = (clamped - whole * _LN2_HIGH) - whole * _LN2_LOW
    p = ((((_C7 * r + _C6) * r + _C5) * r + _C4) * r + _C3) * r + _C2
    p = (p * r) * r + r + _ONE
    power = bits_float((float_bits(shifted) - float_bits(_ROUND) + np.int32(127)) << np.int32(23))
    y = p * power
    if x < _LOWEST:
        y = _ZERO
    if x > _HIGHEST:
        y = _INFINITY
    return y
