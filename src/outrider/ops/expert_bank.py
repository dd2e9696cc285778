"""Routed experts of one layer as a checkpoint holds them: FP4 or FP8 bytes with E8M0 scales, all experts in one tensor.

    FP4   E2M1, two a byte (low nibble = even k), a scale for 32 of one row:  W[i, k] = code[i, k] * scale[i, k // 32]
    FP8   E4M3, a scale for a block of 128 x 128 (Base checkpoints):   W[i, k] = code[i, k] * scale[i // 128, k // 128]

Scales are bytes, 2^(byte - 127), 255 is NaN. A byte of FP8 is half as large in FNUZ as in OCP (`fp8_dialect`).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from outrider.ops.formats import (
    FP4_BLOCK,
    FP8_BLOCK,
    decode_e8m0,
    dequantize_fp4_block,
    quantize_fp4_block,
    quantize_fp8_block,
)
from outrider.platforms.architectures import Fp8Dialect

_NATIVE = {Fp8Dialect.OCP: torch.float8_e4m3fn, Fp8Dialect.FNUZ: torch.float8_e4m3fnuz}
_SCALE_LARGEST, _SCALE_NAN = 254, 255


class ExpertBank(NamedTuple):
    """E experts of hidden size d and width I; all uint8. Rows of gate_up: w1 (gate) first, then w3 (up).

    gate_up:        [E, 2 I, d / 2] FP4, or [E, 2 I, d] FP8
    gate_up_scales: [E, 2 I, d / 32], or [E, 2 I / 128, d / 128]
    down:           [E, d, I / 2], or [E, d, I]
    down_scales:    [E, d, I / 32], or [E, d / 128, I / 128]
    dialect:        of the E4M3 bytes; None: FP4
    """

    gate_up: Tensor
    gate_up_scales: Tensor
    down: Tensor
    down_scales: Tensor
    dialect: Fp8Dialect | None

    @property
    def experts(self) -> int:
        return self.gate_up.shape[0]

    @property
    def hidden_size(self) -> int:
        return self.down.shape[1]

    @property
    def width(self) -> int:
        return self.gate_up.shape[1] // 2


def check_bank(bank: ExpertBank) -> None:
    """ValueError, naming the tensor, for one that does not hold experts whose sizes are multiples of 128."""
    e, d, i = bank.experts, bank.hidden_size, bank.width
    if d % FP8_BLOCK or i % FP8_BLOCK:
        raise ValueError(f"experts of {d} x {i}; the kernels take multiples of {FP8_BLOCK}")
    fp4 = bank.dialect is None
    for name, rows, columns in (("gate_up", 2 * i, d), ("down", d, i)):
        scaled = (rows, columns // FP4_BLOCK) if fp4 else (rows // FP8_BLOCK, columns // FP8_BLOCK)
        expected = {name: (e, rows, columns // 2 if fp4 else columns), f"{name}_scales": (e, *scaled)}
        for field, shape in expected.items():
            x: Tensor = getattr(bank, field)
            if tuple(x.shape) != shape or x.dtype != torch.uint8 or not x.is_contiguous():
                raise ValueError(
                    f"{field}: {list(x.shape)} {x.dtype}, expected contiguous {list(shape)} uint8 for "
                    f"{'FP4' if fp4 else 'FP8'} experts (scales as bytes: float32 ones are not served)"
                )


def quantize_experts(gate_up: Tensor, down: Tensor, dialect: Fp8Dialect | None) -> ExpertBank:
    """[E, 2 I, d] and [E, d, I] float -> a bank; the numbers are the same in both dialects."""
    quantize = quantize_fp4_block if dialect is None else quantize_fp8_block
    parts = []
    for weight in (gate_up, down):
        pairs = [quantize(matrix) for matrix in weight]
        codes, scales = (torch.stack(list(x)) for x in zip(*pairs, strict=True))
        parts += [codes, scales]
    bank = ExpertBank(parts[0], parts[1], parts[2], parts[3], None if dialect is None else Fp8Dialect.OCP)
    return in_fnuz(bank) if dialect is Fp8Dialect.FNUZ else bank


def in_fnuz(bank: ExpertBank) -> ExpertBank:
    """A bank of OCP bytes, as checkpoints hold, with the same numbers in FNUZ: -0 becomes 0, scales double.

    The largest scale (2^127) saturates. ValueError unless the bank is FP8 OCP.
    """
    if bank.dialect is not Fp8Dialect.OCP:
        raise ValueError(f"experts of dialect {bank.dialect}, expected FP8 in {Fp8Dialect.OCP}")

    def doubled(scales: Tensor) -> Tensor:
        more = scales.to(torch.int16).add(1).clamp_max(_SCALE_LARGEST)
        return more.masked_fill(scales == _SCALE_NAN, _SCALE_NAN).to(torch.uint8)

    codes = (x.masked_fill(x == 0x80, 0) for x in (bank.gate_up, bank.down))
    scales = (doubled(x) for x in (bank.gate_up_scales, bank.down_scales))
    return ExpertBank(next(codes), next(scales), next(codes), next(scales), Fp8Dialect.FNUZ)


def read_expert(bank: ExpertBank, expert: int) -> tuple[Tensor, Tensor]:
    """Weights of one expert as float32: (gate_up [2 I, d], down [d, I])."""
    pairs = ((bank.gate_up, bank.gate_up_scales), (bank.down, bank.down_scales))
    gate_up, down = (_decode(codes[expert], scales[expert], bank.dialect) for codes, scales in pairs)
    return gate_up, down


def _decode(codes: Tensor, scales: Tensor, dialect: Fp8Dialect | None) -> Tensor:
    if dialect is None:
        return dequantize_fp4_block(codes, scales)
    factor = decode_e8m0(scales).repeat_interleave(FP8_BLOCK, 0).repeat_interleave(FP8_BLOCK, 1)
    return codes.view(_NATIVE[dialect]).float() * factor[: codes.shape[0], : codes.shape[1]]
