"""Executable oracle of DeepSeek-V4: trunk and MTP block as plain formulas over official tensor names.

One sequence at a time, no cache, no batching: slow on purpose, so that it can be read beside the formulas. Every
faster implementation in this repository is compared with it.

    cfg = make_cfg(TINY_CONFIG)                      # a dict of official config.json fields
    W = random_weights(cfg)
    X, logits = main_forward(ids, W, cfg)            # [T, hc, d], [T, V]
    Z, drafts = mtp_forward(X[:-1], ids[1:], torch.arange(T - 1), W, cfg)

`simq=True` adds the round trips that the model was trained with even where caches are bf16: FP8 on the non-rope part
of local and compressed KV, Hadamard and FP4 on the indexer's q and k. `act8=True` also rounds the input of every
FP8 / FP4 weight to FP8 (1 x 128 blocks, power-of-two scales).
Symbols: T tokens, d hidden size, hc streams, H heads, D head dim, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from tests.oracle_setup import (
    TINY_CONFIG,
    OracleConfig,
    inv_freq,
    make_cfg,
    official_shapes,
    random_weights,
)
from torch import Tensor

__all__ = [
    "TINY_CONFIG",
    "OracleConfig",
    "attention",
    "block",
    "compress",
    "hadamard",
    "hc_head",
    "index_scores",
    "inv_freq",
    "logits_of",
    "main_forward",
    "make_cfg",
    "mhc_post",
    "mhc_pre",
    "moe",
    "mtp_forward",
    "official_shapes",
    "q_fp4_ue8m0",
    "q_fp8_ue8m0",
    "random_weights",
    "rmsnorm",
    "rope",
    "route",
    "sinkhorn_split",
]

Weights = Mapping[str, Tensor]

# -------- number formats


E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def _power_of_two_ceil(x: Tensor) -> Tensor:
    """2^ceil(log2 x) for positive normal x, by exponent bits: exact where a float log2 is not."""
    mantissa, exponent = torch.frexp(x)  # x = mantissa * 2^exponent, mantissa in [0.5, 1)
    return torch.ldexp(torch.ones_like(x), exponent - (mantissa == 0.5).int())


def q_fp8_ue8m0(x: Tensor, block: int) -> Tensor:
    """FP8 e4m3 round trip over blocks of the last dim (a short last block is allowed), scale 2^ceil(log2(amax/448))."""
    pad = -x.shape[-1] % block
    b = F.pad(x.float(), (0, pad)).unflatten(-1, (-1, block))
    scale = _power_of_two_ceil(b.abs().amax(-1, keepdim=True).clamp_min(1e-4) / 448.0)
    q = (b / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale
    return q.flatten(-2)[..., : x.shape[-1]].to(x.dtype)


def q_fp4_ue8m0(x: Tensor, block: int = 32) -> Tensor:
    """FP4 e2m1 round trip over blocks of the last dim, scale 2^ceil(log2(amax/6)), ties to the even mantissa."""
    b = x.float().unflatten(-1, (-1, block))
    scale = _power_of_two_ceil(b.abs().amax(-1, keepdim=True).clamp_min(6 * 2.0**-126) / 6.0)
    v = (b / scale).clamp(-6, 6)
    a = v.abs()
    grid = E2M1.to(x.device)
    middles = (grid[1:] + grid[:-1]) / 2
    code = torch.bucketize(a, middles)  # a value at a middle goes to the lower code
    tie_to_upper = (code < 7) & (a == middles[code.clamp(max=6)]) & (code % 2 == 1)
    return (v.sign() * grid[code + tie_to_upper.long()] * scale).flatten(-2).to(x.dtype)


def hadamard(x: Tensor) -> Tensor:
    """Orthonormal Sylvester-Hadamard transform of the last dim (a power of two)."""
    n, half = x.shape[-1], 1
    y = x
    while half < n:
        pairs = y.unflatten(-1, (n // (2 * half), 2, half))
        y = torch.stack([pairs[..., 0, :] + pairs[..., 1, :], pairs[..., 0, :] - pairs[..., 1, :]], -2).flatten(-3)
        half *= 2
    return y * n**-0.5


# -------- building blocks


def rmsnorm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """x * rsqrt(mean(x^2) + eps) * weight, in float32 with one cast at the end."""
    xf = x.float()
    xf = xf * torch.rsqrt(xf.pow(2).mean(-1, keepdim=True) + eps)
    return (xf if weight is None else xf * weight.float()).to(x.dtype)


def rope(x: Tensor, pos: Tensor, freq: Tensor, sign: int = 1) -> Tensor:
    """Rotates adjacent pairs of the last 2 * len(freq) dims. x: [T, D] or [T, H, D]; sign -1 rotates back."""
    rope_dim = 2 * freq.numel()
    angle = pos.float()[:, None] * freq[None, :]
    cos, sin = angle.cos(), sign * angle.sin()
    if x.ndim == 3:
        cos, sin = cos[:, None], sin[:, None]
    a, b = x[..., -rope_dim:][..., 0::2].float(), x[..., -rope_dim:][..., 1::2].float()
    rotated = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2).to(x.dtype)
    return torch.cat([x[..., :-rope_dim], rotated], -1)


def sinkhorn_split(m: Tensor, scale: Tensor, base: Tensor, cfg: OracleConfig) -> tuple[Tensor, Tensor, Tensor]:
    """m [..., (2+hc)*hc] -> pre [..., hc], post [..., hc], C [..., source, destination]."""
    hc, eps = cfg.hc, cfg.hc_eps
    pre = torch.sigmoid(m[..., :hc] * scale[0] + base[:hc]) + eps
    post = 2 * torch.sigmoid(m[..., hc : 2 * hc] * scale[1] + base[hc : 2 * hc])
    C = (m[..., 2 * hc :] * scale[2] + base[2 * hc :]).unflatten(-1, (hc, hc)).softmax(-1) + eps
    C = C / (C.sum(-2, keepdim=True) + eps)  # the first iteration normalises columns only
    for _ in range(cfg.hc_iters - 1):
        C = C / (C.sum(-1, keepdim=True) + eps)
        C = C / (C.sum(-2, keepdim=True) + eps)
    return pre, post, C


def mhc_mix(X: Tensor, fn: Tensor, cfg: OracleConfig) -> Tensor:
    """(fn @ f) * rsqrt(mean f^2 + eps) with f = flatten(X). X [T, hc, d] -> [T, rows of fn]."""
    flat = X.flatten(-2).float()
    return F.linear(flat, fn) * torch.rsqrt(flat.pow(2).mean(-1, keepdim=True) + cfg.eps)


def mhc_pre(X: Tensor, W: Weights, p: str, cfg: OracleConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Reads site p of the hyper-connection: u [T, d], post [T, hc], C [T, hc, hc]."""
    pre, post, C = sinkhorn_split(mhc_mix(X, W[p + "_fn"], cfg), W[p + "_scale"], W[p + "_base"], cfg)
    return torch.einsum("tk,tkd->td", pre, X.float()).to(X.dtype), post, C


