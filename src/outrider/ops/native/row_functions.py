"""What is done to a whole row of floats: softmax with a sink, gated activation, scaling; by vectors and then by ones.

Each element sees the same instructions in a vector and alone; sums run in ascending order, one element at a time.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from outrider.ops.native.dot_tiles import build_dot
from outrider.ops.native.vector import (
    FLOAT,
    FLOAT_BYTES,
    WORD,
    broadcast,
    build_exp,
    constant,
    counted,
    nothing,
    read,
    vector_loop,
    write,
)


def _like(builder: Any, kind: ir.Type, value: Any) -> Any:
    return value if kind is FLOAT else broadcast(builder, value)


@intrinsic
def softmax_row(typingctx, scores, count, scale, sink):  # type: ignore[no-untyped-def]
    """scores[:count] = softmax(scores * scale) with one more score, `sink`, that has no place. scores: address."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        scores, count, scale, sink = args
        top = cgutils.alloca_once_value(builder, sink)
        total = cgutils.alloca_once_value(builder, FLOAT(0.0))

        def offset(i: Any) -> Any:
            return builder.mul(i, WORD(FLOAT_BYTES))

        def scaled(kind: ir.Type, i: Any) -> None:
            value = read(builder, kind, scores, offset(i))
            write(builder, builder.fmul(value, _like(builder, kind, scale)), scores, offset(i))

        def largest(i: Any) -> None:
            value, before = read(builder, FLOAT, scores, offset(i)), builder.load(top)
            builder.store(builder.select(builder.fcmp_ordered(">", value, before), value, before), top)

        def exponential(kind: ir.Type, i: Any) -> None:
            difference = builder.fsub(read(builder, kind, scores, offset(i)), _like(builder, kind, builder.load(top)))
            write(builder, build_exp(builder, difference), scores, offset(i))

        def add(i: Any) -> None:
            builder.store(builder.fadd(builder.load(total), read(builder, FLOAT, scores, offset(i))), total)

        def divided(kind: ir.Type, i: Any) -> None:
            value = read(builder, kind, scores, offset(i))
            write(builder, builder.fdiv(value, _like(builder, kind, builder.load(total))), scores, offset(i))

        vector_loop(builder, count, scaled, nothing)
        counted(builder, WORD(0), count, WORD(1), largest)
        vector_loop(builder, count, exponential, nothing)
        counted(builder, WORD(0), count, WORD(1), add)
        rest = build_exp(builder, builder.fsub(sink, builder.load(top)))
        builder.store(builder.fadd(builder.load(total), rest), total)
        vector_loop(builder, count, divided, nothing)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32, types.float32), build


@intrinsic
def swiglu_row(typingctx, gates, ups, count, limit, share, hidden):  # type: ignore[no-untyped-def]
    """hidden = silu(min(gates, limit)) * clamp(ups, -limit, limit) * share; addresses of `count` floats."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        gates, ups, count, limit, share, hidden = args

        def element(kind: ir.Type, i: Any) -> None:
            place = builder.mul(i, WORD(FLOAT_BYTES))
            one, top = constant(kind, 1.0), _like(builder, kind, limit)
            bottom = builder.fneg(top)
            gate, up = read(builder, kind, gates, place), read(builder, kind, ups, place)
            gate = builder.select(builder.fcmp_ordered(">", gate, top), top, gate)
            up = builder.select(builder.fcmp_ordered(">", up, top), top, up)
            up = builder.select(builder.fcmp_ordered("<", up, bottom), bottom, up)
            silu = builder.fdiv(gate, builder.fadd(one, build_exp(builder, builder.fneg(gate))))
            write(builder, builder.fmul(builder.fmul(silu, up), _like(builder, kind, share)), hidden, place)

        vector_loop(builder, count, element, nothing)
        return context.get_dummy_value()

    words, float32 = [types.int64] * 3, types.float32
    return types.void(*words, float32, float32, types.int64), build


@intrinsic
def inverse_rms(typingctx, x, width, eps):  # type: ignore[no-untyped-def]
    """1 / sqrt(mean(x^2) + eps), float32; x: address of `width` floats."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, width, eps = args
        mean = builder.fdiv(build_dot(builder, x, x, width), builder.sitofp(width, FLOAT))
        root = cgutils.get_or_insert_function(builder.module, ir.FunctionType(FLOAT, [FLOAT]), "llvm.sqrt.f32")
        return builder.fdiv(FLOAT(1.0), builder.call(root, [builder.fadd(mean, eps)]))

    return types.float32(types.int64, types.int64, types.float32), build


@intrinsic
def scale_row(typingctx, x, width, factor, weight, out):  # type: ignore[no-untyped-def]
    """out = x * factor * weight; addresses of `width` floats, weight 0 for none."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, width, factor, weight, out = args

        def element(kind: ir.Type, i: Any, weighted: bool) -> None:
            place = builder.mul(i, WORD(FLOAT_BYTES))
            value = builder.fmul(read(builder, kind, x, place), _like(builder, kind, factor))
            if weighted:
                value = builder.fmul(value, read(builder, kind, weight, place))
            write(builder, value, out, place)

        with builder.if_else(builder.icmp_signed("==", weight, WORD(0))) as (without, weighted):
            with without:
                vector_loop(builder, width, lambda kind, i: element(kind, i, False), nothing)
            with weighted:
                vector_loop(builder, width, lambda kind, i: element(kind, i, True), nothing)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32, types.int64, types.int64), build
