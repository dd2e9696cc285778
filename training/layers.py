"""One decoder layer as a function of streams and prepared weights, batched over [B, S] and differentiable.

Formulas are those of tests/oracle.py; what differs is the shape of the work:

* sliding window: S is cut into blocks of `window` queries, each attending to its own and the previous block of keys;
* compressed entries: all S / ratio of them under a mask (S x n scores, n <= 1024);
* experts: all of them for every token as two wide matrices, unselected ones with weight zero (8 small experts cost
  less than sorting tokens);
* the two flags (`quantise`, `dense`) are 0-dim tensors, so that switching them does not compile anything again.

Shapes: B rows, S positions (a multiple of `Sizes.sequence_multiple`), d hidden, H heads, D head dim, n entries,
E experts, I expert width. Activations are in the dtype of the streams, statistics in float32.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from training.config import Sizes
from training.quantise import blend, fp4_rows, fp8_rows
from training.sinkhorn import sinkhorn

LayerWeights = dict[str, Tensor]


class Flags(NamedTuple):
    """0-dim float tensors, 0 or 1."""

    quantise: Tensor  # round activations as the engine does
    dense: Tensor  # ratio 4 attends to every visible entry (indexer warm-up)


class LayerOutput(NamedTuple):
    streams: Tensor  # [B, S, hc, d]
    kv: Tensor  # [B, S, D], the layer's own rows (roped, rounded)
    load: Tensor  # [E], tokens per expert
    index_loss: Tensor  # scalar, KL of the indexer (0 unless ratio 4)


class Chain(NamedTuple):
    """Keys of a drafting step beyond the first: rows of the trunk's streams, then the chain's own earlier rows."""

    window_keys: Tensor  # [B, S, D] rows written at depth 1
    earlier: Tensor  # [B, S, D] row of the step in between (depth 3), else anything
    has_earlier: Tensor  # 0-dim float
    shift: Tensor  # 0-dim int, depth - 1: the query sits that many positions after row t


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    xf = x.float()
    xf = xf * torch.rsqrt(xf.square().mean(-1, keepdim=True) + eps)
    return (xf if weight is None else xf * weight).to(x.dtype)


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates adjacent pairs of the last dims. x [B, S, D] or [B, S, H, D]; cos, sin [S, rope_dim / 2]."""
    width = 2 * cos.shape[-1]
    if x.ndim == 4:
        cos, sin = cos[:, None], sin[:, None]
    a, b = x[..., -width:].float().unflatten(-1, (-1, 2)).unbind(-1)
    rotated = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    return torch.cat([x[..., :-width], rotated.to(x.dtype)], -1)


# -------- hyper-connections


def hc_mix(X: Tensor, fn: Tensor, eps: float) -> Tensor:
    flat = X.flatten(-2).float()
    return F.linear(flat, fn) * torch.rsqrt(flat.square().mean(-1, keepdim=True) + eps)


def weighted_sum(weight: Tensor, X: Tensor) -> Tensor:
    """sum_k weight[..., k] * X[..., k, :] in float32."""
    return (weight[..., None] * X.float()).sum(-2)


def hc_read(X: Tensor, w: LayerWeights, site: str, z: Sizes) -> tuple[Tensor, Tensor, Tensor]:
    """Streams -> (sublayer input [B, S, d], post [B, S, hc], C [B, S, source, destination])."""
    hc = z.hc
    scale, base = w[f"hc_{site}_scale"], w[f"hc_{site}_base"]
    m = hc_mix(X, w[f"hc_{site}_fn"], z.eps)
    pre = torch.sigmoid(m[..., :hc] * scale[0] + base[:hc]) + z.hc_eps
    post = 2 * torch.sigmoid(m[..., hc : 2 * hc] * scale[1] + base[hc : 2 * hc])
    comb = (m[..., 2 * hc :] * scale[2] + base[2 * hc :]).reshape(-1, hc, hc)
    C = sinkhorn(comb, z.hc_iters, z.hc_eps).view(*X.shape[:-1], hc)
    return weighted_sum(pre, X).to(X.dtype), post, C


def hc_write(y: Tensor, X: Tensor, post: Tensor, C: Tensor) -> Tensor:
    """X'_k = post_k * y + sum_j C[j, k] X_j, one cast at the end."""
    out = post[..., None] * y.float()[..., None, :]
    for j in range(X.shape[-2]):
        out = out + C[..., j, :, None] * X[..., j, None, :].float()
    return out.to(X.dtype)


