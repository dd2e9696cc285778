"""Philox4x32-10 words, and Gumbel noise from them, in plain arithmetic that rounds alike on every GPU."""

from __future__ import annotations

import triton
import triton.language as tl

_A = tl.constexpr(0xD2511F53)
_B = tl.constexpr(0xCD9E8D57)
_KEY_A = tl.constexpr(0x9E3779B9)
_KEY_B = tl.constexpr(0xBB67AE85)


@triton.jit
def philox_words(seed, position, token_ids):  # type: ignore[no-untyped-def]
    """seed, position: int64 scalars; token_ids: [N] int32 -> the first output word of each, [N] uint32."""
    c0 = token_ids.to(tl.uint32)
    zero = tl.zeros_like(c0)
    c1 = zero
    c2 = zero + (position & 0xFFFFFFFF).to(tl.uint32)
    c3 = zero + ((position >> 32) & 0xFFFFFFFF).to(tl.uint32)
    k0 = zero + (seed & 0xFFFFFFFF).to(tl.uint32)
    k1 = zero + ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32)
    a = tl.full(c0.shape, _A, tl.uint32)
    b = tl.full(c0.shape, _B, tl.uint32)
    key_a = tl.full(c0.shape, _KEY_A, tl.uint32)
    key_b = tl.full(c0.shape, _KEY_B, tl.uint32)
    for _ in tl.static_range(10):
        next_c0 = tl.umulhi(b, c2) ^ c1 ^ k0
        next_c2 = tl.umulhi(a, c0) ^ c3 ^ k1
        c1 = b * c2
        c3 = a * c0
        c0 = next_c0
        c2 = next_c2
        k0 += key_a
        k1 += key_b
    return c0


@triton.jit
def logarithm(x):  # type: ignore[no-untyped-def]
    """log of a normal float32 > 0, within two units in the last place: x = 2^k m, log m = 2 atanh((m - 1) / (m + 1)).

    The approximate instruction of a GPU is off by 1e-7 absolute near 1, where noise needs relative precision.
    """
    bits = x.to(tl.int32, bitcast=True)
    # m in [0.707, 1.414]: exponents are counted from sqrt(1/2)
    k = (bits - 0x3F3504F3) >> 23
    m = (bits - (k << 23)).to(tl.float32, bitcast=True)
    f = m - 1.0
    s = tl.div_rn(f, f + 2.0)
    z = s * s
    tail = z * (0.3333333333 + z * (0.2 + z * (0.1428571429 + z * 0.1111111111)))
    twice = s + s
    k = k.to(tl.float32)
    # ln 2 in two parts, the first of which times k is exact
    return k * 0.693359375 + (twice + (twice * tail + k * -2.12194440e-4))


@triton.jit
def gumbel(words):  # type: ignore[no-untyped-def]
    """uint32 words -> float32 noise -log(-log u), u the middle of one of 2^23 cells."""
    u = ((words >> 9).to(tl.int32).to(tl.float32) + 0.5) * 1.1920928955078125e-07
    return -logarithm(-logarithm(u))
