"""Sinkhorn-Knopp projection of the hyper-connection's mixing matrix, with its gradient.

    C = softmax over k of logits[j, k], plus eps
    C = C / (column sums + eps);  then iterations - 1 times: rows, columns

Forward keeps only the denominators (4 per half-iteration): one normalisation y = x / den has the gradient
dx = (dy - sum(dy * y)) / den and x is recovered as y * den, so the backward pass walks the 39 half-iterations back
without storing a single matrix. As ordinary tensor code the same work is about 2,000 tiny kernels a step; here it is
two. On a GPU both directions are Triton kernels, one thread a token; elsewhere plain torch.

Floor: forward reads 64 B and writes 64 B + 16 B x half-iterations a token; backward the reverse.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

try:  # Triton is absent on CPU-only installations, where it is not needed
    import triton  # type: ignore[import-not-found, unused-ignore]
    import triton.language as tl  # type: ignore[import-not-found, unused-ignore]

    HAVE_TRITON = True
except ImportError:
    HAVE_TRITON = False

BLOCK = 128


def _normalise(x: Tensor, dim: int, eps: float) -> tuple[Tensor, Tensor]:
    den = x.sum(dim, keepdim=True) + eps
    return x / den, den.squeeze(dim)


def sinkhorn_reference(logits: Tensor, iterations: int, eps: float) -> tuple[Tensor, Tensor]:
    """logits [T, 4, 4] -> C [T, 4, 4], denominators [2 * iterations - 1, 4, T], all float32."""
    x, den = _normalise(logits.softmax(-1) + eps, -2, eps)
    denominators = [den]
    for _ in range(iterations - 1):
        for dim in (-1, -2):
            x, den = _normalise(x, dim, eps)
            denominators.append(den)
    return x, torch.stack(denominators).transpose(1, 2).contiguous()


def sinkhorn_backward_reference(grad: Tensor, out: Tensor, denominators: Tensor, eps: float) -> Tensor:
    """Gradient of C [T, 4, 4] -> gradient of logits [T, 4, 4]."""
    y, dy = out, grad
    for step in range(denominators.shape[0] - 1, -1, -1):
        dim = -2 if step % 2 == 0 else -1
        den = denominators[step].transpose(0, 1).unsqueeze(dim)
        dy = (dy - (dy * y).sum(dim, keepdim=True)) / den
        y = y * den
    p = y - eps
    return p * (dy - (dy * p).sum(-1, keepdim=True))


if HAVE_TRITON:

    @triton.jit
    def _div4(a, b, c, d, eps):  # type: ignore[no-untyped-def]
        den = a + b + c + d + eps
        return a / den, b / den, c / den, d / den, den

    @triton.jit
    def _softmax4(a, b, c, d, eps):  # type: ignore[no-untyped-def]
        m = tl.maximum(tl.maximum(a, b), tl.maximum(c, d))
        a, b, c, d = tl.exp(a - m), tl.exp(b - m), tl.exp(c - m), tl.exp(d - m)
        s = a + b + c + d
        return a / s + eps, b / s + eps, c / s + eps, d / s + eps

    @triton.jit
    def _grad4(da, db, dc, dd, a, b, c, d, den):  # type: ignore[no-untyped-def]
        s = da * a + db * b + dc * c + dd * d
        da, db, dc, dd = (da - s) / den, (db - s) / den, (dc - s) / den, (dd - s) / den
        return da, db, dc, dd, a * den, b * den, c * den, d * den

    @triton.jit
    def _gradsoft4(da, db, dc, dd, a, b, c, d, eps):  # type: ignore[no-untyped-def]
        a, b, c, d = a - eps, b - eps, c - eps, d - eps
        s = da * a + db * b + dc * c + dd * d
        return a * (da - s), b * (db - s), c * (dc - s), d * (dd - s)

    @triton.jit
    def _load16(ptr, t, mask):  # type: ignore[no-untyped-def]
        p = ptr + t * 16
        return (
            tl.load(p, mask, 0.0), tl.load(p + 1, mask, 0.0), tl.load(p + 2, mask, 0.0), tl.load(p + 3, mask, 0.0),
            tl.load(p + 4, mask, 0.0), tl.load(p + 5, mask, 0.0), tl.load(p + 6, mask, 0.0), tl.load(p + 7, mask, 0.0),
            tl.load(p + 8, mask, 0.0), tl.load(p + 9, mask, 0.0), tl.load(p + 10, mask, 0.0),
            tl.load(p + 11, mask, 0.0), tl.load(p + 12, mask, 0.0), tl.load(p + 13, mask, 0.0),
            tl.load(p + 14, mask, 0.0), tl.load(p + 15, mask, 0.0),
        )  # fmt: skip

    @triton.jit
    def _store4(ptr, t, first, a, b, c, d, mask):  # type: ignore[no-untyped-def]
        p = ptr + t * 16 + first
        tl.store(p, a, mask)
        tl.store(p + 1, b, mask)
        tl.store(p + 2, c, mask)
        tl.store(p + 3, d, mask)

    @triton.jit
    def _store_den(ptr, step, t, n, a, b, c, d, mask):  # type: ignore[no-untyped-def]
        p = ptr + step * 4 * n + t
        tl.store(p, a, mask)
        tl.store(p + n, b, mask)
        tl.store(p + 2 * n, c, mask)
        tl.store(p + 3 * n, d, mask)

    @triton.jit
    def _load_den(ptr, step, t, n, mask):  # type: ignore[no-untyped-def]
        p = ptr + step * 4 * n + t
        return (
            tl.load(p, mask, 1.0), tl.load(p + n, mask, 1.0), tl.load(p + 2 * n, mask, 1.0),
            tl.load(p + 3 * n, mask, 1.0),
        )  # fmt: skip

    @triton.jit
    def _forward_kernel(logits, out, dens, n, eps, ITERATIONS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        t = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
        mask = t < n
        a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3 = _load16(logits, t, mask)
        a0, a1, a2, a3 = _softmax4(a0, a1, a2, a3, eps)
        b0, b1, b2, b3 = _softmax4(b0, b1, b2, b3, eps)
        c0, c1, c2, c3 = _softmax4(c0, c1, c2, c3, eps)
        d0, d1, d2, d3 = _softmax4(d0, d1, d2, d3, eps)
        a0, b0, c0, d0, s0 = _div4(a0, b0, c0, d0, eps)
        a1, b1, c1, d1, s1 = _div4(a1, b1, c1, d1, eps)
        a2, b2, c2, d2, s2 = _div4(a2, b2, c2, d2, eps)
        a3, b3, c3, d3, s3 = _div4(a3, b3, c3, d3, eps)
        _store_den(dens, 0, t, n, s0, s1, s2, s3, mask)
        for i in range(1, ITERATIONS):
            a0, a1, a2, a3, s0 = _div4(a0, a1, a2, a3, eps)
            b0, b1, b2, b3, s1 = _div4(b0, b1, b2, b3, eps)
            c0, c1, c2, c3, s2 = _div4(c0, c1, c2, c3, eps)
            d0, d1, d2, d3, s3 = _div4(d0, d1, d2, d3, eps)
            _store_den(dens, 2 * i - 1, t, n, s0, s1, s2, s3, mask)
            a0, b0, c0, d0, s0 = _div4(a0, b0, c0, d0, eps)
            a1, b1, c1, d1, s1 = _div4(a1, b1, c1, d1, eps)
            a2, b2, c2, d2, s2 = _div4(a2, b2, c2, d2, eps)
            a3, b3, c3, d3, s3 = _div4(a3, b3, c3, d3, eps)
            _store_den(dens, 2 * i, t, n, s0, s1, s2, s3, mask)
        _store4(out, t, 0, a0, a1, a2, a3, mask)
        _store4(out, t, 4, b0, b1, b2, b3, mask)
        _store4(out, t, 8, c0, c1, c2, c3, mask)
        _store4(out, t, 12, d0, d1, d2, d3, mask)

    @triton.jit
    def _backward_kernel(grad, out, dens, result, n, eps, ITERATIONS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        t = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
        mask = t < n
        a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3 = _load16(out, t, mask)
        e0, e1, e2, e3, f0, f1, f2, f3, g0, g1, g2, g3, h0, h1, h2, h3 = _load16(grad, t, mask)
        for j in range(0, ITERATIONS - 1):
            i = ITERATIONS - 1 - j
            s0, s1, s2, s3 = _load_den(dens, 2 * i, t, n, mask)
            e0, f0, g0, h0, a0, b0, c0, d0 = _grad4(e0, f0, g0, h0, a0, b0, c0, d0, s0)
            e1, f1, g1, h1, a1, b1, c1, d1 = _grad4(e1, f1, g1, h1, a1, b1, c1, d1, s1)
            e2, f2, g2, h2, a2, b2, c2, d2 = _grad4(e2, f2, g2, h2, a2, b2, c2, d2, s2)
            e3, f3, g3, h3, a3, b3, c3, d3 = _grad4(e3, f3, g3, h3, a3, b3, c3, d3, s3)
            s0, s1, s2, s3 = _load_den(dens, 2 * i - 1, t, n, mask)
            e0, e1, e2, e3, a0, a1, a2, a3 = _grad4(e0, e1, e2, e3, a0, a1, a2, a3, s0)
            f0, f1, f2, f3, b0, b1, b2, b3 = _grad4(f0, f1, f2, f3, b0, b1, b2, b3, s1)
            g0, g1, g2, g3, c0, c1, c2, c3 = _grad4(g0, g1, g2, g3, c0, c1, c2, c3, s2)
            h0, h1, h2, h3, d0, d1, d2, d3 = _grad4(h0, h1, h2, h3, d0, d1, d2, d3, s3)
        s0, s1, s2, s3 = _load_den(dens, 0, t, n, mask)
        e0, f0, g0, h0, a0, b0, c0, d0 = _grad4(e0, f0, g0, h0, a0, b0, c0, d0, s0)
        e1, f1, g1, h1, a1, b1, c1, d1 = _grad4(e1, f1, g1, h1, a1, b1, c1, d1, s1)
        e2, f2, g2, h2, a2, b2, c2, d2 = _grad4(e2, f2, g2, h2, a2, b2, c2, d2, s2)
        e3, f3, g3, h3, a3, b3, c3, d3 = _grad4(e3, f3, g3, h3, a3, b3, c3, d3, s3)
        e0, e1, e2, e3 = _gradsoft4(e0, e1, e2, e3, a0, a1, a2, a3, eps)
        f0, f1, f2, f3 = _gradsoft4(f0, f1, f2, f3, b0, b1, b2, b3, eps)
        g0, g1, g2, g3 = _gradsoft4(g0, g1, g2, g3, c0, c1, c2, c3, eps)
        h0, h1, h2, h3 = _gradsoft4(h0, h1, h2, h3, d0, d1, d2, d3, eps)
        _store4(result, t, 0, e0, e1, e2, e3, mask)
        _store4(result, t, 4, f0, f1, f2, f3, mask)
        _store4(result, t, 8, g0, g1, g2, g3, mask)
        _store4(result, t, 12, h0, h1, h2, h3, mask)


def launch_forward(logits: Tensor, iterations: int, eps: float) -> tuple[Tensor, Tensor]:
    """The Triton kernel behind `sinkhorn` (same contract as `sinkhorn_reference`)."""
    n = logits.shape[0]
    out = torch.empty_like(logits)
    dens = logits.new_empty(2 * iterations - 1, 4, n)
    _forward_kernel[(triton.cdiv(n, BLOCK),)](logits, out, dens, n, eps, iterations, BLOCK)
    return out, dens


def launch_backward(grad: Tensor, out: Tensor, dens: Tensor, eps: float) -> Tensor:
    """The Triton kernel behind `sinkhorn_backward`."""
    n = out.shape[0]
    result = torch.empty_like(out)
    iterations = (dens.shape[0] + 1) // 2
    _backward_kernel[(triton.cdiv(n, BLOCK),)](grad, out, dens, result, n, eps, iterations, BLOCK)
    return result


@torch.library.custom_op("outrider_training::sinkhorn", mutates_args=())
def _sinkhorn(logits: Tensor, iterations: int, eps: float) -> tuple[Tensor, Tensor]:
    logits = logits.contiguous()
    if logits.is_cuda and HAVE_TRITON and logits.shape[1:] == (4, 4):
        return launch_forward(logits, iterations, eps)
    return sinkhorn_reference(logits, iterations, eps)


@_sinkhorn.register_fake
def _(logits: Tensor, iterations: int, eps: float) -> tuple[Tensor, Tensor]:
    out = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    return out, logits.new_empty(2 * iterations - 1, logits.shape[-1], logits.shape[0])


@torch.library.custom_op("outrider_training::sinkhorn_backward", mutates_args=())
def _sinkhorn_backward(grad: Tensor, out: Tensor, dens: Tensor, eps: float) -> Tensor:
    grad = grad.contiguous()
    if grad.is_cuda and HAVE_TRITON and grad.shape[1:] == (4, 4):
        return launch_backward(grad, out, dens, eps)
    return sinkhorn_backward_reference(grad, out, dens, eps)


@_sinkhorn_backward.register_fake
def _(grad: Tensor, out: Tensor, dens: Tensor, eps: float) -> Tensor:
    return torch.empty(out.shape, dtype=out.dtype, device=out.device)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*output)
    ctx.eps = inputs[2]


def _gradient(ctx: Any, grad: Tensor, _grad_dens: Tensor) -> tuple[Tensor, None, None]:
    out, dens = ctx.saved_tensors
    return _sinkhorn_backward(grad, out, dens, ctx.eps), None, None


_sinkhorn.register_autograd(_gradient, setup_context=_setup_context)


def sinkhorn(logits: Tensor, iterations: int, eps: float) -> Tensor:
    """logits [T, 4, 4] float32 (source, destination) -> C [T, 4, 4]; differentiable, opaque to the compiler."""
    out: Tensor = _sinkhorn(logits, iterations, eps)[0]
    return out
