"""What the kernels are made of: raw pointers, vector loops whose order is written out, and an exponential.

They are written in LLVM's own instructions for two reasons: the compiler may not reorder them, so that an element has
the same bits in every kernel and at every place; and they reach the compiler ready made, which halves the time of a
first start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 8
FLOAT_BYTES = 4

FLOAT = ir.FloatType()
WORD = ir.IntType(64)
VECTOR = ir.VectorType(FLOAT, LANES)
_INT = ir.IntType(32)


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


float_bits = _reinterpret(types.float32, types.int32, _INT)
bits_float = _reinterpret(types.int32, types.float32, FLOAT)


def read(builder: Any, kind: ir.Type, address: Any, offset: Any) -> Any:
    """One `kind` at address + offset bytes; elements need only be aligned as elements."""
    size = 2 if kind in _HALVES else 8 if kind is WORD else FLOAT_BYTES
    return builder.load(builder.inttoptr(builder.add(address, offset), kind.as_pointer()), align=size)


def write(builder: Any, value: Any, address: Any, offset: Any) -> None:
    pointer = builder.inttoptr(builder.add(address, offset), value.type.as_pointer())
    builder.store(value, pointer, align=FLOAT_BYTES)


_HALF = ir.IntType(16)
_HALF_VECTOR = ir.VectorType(_HALF, LANES)
_HALVES = (_HALF, _HALF_VECTOR)


def read_bfloat16(builder: Any, kind: ir.Type, address: Any, offset: Any) -> Any:
    """As `read` of FLOAT or VECTOR, from values that are stored as their upper 16 bits."""
    half, wide = (_HALF_VECTOR, ir.VectorType(_INT, LANES)) if kind is VECTOR else (_HALF, _INT)
    bits = builder.zext(read(builder, half, address, offset), wide)
    sixteen = ir.Constant(wide, [16] * LANES if kind is VECTOR else 16)
    return builder.bitcast(builder.shl(bits, sixteen), kind)


def fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    kind = c.type
    name = "llvm.fma.v8f32" if isinstance(kind, ir.VectorType) else "llvm.fma.f32"
    return builder.call(
        cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3), name), (a, b, c)
    )


def counted(builder: Any, start: Any, stop: Any, step: Any, body: Callable[[Any], None]) -> None:
    """body(i) for i = start, start + step, ... below stop; builds a loop of int64."""
    entry = builder.block
    head, inside, end = (builder.append_basic_block(name) for name in ("loop", "body", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    index = builder.phi(WORD)
    index.add_incoming(start, entry)
    builder.cbranch(builder.icmp_signed("<", index, stop), inside, end)
    builder.position_at_end(inside)
    body(index)
    index.add_incoming(builder.add(index, step), builder.block)
    builder.branch(head).set_metadata("llvm.loop", _as_it_stands(builder.module))
    builder.position_at_end(end)


def _as_it_stands(module: Any) -> Any:
    """Tells the compiler to leave a loop alone: unrolled copies cost seconds of compilation and gain nothing."""
    option = module.add_metadata([ir.MetaDataString(module, "llvm.loop.unroll.disable")])
    vectors = module.add_metadata([ir.MetaDataString(module, "llvm.loop.vectorize.enable"), ir.IntType(1)(0)])
    loop = ir.MDValue(module, [option], name=str(len(module.metadata)))
    loop.operands = (loop, option, vectors)  # the name of a loop is a node that begins with itself
    return loop


def vector_loop(builder: Any, length: Any, body: Callable[[ir.Type, Any], None], between: Callable[[], None]) -> None:
    """body(VECTOR, i) for i = 0, LANES, ... while a vector fits into `length`, then `between`, then body(FLOAT, i)."""
    whole = builder.and_(length, WORD(-LANES))
    counted(builder, WORD(0), whole, WORD(LANES), lambda i: body(VECTOR, i))
    between()
    counted(builder, whole, length, WORD(1), lambda i: body(FLOAT, i))


def nothing() -> None:
    """For a `vector_loop` that has nothing to do in between."""


def _add_scaled(count: int) -> Any:
    """add(sums, weights, rows, length): sums[i] += weights[0] * rows[0][i], then the next, fused, `count` rows in all.

    sums: address of floats; weights: address of `count` floats; rows: address of `count` addresses of floats.
    """

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        sums, weights, rows, length = args
        starts = [read(builder, WORD, rows, WORD(i * 8)) for i in range(count)]
        scalars = [read(builder, FLOAT, weights, WORD(i * FLOAT_BYTES)) for i in range(count)]
        vectors = [broadcast(builder, x) for x in scalars]

        def accumulate(kind: ir.Type, index: Any) -> None:
            offset = builder.mul(index, WORD(FLOAT_BYTES))
            total = read(builder, kind, sums, offset)
            for start, factor in zip(starts, vectors if kind is VECTOR else scalars, strict=True):
                total = fma(builder, factor, read(builder, kind, start, offset), total)
            write(builder, total, sums, offset)

        vector_loop(builder, length, accumulate, nothing)
        return context.get_dummy_value()

    @intrinsic
    def add(typingctx: Any, sums: Any, weights: Any, rows: Any, length: Any) -> Any:
        return types.void(*[types.int64] * 4), build

    return add


def broadcast(builder: Any, value: Any) -> Any:
    """A FLOAT in every lane of a VECTOR."""
    one = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), value, _INT(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_INT, LANES), [0] * LANES))


add_scaled_1 = _add_scaled(1)
add_scaled_8 = _add_scaled(8)


@intrinsic
def add_row(typingctx, sums, weight, row, length):  # type: ignore[no-untyped-def]
    """sums[i] += weight * row[i], product and sum rounded as in the reference; addresses of floats."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        sums, weight, row, length = args

        def accumulate(kind: ir.Type, index: Any) -> None:
            offset = builder.mul(index, WORD(FLOAT_BYTES))
            factor = weight if kind is FLOAT else broadcast(builder, weight)
            product = builder.fmul(factor, read(builder, kind, row, offset))
            write(builder, builder.fadd(read(builder, kind, sums, offset), product), sums, offset)

        vector_loop(builder, length, accumulate, nothing)
        return context.get_dummy_value()

    return types.void(types.int64, types.float32, types.int64, types.int64), build