def hc_collapse(X: Tensor, fn: Tensor, scale: Tensor, base: Tensor, z: Sizes) -> Tensor:
    """hc_head: streams [B, S, hc, d] -> [B, S, d]."""
    weight = torch.sigmoid(hc_mix(X, fn, z.eps) * scale + base) + z.hc_eps
    return weighted_sum(weight, X).to(X.dtype)


# -------- attention


def round_kv(kv: Tensor, z: Sizes, on: Tensor) -> Tensor:
    """FP8 round trip of the dims that do not rotate."""
    nope = kv[..., : -z.rope_dim]
    return torch.cat([blend(nope, fp8_rows(nope.detach(), z.kv_block), on), kv[..., -z.rope_dim :]], -1)


def round_input(x: Tensor, on: Tensor, block: int = 128) -> Tensor:
    """What an FP8 or FP4 linear layer makes of its input."""
    return blend(x, fp8_rows(x.detach(), block), on)


def compress(x: Tensor, w: LayerWeights, p: str, ratio: int, head_dim: int, rot: LayerWeights, z: Sizes) -> Tensor:
    """x [B, S, d] -> entries [B, S // ratio, head_dim], normed and roped at the first position of each window."""
    B, S = x.shape[:2]
    n = S // ratio
    kv = F.linear(x.float(), w[p + "wkv"]).view(B, n, ratio, -1)
    gate = F.linear(x.float(), w[p + "wgate"]).view(B, n, ratio, -1) + w[p + "ape"]
    if ratio == 4:  # each window also pools the left half of the channels of the window before it
        left_kv = F.pad(kv[:, :-1, :, :head_dim], (0, 0, 0, 0, 1, 0))
        left_gate = F.pad(gate[:, :-1, :, :head_dim], (0, 0, 0, 0, 1, 0), value=-math.inf)
        kv = torch.cat([left_kv, kv[..., head_dim:]], 2)
        gate = torch.cat([left_gate, gate[..., head_dim:]], 2)
    entries = (kv * gate.softmax(2)).sum(2).to(x.dtype)
    entries = rms_norm(entries, w[p + "norm"], z.eps)
    return rope(entries, rot["comp_cos"][: n * ratio : ratio], rot["comp_sin"][: n * ratio : ratio])


def index_keys(x: Tensor, w: LayerWeights, rot: LayerWeights, z: Sizes, on: Tensor) -> Tensor:
    """Indexer entries [B, n, index_dim], rotated by Hadamard and rounded. Input detached: see `index_scores`."""
    k = compress(x.detach(), w, "indexer.compressor.", 4, z.index_dim, rot, z)
    k = (k @ rot["hadamard"]) * z.index_dim**-0.5
    return blend(k, fp4_rows(k.detach()), on)


def index_scores(
    x: Tensor,
    qr: Tensor,
    keys: Tensor,
    w: LayerWeights,
    cos: Tensor,
    sin: Tensor,
    hadamard: Tensor,
    z: Sizes,
    on: Tensor,
) -> Tensor:
    """Lightning indexer, [B, S, n] float32, unmasked. Its inputs are detached: it learns from its own loss only."""
    B, S = x.shape[:2]
    q = F.linear(qr.detach(), w["indexer.wq_b"]).view(B, S, z.index_heads, z.index_dim)
    q = (rope(q, cos, sin) @ hadamard) * z.index_dim**-0.5
    q = blend(q, fp4_rows(q.detach()), on)
    head_weight = F.linear(x.detach(), w["indexer.weights_proj"]).float() * (z.index_dim * z.index_heads) ** -0.5
    s = torch.matmul(q.view(B, S * z.index_heads, z.index_dim), keys.transpose(1, 2))
    return (s.view(B, S, z.index_heads, -1).float().relu() * head_weight[..., None]).sum(2)


def index_kl(scores: Tensor, probabilities: Tensor, allowed: Tensor) -> Tensor:
    """Mean KL(attention over the allowed entries, summed over heads || softmax of the index scores)."""
    mass = probabilities.detach().float().sum(2)  # [B, S, n]
    target = mass / (mass.sum(-1, keepdim=True) + 1e-9)
    log_q = scores.masked_fill(~allowed, -1e30).log_softmax(-1)
    kl = torch.where(allowed, target * (torch.log(target + 1e-9) - log_q), 0.0).sum(-1)
    return kl.mean()


