"""Greedy generation for evaluation: many sequences in lockstep, one position a step, with plain caches.

All sequences are at the same position, prompts included (a prompt token overrides what was generated), so every
slice is the same for the whole batch and no mask is needed. Not the engine: no paging, no speculation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor
from training.layers import (
    Flags,
    LayerWeights,
    compress,
    hc_read,
    hc_write,
    index_keys,
    index_scores,
    moe,
    project,
    project_out,
    rms_norm,
    round_kv,
)
from training.model import Model, Prepared


@dataclass
class LayerCache:
    kv: Tensor  # [B, L, D]
    inputs: Tensor  # [B, L, d] normed attention inputs, from which windows are compressed
    entries: list[Tensor] = field(default_factory=list)  # each [B, 1, D]
    keys: list[Tensor] = field(default_factory=list)  # indexer entries, each [B, 1, index_dim]


class Decoder:
    """Steps a batch of sequences; `step(tokens, t)` returns the logits after position t."""

    def __init__(self, model: Model, w: Prepared, flags: Flags, batch: int, length: int) -> None:
        self.model, self.w, self.flags, z = model, w, flags, model.z

        def rows(width: int) -> Tensor:
            return torch.zeros(batch, length, width, device=model.device, dtype=model.dtype)

        self.caches = [LayerCache(rows(z.head_dim), rows(z.d)) for _ in range(z.layers)]

    def _close_window(self, cache: LayerCache, w: LayerWeights, ratio: int, t: int) -> None:
        """Appends the entry of the window that ends at t; ratio 4 needs the window before it as well."""
        z, on = self.model.z, self.flags.quantise
        first = max(0, t + 1 - 2 * ratio) if ratio == 4 else t + 1 - ratio
        x = cache.inputs[:, first : t + 1]
        rot = dict(self.model.rot)
        for n in ("comp_cos", "comp_sin"):
            rot[n] = self.model.rot[n][first:]
        entry = compress(x, w, "compressor.", ratio, z.head_dim, rot, z)[:, -1:]
        cache.entries.append(round_kv(entry, z, on))
        if ratio == 4:
            cache.keys.append(index_keys(x, w, rot, z, on)[:, -1:])

    def _attention(self, x: Tensor, i: int, t: int) -> Tensor:
        z, on, rot = self.model.z, self.flags.quantise, self.model.rot
        w, cache, ratio = self.w.layers[i], self.caches[i], z.ratios[i]
        name = "comp" if ratio else "main"
        cos, sin = rot[name + "_cos"][t : t + 1], rot[name + "_sin"][t : t + 1]
        qr, q, kv = project(x, w, cos, sin, z, on)
        cache.kv[:, t : t + 1], cache.inputs[:, t : t + 1] = kv, x
        if ratio and (t + 1) % ratio == 0:
            self._close_window(cache, w, ratio, t)
        keys = cache.kv[:, max(0, t + 1 - z.window) : t + 1]
        masked = None
        if cache.entries:
            keys = torch.cat([keys, *cache.entries], 1)
            n = len(cache.entries)
            if ratio == 4 and n > z.index_topk:
                index = torch.cat(cache.keys, 1)
                scores = index_scores(x, qr, index, w, cos, sin, rot["hadamard"], z, on)[:, 0]
                masked = torch.ones_like(scores, dtype=torch.bool)
                masked.scatter_(1, scores.topk(z.index_topk, -1).indices, False)
        s = torch.matmul(q[:, 0], keys.transpose(1, 2)).float() * z.head_dim**-0.5  # [B, H, keys]
        if masked is not None:
            s[..., -masked.shape[1] :].masked_fill_(masked[:, None], -math.inf)
        sink = w["attn_sink"][None, :, None].expand(s.shape[0], -1, 1)
        p = torch.cat([s, sink], -1).softmax(-1)[..., :-1].to(q.dtype)
        return project_out(torch.matmul(p, keys)[:, None], w, cos, sin, z, on)

    def step(self, tokens: Tensor, t: int) -> Tensor:
        """tokens [B] at position t -> logits [B, V]."""
        z, ids = self.model.z, tokens[:, None]
        X = F.embedding(ids, self.w.top["embed"]).to(self.model.dtype)[:, :, None].repeat(1, 1, z.hc, 1)
        for i, w in enumerate(self.w.layers):
            u, post, C = hc_read(X, w, "attn", z)
            X = hc_write(self._attention(rms_norm(u, w["attn_norm"], z.eps), i, t), X, post, C)
            u, post, C = hc_read(X, w, "ffn", z)
            y, _ = moe(rms_norm(u, w["ffn_norm"], z.eps), ids, w, self.flags, z)
            X = hc_write(y, X, post, C)
        return self.model.logits(X, self.w)[:, 0]


@torch.no_grad()
def generate(
    model: Model, w: Prepared, flags: Flags, prompts: list[list[int]], new_tokens: int, eos: int
) -> tuple[Tensor, list[int]]:
    """Greedy continuation. Returns ids [B, L] (zero after the end) and each sequence's length, EOS included."""
    longest = max(len(p) for p in prompts)
    L = longest + new_tokens
    ids = torch.zeros(len(prompts), L, dtype=torch.long)
    for b, p in enumerate(prompts):
        ids[b, : len(p)] = torch.tensor(p)
    ids = ids.to(model.device)
    given = torch.tensor([len(p) for p in prompts], device=model.device)
    limit = given + new_tokens
    decoder = Decoder(model, w, flags, len(prompts), L)
    eager, model.functions = model.functions, model._functions(compiled=False)
    ended = torch.zeros(len(prompts), dtype=torch.bool, device=model.device)
    length = limit.clone()
    for t in range(L - 1):
        token = decoder.step(ids[:, t], t).argmax(-1)
        own = (t + 1 >= given) & ~ended & (t + 1 < limit)
        ids[:, t + 1] = torch.where(own, token, ids[:, t + 1] * (t + 1 < given))
        now = own & (token == eos)
        length = torch.where(now, t + 2, length)
        ended |= now
        if t % 16 == 15 and bool((ended | (t + 2 >= limit)).all()):
            break
    model.functions = eager
    return ids, length.tolist()