def mhc_post(y: Tensor, X: Tensor, post: Tensor, C: Tensor) -> Tensor:
    """X'_k = post_k * y + sum_j C[j, k] X_j: the first index of C is the source stream."""
    return (post[..., None] * y[:, None].float() + torch.einsum("tjk,tjd->tkd", C, X.float())).to(y.dtype)


def hc_head(X: Tensor, W: Weights, p: str, cfg: OracleConfig) -> Tensor:
    """Collapses the streams: [T, hc, d] -> [T, d]. p is "" for the trunk, "mtp.0." for the MTP block."""
    mix = mhc_mix(X, W[p + "hc_head_fn"], cfg)
    weight = torch.sigmoid(mix * W[p + "hc_head_scale"] + W[p + "hc_head_base"]) + cfg.hc_eps
    return torch.einsum("tk,tkd->td", weight, X.float()).to(X.dtype)


def linear(x: Tensor, W: Weights, name: str, act8: bool = False) -> Tensor:
    """x @ W^T for a weight that the checkpoint stores quantised."""
    return F.linear(q_fp8_ue8m0(x, 128) if act8 else x, W[name + ".weight"])


# -------- attention


def compress(h: Tensor, W: Weights, p: str, ratio: int, head_dim: int, cfg: OracleConfig) -> Tensor:
    """Pools windows of `ratio` tokens: h [T, d] -> [T // ratio, head_dim], roped at each window's first position.

    Per channel, a softmax over the window's gates. Ratio 4 overlaps: each window also pools the first half of the
    channels of the window before it.
    """
    n = h.shape[0] // ratio
    if n == 0:
        return h.new_zeros(0, head_dim)
    kv = F.linear(h.float(), W[p + "wkv.weight"].float())[: n * ratio].view(n, ratio, -1)
    gate = F.linear(h.float(), W[p + "wgate.weight"].float())[: n * ratio].view(n, ratio, -1) + W[p + "ape"]
    if ratio == 4:
        no_kv, no_gate = kv.new_zeros(1, ratio, head_dim), gate.new_full((1, ratio, head_dim), -math.inf)
        kv = torch.cat([torch.cat([no_kv, kv[:-1, :, :head_dim]]), kv[..., head_dim:]], 1)
        gate = torch.cat([torch.cat([no_gate, gate[:-1, :, :head_dim]]), gate[..., head_dim:]], 1)
    entries = (kv * gate.softmax(1)).sum(1)
    entries = rmsnorm(entries.to(h.dtype), W[p + "norm.weight"], cfg.eps)
    return rope(entries, torch.arange(n, device=h.device) * ratio, cfg.f_comp.to(h.device))