def window_mask(S: int, window: int, shift: Tensor | int, device: torch.device) -> Tensor:
    """[S, 2 * window]: key j of a block pair is position j - window relative to the block's first query."""
    i = torch.arange(S, device=device)[:, None]
    j = torch.arange(2 * window, device=device)[None]
    inside = i % window
    return (j > inside + shift) & (j <= inside + window) & ((i >= window) | (j >= window))


def attend(
    q: Tensor,
    kv: Tensor,
    entries: Tensor | None,
    allowed: Tensor | None,
    sink: Tensor,
    z: Sizes,
    chain: Chain | None = None,
) -> tuple[Tensor, Tensor | None]:
    """One softmax over window keys, compressed entries, chain rows and the sink. K = V.

    q [B, S, H, D], kv [B, S, D], entries [B, n, D], allowed [S or B x S, n] -> (o [B, S, H, D], p of entries).
    """
    B, S, H, D = q.shape
    wd, nb, scale = z.window, S // z.window, D**-0.5
    keys = (kv if chain is None else chain.window_keys).view(B, nb, wd, D)
    pairs = torch.cat([F.pad(keys[:, :-1], (0, 0, 0, 0, 1, 0)), keys], 2)  # [B, nb, 2w, D]
    mask = window_mask(S, wd, 0 if chain is None else chain.shift, q.device)[:, None]
    s_win = torch.matmul(q.view(B, nb, wd * H, D), pairs.transpose(2, 3)).view(B, S, H, 2 * wd).float() * scale
    s_win = s_win.masked_fill(~mask, -math.inf)
    top = torch.maximum(s_win.amax(-1), sink)
    s_ent = s_own = s_ear = None
    if entries is not None and allowed is not None:
        s_ent = torch.matmul(q.view(B, S * H, D), entries.transpose(1, 2)).view(B, S, H, -1).float() * scale
        s_ent = s_ent.masked_fill(~allowed[..., None, :], -math.inf)
        top = torch.maximum(top, s_ent.amax(-1))
    if chain is not None:
        s_own = (q.float() * kv[:, :, None].float()).sum(-1) * scale
        s_ear = (q.float() * chain.earlier[:, :, None].float()).sum(-1) * scale
        top = torch.maximum(top, torch.maximum(s_own, s_ear))
    top = top.detach()
    e_win = torch.exp(s_win - top[..., None])
    den = e_win.sum(-1) + torch.exp(sink - top)
    e_ent = None
    if s_ent is not None:
        e_ent = torch.exp(s_ent - top[..., None])
        den = den + e_ent.sum(-1)
    if chain is not None and s_own is not None and s_ear is not None:
        e_own, e_ear = torch.exp(s_own - top), torch.exp(s_ear - top) * chain.has_earlier
        den = den + e_own + e_ear
    p_win = (e_win / den[..., None]).to(q.dtype)
    o = torch.matmul(p_win.view(B, nb, wd * H, 2 * wd), pairs).view(B, S, H, D)
    p_ent = None
    if e_ent is not None and entries is not None:
        p_ent = (e_ent / den[..., None]).to(q.dtype)
        o = o + torch.matmul(p_ent.view(B, S * H, -1), entries).view(B, S, H, D)
    if chain is not None:
        extra = (e_own / den)[..., None] * kv[:, :, None] + (e_ear / den)[..., None] * chain.earlier[:, :, None]
        o = o + extra.to(o.dtype)
    return o, p_ent


