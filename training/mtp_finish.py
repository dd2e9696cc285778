"""Finishing the MTP block: the trunk frozen as it will ship, drafting trained recursively.

    loss = sum over depth j of 0.8^(j-1) * KL( trunk's distribution at t + j || MTP's at depth j of chain t )

A chain is fed the row's own tokens, which is what an engine feeds it as long as the drafts before were right, and
later depths matter only then. Embedding, head and trunk are the rounded ones of the export; the MTP block trains
through its own rounding.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from training.data import Mix
from training.layers import LayerWeights
from training.model import Model, stored_form
from training.optimizer import Optimizer
from training.quantise import ROUND

DEPTH = 3


@torch.no_grad()
def freeze_rounded(model: Model, prefix: tuple[str, ...] = ("",)) -> None:
    """Replaces master weights by the values the official checkpoint stores."""
    for name, t in model.tensors.items():
        if t.is_floating_point() and name.startswith(prefix):
            t.copy_(ROUND[stored_form(name)](t))


def kl_divergence(target: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """[B, S, V] both -> KL(target || logits) and whether the largest entries agree, [B, S]."""
    lt, lq = target.float().log_softmax(-1), logits.float().log_softmax(-1)
    return (lt.exp() * (lt - lq)).sum(-1), lt.argmax(-1) == lq.argmax(-1)


def _leaves(w: LayerWeights) -> LayerWeights:
    """Same values, no history. Still marked as needing gradients: other flags would compile everything again."""
    return {n: t.detach().requires_grad_(t.requires_grad) for n, t in w.items()}


def finish(
    model: Model,
    mix: Mix,
    seconds: float,
    rows: int,
    length: int,
    log: Callable[[dict[str, Any]], None],
    compiled: bool,
    max_steps: int = 1_000_000,
    muon_lr: float = 1.5e-3,
    adam_lr: float = 1e-3,
) -> None:
    """Trains `mtp.0.*` for `seconds`; the learning rate falls linearly to zero. Leaves everything rounded."""
    began = time.monotonic()
    freeze_rounded(model, tuple(n for n in model.tensors if not n.startswith("mtp.")))
    w, flags = model.prepare(quantised=True), model.flags(quantise=True)
    w = w._replace(top=_leaves(w.top), layers=[_leaves(layer) for layer in w.layers])
    names = [n for n in model.tensors if n.startswith("mtp.")]
    optimizer = Optimizer(model.tensors, names, muon_lr, adam_lr)
    divergence = torch.compile(kl_divergence, fullgraph=True, dynamic=False) if compiled else kl_divergence
    position = torch.arange(length, device=model.device)
    for step in range(max_steps):
        left = 1 - (time.monotonic() - began) / seconds
        if left <= 0:
            break
        ids = mix.batch(rows, length + DEPTH)
        streams = model.trunk(ids[:, :length].contiguous(), w, flags).streams.detach().requires_grad_(True)
        target = model.logits(streams, w).detach()
        own, own_top = model.prepare_mtp(quantised=True)
        chains = model.mtp_chain(streams, ids, w._replace(mtp=own, mtp_top=own_top), flags, DEPTH)
        loss, agree = torch.zeros((), device=model.device), []
        for j, logits in enumerate(chains, start=1):
            kl, same = divergence(target.roll(-j, 1), logits)
            inside = (position < length - j).float()
            loss = loss + 0.8 ** (j - 1) * (kl * inside).sum() / (inside.sum() * rows)
            agree.append((same * inside).sum() / (inside.sum() * rows))
        loss.backward()
        for t in w.top.values():
            t.grad = None
        optimizer.step(min(1.0, (step + 1) / 20, left))
        if step % 50 == 0:
            log({"finish": step, "loss": round(float(loss.detach()), 4), "agree": [round(float(a), 4) for a in agree]})
    freeze_rounded(model, ("mtp.",))