def index_scores(
    h: Tensor, qr: Tensor, pos: Tensor, W: Weights, p: str, cfg: OracleConfig, simq: bool, act8: bool = False
) -> Tensor:
    """Lightning indexer: I[t, j] = sum_h w[t, h] * relu(q[t, h] . k[j]). Returns [T, T // 4], not yet masked."""
    q = linear(qr, W, p + "wq_b", act8).view(-1, cfg.idx_heads, cfg.idx_dim)
    q = rope(q, pos, cfg.f_comp.to(h.device))
    k = compress(h, W, p + "compressor.", 4, cfg.idx_dim, cfg)
    if simq:
        q, k = q_fp4_ue8m0(hadamard(q), cfg.idxblk), q_fp4_ue8m0(hadamard(k), cfg.idxblk)
    w = F.linear(h, W[p + "weights_proj.weight"]).float() * cfg.idx_dim**-0.5 * cfg.idx_heads**-0.5
    return (torch.einsum("thd,sd->ths", q.float(), k.float()).relu() * w[..., None]).sum(1)


def attention(
    h: Tensor, pos: Tensor, W: Weights, p: str, ratio: int, cfg: OracleConfig, simq: bool = False, act8: bool = False
) -> Tensor:
    """Sliding window plus compressed entries under one softmax with a sink; K = V. h [T, d] -> [T, d]."""
    T, H, D = h.shape[0], cfg.heads, cfg.head_dim
    freq = (cfg.f_comp if ratio else cfg.f_main).to(h.device)
    qr = rmsnorm(linear(h, W, p + "wq_a", act8), W[p + "q_norm.weight"], cfg.eps)
    q = rope(rmsnorm(linear(qr, W, p + "wq_b", act8).view(T, H, D), None, cfg.eps), pos, freq)
    kv = rope(rmsnorm(linear(h, W, p + "wkv", act8), W[p + "kv_norm.weight"], cfg.eps), pos, freq)

    def round_kv(x: Tensor) -> Tensor:
        nope, roped = x[..., : -cfg.rope_dim], x[..., -cfg.rope_dim :]
        return torch.cat([q_fp8_ue8m0(nope, cfg.kvblk), roped], -1) if simq else x

    keys = round_kv(kv)
    t = torch.arange(T, device=h.device)
    visible = (t[None] <= t[:, None]) & (t[None] > t[:, None] - cfg.window)
    if ratio:
        entries = round_kv(compress(h, W, p + "compressor.", ratio, D, cfg))
        n = entries.shape[0]
        closed = torch.arange(n, device=h.device)[None] < ((t + 1) // ratio)[:, None]
        if ratio == 4 and n:
            scores = index_scores(h, qr, pos, W, p + "indexer.", cfg, simq, act8).masked_fill(~closed, -math.inf)
            top = scores.topk(min(cfg.topk_idx, n), -1).indices
            closed = closed & torch.zeros_like(closed).scatter_(1, top, True)
        keys, visible = torch.cat([keys, entries]), torch.cat([visible, closed], 1)
    scores = torch.einsum("thd,sd->ths", q.float(), keys.float()) * D**-0.5
    scores = scores.masked_fill(~visible[:, None], -math.inf)
    sink = W[p + "attn_sink"].float()[None, :, None].expand(T, H, 1)
    prob = torch.cat([scores, sink], -1).softmax(-1)[..., :-1]  # the sink takes mass and adds no value
    o = torch.einsum("ths,sd->thd", prob, keys.float()).to(h.dtype)
    o = rope(o, pos, freq, sign=-1).reshape(T, cfg.o_groups, -1)  # V carries K's rotation: undo it at the query
    wo_a = W[p + "wo_a.weight"].view(cfg.o_groups, cfg.o_rank, -1)
    return linear(torch.einsum("tgd,grd->tgr", o, wo_a).flatten(1), W, p + "wo_b", act8)


# -------- experts


def expert_hidden(x: Tensor, W: Weights, p: str, cfg: OracleConfig, act8: bool = False) -> Tensor:
    """silu(min(w1 x, L)) * clamp(w3 x, -L, L) in float32."""
    gate = linear(x, W, p + "w1", act8).float().clamp(max=cfg.lim)
    up = linear(x, W, p + "w3", act8).float().clamp(-cfg.lim, cfg.lim)
    return F.silu(gate) * up


def route(h: Tensor, ids: Tensor, W: Weights, p: str, hashed: bool, cfg: OracleConfig) -> tuple[Tensor, Tensor]:
    """Selected experts [T, topk] and their weights [T, topk] (float32, scaled)."""
    s = F.softplus(F.linear(h.float(), W[p + "gate.weight"].float())).sqrt()
    if hashed:
        selected = W[p + "gate.tid2eid"][ids].long()
    else:
        selected = (s + W[p + "gate.bias"]).topk(cfg.topk, -1).indices  # the bias selects, it never weights
    w = s.gather(1, selected)
    return selected, w / w.sum(-1, keepdim=True) * cfg.route_scale


def moe(h: Tensor, ids: Tensor, W: Weights, p: str, hashed: bool, cfg: OracleConfig, act8: bool = False) -> Tensor:
    """Routed experts plus the shared one, summed in float32. h [T, d] -> [T, d]."""
    selected, w = route(h, ids, W, p, hashed, cfg)
    y = torch.zeros(h.shape, dtype=torch.float32, device=h.device)
    for e in range(cfg.n_exp):
        token, slot = (selected == e).nonzero(as_tuple=True)
        if token.numel():
            name = f"{p}experts.{e}."
            a = w[token, slot, None] * expert_hidden(h[token], W, name, cfg, act8)
            y.index_add_(0, token, linear(a.to(h.dtype), W, name + "w2", act8).float())
    a = expert_hidden(h, W, p + "shared_experts.", cfg, act8)
    return (y + linear(a.to(h.dtype), W, p + "shared_experts.w2", act8).float()).to(h.dtype)


# -------- the two forwards


def block(
    X: Tensor,
    ids: Tensor,
    pos: Tensor,
    W: Weights,
    p: str,
    ratio: int,
    hashed: bool,
    cfg: OracleConfig,
    simq: bool = False,
    act8: bool = False,
) -> Tensor:
    """One decoder layer over the streams X [T, hc, d]; p is its name prefix, "layers.3." or "mtp.0."."""
    u, post, C = mhc_pre(X, W, p + "hc_attn", cfg)
    x = rmsnorm(u, W[p + "attn_norm.weight"], cfg.eps)
    X = mhc_post(attention(x, pos, W, p + "attn.", ratio, cfg, simq, act8), X, post, C)
    u, post, C = mhc_pre(X, W, p + "hc_ffn", cfg)
    x = rmsnorm(u, W[p + "ffn_norm.weight"], cfg.eps)
    return mhc_post(moe(x, ids, W, p + "ffn.", hashed, cfg, act8), X, post, C)


def logits_of(X: Tensor, W: Weights, p: str, cfg: OracleConfig) -> Tensor:
    """Streams [T, hc, d] -> float32 logits [T, V], by the trunk's ("") or the MTP block's ("mtp.0.") final norm."""
    y = rmsnorm(hc_head(X, W, p, cfg), W[p + "norm.weight"], cfg.eps)
    return F.linear(y.float(), W["head.weight"].float())


def main_forward(
    ids: Tensor, W: Weights, cfg: OracleConfig, simq: bool = False, act8: bool = False
) -> tuple[Tensor, Tensor]:
    """ids [T] -> (streams before hc_head [T, hc, d], logits [T, V])."""
    X = W["embed.weight"][ids][:, None].repeat(1, cfg.hc, 1)
    pos = torch.arange(ids.numel(), device=ids.device)
    for i in range(cfg.layers):
        X = block(X, ids, pos, W, f"layers.{i}.", cfg.ratios[i], i < cfg.n_hash, cfg, simq, act8)
    return X, logits_of(X, W, "", cfg)


def mtp_forward(
    Xprev: Tensor,
    ids_next: Tensor,
    pos: Tensor,
    W: Weights,
    cfg: OracleConfig,
    k: int = 0,
    simq: bool = False,
    act8: bool = False,
) -> tuple[Tensor, Tensor]:
    """Streams of positions pos [T, hc, d] and the tokens at pos + 1 [T] -> (streams, logits for pos + 2)."""
    p = f"mtp.{k}."
    e = rmsnorm(W["embed.weight"][ids_next], W[p + "enorm.weight"], cfg.eps)
    g = rmsnorm(Xprev, W[p + "hnorm.weight"], cfg.eps)
    X = linear(e, W, p + "e_proj", act8)[:, None] + linear(g, W, p + "h_proj", act8)
    X = block(X, ids_next, pos, W, p, cfg.ratios[cfg.layers + k], False, cfg, simq, act8)
    return X, logits_of(X, W, p, cfg)