@intrinsic
def clear(typingctx, row, length):  # type: ignore[no-untyped-def]
    """row[:length] = 0; address of floats."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(8).as_pointer())
        cgutils.memset(builder, pointer, builder.mul(args[1], WORD(FLOAT_BYTES)), 0)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), build


@intrinsic
def copy(typingctx, source, target, length):  # type: ignore[no-untyped-def]
    """target[:length] = source[:length]; addresses of floats that do not overlap."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.IntType(8).as_pointer()
        origin, goal = builder.inttoptr(args[0], kind), builder.inttoptr(args[1], kind)
        cgutils.raw_memcpy(builder, goal, origin, args[2], FLOAT_BYTES)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), build


_LOG2_E = 1.4426950408889634
_LN2_HIGH = 0.693359375  # few bits: its product with a small integer is exact
_LN2_LOW = -2.12194440e-4
_ROUND = 12582912.0  # 1.5 * 2^23: adding it rounds to the nearest integer
_ROUND_BITS = 0x4B400000
_LOWEST, _HIGHEST = -87.0, 88.0


def build_exp(builder: Any, value: Any) -> Any:
    """e^x of FLOAT or VECTOR, within 2 units in the last place; 0 below -87, infinite above 88, NaN stays.

    Elementary arithmetic, because a library's vector version and its scalar one differ in the last bit.
    """
    kind, whole_kind = value.type, ir.VectorType(_INT, LANES) if isinstance(value.type, ir.VectorType) else _INT

    def number(x: float) -> Any:
        return constant(kind, x)

    def whole(x: int) -> Any:
        return ir.Constant(whole_kind, [x] * LANES if whole_kind is not _INT else x)

    low = builder.fcmp_ordered("<", value, number(_LOWEST))
    high = builder.fcmp_ordered(">", value, number(_HIGHEST))
    clamped = builder.select(low, number(_LOWEST), builder.select(high, number(_HIGHEST), value))
    shifted = builder.fadd(builder.fmul(clamped, number(_LOG2_E)), number(_ROUND))
    power = builder.fsub(shifted, number(_ROUND))
    r = builder.fsub(clamped, builder.fmul(power, number(_LN2_HIGH)))
    r = builder.fsub(r, builder.fmul(power, number(_LN2_LOW)))
    p = number(1 / 5040)
    for factorial in (720, 120, 24, 6, 2):  # the series, from its end
        p = builder.fadd(builder.fmul(p, r), number(1 / factorial))
    p = builder.fadd(builder.fadd(builder.fmul(builder.fmul(p, r), r), r), number(1.0))
    exponent = builder.sub(builder.bitcast(shifted, whole_kind), whole(_ROUND_BITS - 127))
    y = builder.fmul(p, builder.bitcast(builder.shl(exponent, whole(23)), kind))
    return builder.select(high, number(float("inf")), builder.select(low, number(0.0), y))


def constant(kind: ir.Type, x: float) -> Any:
    """A FLOAT, or a VECTOR of equal ones."""
    return ir.Constant(kind, [x] * LANES if isinstance(kind, ir.VectorType) else x)


@intrinsic
def exp(typingctx, x):  # type: ignore[no-untyped-def]
    """e^x in float32, see `build_exp`."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return build_exp(builder, args[0])

    return types.float32(types.float32), build
