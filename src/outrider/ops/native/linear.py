"""Matrix product with rows that do not know of each other.

    y[t] = W @ x[t]        x: [T, K], W: [N, K], y: [T, N], float32

Each output is one dot product (see `dot_tiles`); tiles of up to 4 rows and 8 weights share loads and nothing else.
Weights that bfloat16 holds exactly, as all that come from FP8, FP4 or BF16 tensors, are kept in it: a few rows take as
long as reading W does. Floor: the bytes of W for few rows, T * N * K multiply-adds for many.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any

import torch
import torch.nn.functional as F
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from torch import Tensor

from outrider.ops.native.compilation import address_of, shared_kernel
from outrider.ops.native.dot_tiles import weight_tile
from outrider.ops.native.rows import is_plain, row_view
from outrider.ops.native.threads import WORTH_A_THREAD, spread
from outrider.ops.native.vector import FLOAT_BYTES, WORD, counted
from outrider.ops.reference import linear as reference

_BLOCK_FLOATS = 32 * 1024  # weights that stay in the second-level cache while all rows pass by
_ARGUMENTS = 10


@intrinsic
def _blocks(typingctx, x, x_pitch, t, weight, w_bytes, first, last, k, block, y, y_pitch):  # type: ignore[no-untyped-def]
    """The products of all rows with `block` weights, then with the next ones."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, x_pitch, t, weight, w_bytes, first, last, k, block, y, y_pitch = args
        pitch = builder.mul(k, w_bytes)

        def tiles(row: Any, rows: int, columns: int, start: Any, end: Any) -> None:
            source, target = builder.add(x, builder.mul(row, x_pitch)), builder.add(y, builder.mul(row, y_pitch))

            def tile(source: Any, target: Any, n: Any, rows: int, columns: int) -> None:
                w = builder.add(weight, builder.mul(n, pitch))
                place = builder.add(target, builder.mul(n, WORD(FLOAT_BYTES)))
                weight_tile(builder, rows, columns, (source, x_pitch, w, pitch, w_bytes, k, place, y_pitch))

            def single(n: Any) -> None:
                counted(
                    builder,
                    WORD(0),
                    WORD(rows),
                    WORD(1),
                    lambda r: tile(
                        builder.add(source, builder.mul(r, x_pitch)),
                        builder.add(target, builder.mul(r, y_pitch)),
                        n,
                        1,
                        1,
                    ),
                )

            fitting = builder.sub(end, builder.srem(builder.sub(end, start), WORD(columns)))
            counted(builder, start, fitting, WORD(columns), lambda n: tile(source, target, n, rows, columns))
            counted(builder, fitting, end, WORD(1), single)

        def a_block(start: Any) -> None:
            end = builder.add(start, block)
            end = builder.select(builder.icmp_signed("<", end, last), end, last)
            fours = builder.and_(t, WORD(-4))
            counted(builder, WORD(0), fours, WORD(4), lambda row: tiles(row, 4, 2, start, end))
            with builder.if_then(builder.icmp_signed("!=", builder.and_(t, WORD(2)), WORD(0))):
                tiles(fours, 2, 4, start, end)
            with builder.if_then(builder.icmp_signed("!=", builder.and_(t, WORD(1)), WORD(0))):
                tiles(builder.sub(t, WORD(1)), 1, 8, start, end)

        counted(builder, first, last, block, a_block)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 11), build


@shared_kernel
def _product(x, x_pitch, t, weight, w_bytes, first, last, k, y, y_pitch):  # type: ignore[no-untyped-def]
    """y[:, first:last] = x @ W[first:last].T; addresses, and pitches of rows in bytes."""
    _blocks(x, x_pitch, t, weight, w_bytes, first, last, k, max(8, _BLOCK_FLOATS // k), y, y_pitch)


@cache
def product_address() -> int:
    """For `product`."""
    return address_of(_product, _ARGUMENTS)


@intrinsic
def product(typingctx, address, x, x_pitch, t, weight, w_bytes, first, last, k, y, y_pitch):  # type: ignore[no-untyped-def]
    """y[:, first:last] = x @ W[first:last].T, inside of a kernel that was given `product_address`.

    x, y: addresses of rows a pitch apart, in bytes; weight: `Linear.address`, w_bytes: `Linear.weight_bytes`.
    """

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [WORD] * _ARGUMENTS)
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * (_ARGUMENTS + 1)), build


class Linear(reference.Linear):
    """One weight matrix [N, K] float32; other inputs than plain float32 ones go through the reference's product."""

    def __init__(self, weight: Tensor) -> None:
        self.is_native = is_plain(weight)
        self.out_features, self.in_features = weight.shape
        self._padding = -self.in_features % reference._CACHE_LINE
        self._stored = _as_bfloat16(weight.contiguous()) if self.is_native else weight.contiguous()
        self.weight_bytes = self._stored.element_size()
        self.address = self._stored.data_ptr()

    @property
    def weight(self) -> Tensor:
        """[N, K] float32; a copy where it is stored as bfloat16."""
        return self._stored.float() if self._stored.dtype is torch.bfloat16 else self._stored

    # what the reference's product needs is made when it is first used

    @cached_property
    def _weight(self) -> Tensor:  # type: ignore[override]
        return F.pad(self.weight, (0, self._padding)) if self._padding else self.weight

    @cached_property
    def _packed(self) -> Tensor | None:  # type: ignore[override]
        if not reference._can_pack(self._weight):
            return None
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(self._weight, reference.ROW_TILE)
        return packed

    def __call__(self, x: Tensor) -> Tensor:
        """x: [..., K] float32 -> [..., N] float32."""
        if not (self.is_native and is_plain(x)):
            return super().__call__(x)
        n, k = self.out_features, self.in_features
        rows, count, pitch = row_view(x)
        out = x.new_empty(count, n) if x.ndim == 2 else x.new_empty(*x.shape[:-1], n)
        source, weight, size, target = rows.data_ptr(), self.address, self.weight_bytes, out.data_ptr()
        work = count * n * k
        if work < WORTH_A_THREAD:
            _product(source, pitch, count, weight, size, 0, n, k, target, n * FLOAT_BYTES)
        else:
            spread(
                lambda a, b: _product(source, pitch, count, weight, size, a, b, k, target, n * FLOAT_BYTES), n, work, 16
            )
        return out


def _as_bfloat16(weight: Tensor) -> Tensor:
    """The same values in half the bytes, or `weight` itself where some value needs more bits."""
    half = weight.to(torch.bfloat16)
    return half if torch.equal(half.float(), weight) else weight