def project(
    x: Tensor, w: LayerWeights, cos: Tensor, sin: Tensor, z: Sizes, on: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """x [B, S, d] (normed) -> (low-rank query [B, S, q_rank], q [B, S, H, D], kv rows [B, S, D])."""
    x8 = round_input(x, on)
    qr = round_input(rms_norm(F.linear(x8, w["wq_a"]), w["q_norm"], z.eps), on)
    q = rope(rms_norm(F.linear(qr, w["wq_b"]).unflatten(-1, (z.heads, -1)), None, z.eps), cos, sin)
    kv = round_kv(rope(rms_norm(F.linear(x8, w["wkv"]), w["kv_norm"], z.eps), cos, sin), z, on)
    return qr, q, kv


def project_out(o: Tensor, w: LayerWeights, cos: Tensor, sin: Tensor, z: Sizes, on: Tensor) -> Tensor:
    """o [B, S, H, D] -> [B, S, d]. V carries K's rotation: it is undone at the query's position."""
    B, S = o.shape[:2]
    o = rope(o, cos, -sin).reshape(B * S, z.groups, -1)
    grouped = torch.bmm(o.transpose(0, 1), w["wo_a"].view(z.groups, z.o_rank, -1).transpose(1, 2))
    return F.linear(round_input(grouped.transpose(0, 1).reshape(B, S, -1), on), w["wo_b"])


def attention(
    x: Tensor, w: LayerWeights, rot: LayerWeights, flags: Flags, ratio: int, z: Sizes, chain: Chain | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """x [B, S, d] (normed) -> (output [B, S, d], kv rows [B, S, D], index loss)."""
    S, on = x.shape[1], flags.quantise
    name = "comp" if ratio else "main"
    cos, sin = rot[name + "_cos"][:S], rot[name + "_sin"][:S]
    qr, q, kv = project(x, w, cos, sin, z, on)
    entries = allowed = scores = None
    if ratio:
        entries = round_kv(compress(x, w, "compressor.", ratio, z.head_dim, rot, z), z, on)
        n = entries.shape[1]
        closed = (torch.arange(S, device=x.device) + 1) // ratio
        allowed = torch.arange(n, device=x.device)[None] < closed[:, None]
        if ratio == 4:
            scores = index_scores(x, qr, index_keys(x, w, rot, z, on), w, cos, sin, rot["hadamard"], z, on)
            best = scores.detach().masked_fill(~allowed, -math.inf).topk(min(z.index_topk, n), -1).indices
            chosen = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, True)
            allowed = allowed & (chosen | (flags.dense > 0))
    o, p_entries = attend(q, kv, entries, allowed, w["attn_sink"], z, chain)
    index_loss = x.new_zeros((), dtype=torch.float32)
    if scores is not None and p_entries is not None and allowed is not None:
        index_loss = index_kl(scores, p_entries, allowed)
    return project_out(o, w, cos, sin, z, on), kv, index_loss


# -------- experts


def moe(x: Tensor, ids: Tensor, w: LayerWeights, flags: Flags, z: Sizes) -> tuple[Tensor, Tensor]:
    """x [B, S, d], ids [B, S] -> (y [B, S, d], tokens per expert [E]).

    `w["select"]` [V, E] is added to the scores for selection only: the balancing bias of a learned router, or a large
    number at the two experts that the hash table names for a token id.
    """
    s = F.softplus(F.linear(x.float(), w["gate"])).sqrt()
    best = (s.detach() + w["select"][ids]).topk(z.topk, -1).indices
    chosen = torch.zeros_like(s).scatter(-1, best, 1.0)
    weight = s * chosen
    weight = weight / weight.sum(-1, keepdim=True) * z.route_scale
    weight = torch.cat([weight, torch.ones_like(weight[..., :1])], -1)  # the shared expert counts fully
    gate, up = F.linear(round_input(x, flags.quantise), w["w13"]).float().chunk(2, -1)
    a = F.silu(gate.clamp(max=z.limit)) * up.clamp(-z.limit, z.limit)
    a = (a.unflatten(-1, (z.experts + 1, z.inter)) * weight[..., None]).to(x.dtype)
    a = round_input(a, flags.quantise, min(128, z.inter)).flatten(-2)
    return F.linear(a, w["w2"]), chosen.sum((0, 1))


def decoder_layer(
    X: Tensor,
    ids: Tensor,
    w: LayerWeights,
    rot: LayerWeights,
    flags: Flags,
    ratio: int,
    z: Sizes,
    chain: Chain | None = None,
) -> LayerOutput:
    """Streams X [B, S, hc, d] -> LayerOutput. Compiled once per ratio (and once for chains)."""
    u, post, C = hc_read(X, w, "attn", z)
    y, kv, index_loss = attention(rms_norm(u, w["attn_norm"], z.eps), w, rot, flags, ratio, z, chain)
    X = hc_write(y, X, post, C)
    u, post, C = hc_read(X, w, "ffn", z)
    y, load = moe(rms_norm(u, w["ffn_norm"], z.eps), ids, w, flags, z)
    return LayerOutput(hc_write(y, X, post, C), kv, load, index_loss)
