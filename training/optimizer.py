"""Muon for matrices, AdamW for the rest, with few launches.

Muon (Jordan et al. 2024; scale of Liu et al. 2025): momentum, Nesterov, then the nearest orthogonal matrix by five
Newton-Schulz steps, times 0.2 * sqrt(longer side), so that an entry's update has about AdamW's size.

Matrices of one shape are stacked (the longer side last) and orthogonalised as one batch: 270 experts and every
attention matrix of 9 layers make about ten batches.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NORM_LIKE = 0.5  # learning rates relative to embed and head
ROUTER = 0.3


def orthogonalise(g: Tensor, steps: int = 5) -> Tensor:
    """[N, m, n], m <= n -> approximately U V^T of each matrix, bf16 (float32 on a CPU)."""
    a, b, c = NEWTON_SCHULZ
    x = g.to(torch.bfloat16 if g.is_cuda else torch.float32)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = torch.bmm(x, x.transpose(1, 2))
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


class Muon:
    """Matrices [m, n] or stacks of them [E, m, n], grouped by shape."""

    def __init__(self, tensors: dict[str, Tensor], momentum: float = 0.95, decay: float = 0.1) -> None:
        self.momentum, self.decay = momentum, decay
        groups: dict[tuple[int, int], list[str]] = defaultdict(list)
        for name, t in tensors.items():
            m, n = t.shape[-2:]
            groups[(min(m, n), max(m, n))].append(name)
        self.tensors, self.groups = tensors, dict(groups)
        self.buffers: dict[tuple[int, int], Tensor] = {}

    def _wide(self, t: Tensor) -> Tensor:
        t = t if t.ndim == 3 else t[None]
        return t if t.shape[1] <= t.shape[2] else t.transpose(1, 2)

    @torch.no_grad()
    def step(self, lr: float) -> None:
        for shape, names in self.groups.items():
            params = [self.tensors[n] for n in names]
            g = torch.cat([self._wide(p.grad) for p in params if p.grad is not None])
            buffer = self.buffers.setdefault(shape, torch.zeros_like(g))
            buffer.lerp_(g, 1 - self.momentum)
            update = orthogonalise(g.lerp(buffer, self.momentum)).float()
            parts = update.split([self._wide(p).shape[0] for p in params])
            torch._foreach_mul_(params, 1 - lr * self.decay)
            matched = [
                (u if self._wide(p).shape[1:] == p.shape[-2:] else u.transpose(1, 2)).reshape(p.shape)
                for u, p in zip(parts, params, strict=True)
            ]
            torch._foreach_add_(params, matched, alpha=-lr * 0.2 * shape[1] ** 0.5)

    def state(self) -> dict[tuple[int, int], Tensor]:
        return self.buffers

    def load(self, state: dict[tuple[int, int], Tensor]) -> None:
        for shape, buffer in state.items():
            self.buffers[shape] = buffer.clone()


def is_matrix(name: str) -> bool:
    """Muon's share: linear layers. Embedding, head, router, hyper-connections and vectors are AdamW's."""
    if name in ("embed.weight", "head.weight") or name.endswith(("norm.weight", "gate.weight")):
        return False
    return name.endswith(".weight") or ".experts." in name


class Optimizer:
    """Both, over the trainable tensors of a model (or the subset `names`)."""

    def __init__(
        self, tensors: dict[str, Tensor], names: list[str] | None = None, muon_lr: float = 4e-3, adam_lr: float = 3e-3
    ) -> None:
        chosen = {n: t for n, t in tensors.items() if t.requires_grad and (names is None or n in names)}
        self.chosen, self.muon_lr, self.adam_lr = chosen, muon_lr, adam_lr
        self.muon = Muon({n: t for n, t in chosen.items() if is_matrix(n) and not n.endswith("enorm.weight")})
        self.adam_names = [n for n in chosen if n not in self.muon.tensors]
        groups: dict[float, list[Tensor]] = defaultdict(list)
        for n in self.adam_names:
            groups[self._relative(n)].append(chosen[n])
        self.adam = torch.optim.AdamW(
            [{"params": p, "lr": adam_lr * r, "relative": r} for r, p in groups.items()],
            betas=(0.9, 0.95),
            eps=1e-10,
            weight_decay=0.0,
            fused=True,
        )

    @staticmethod
    def _relative(name: str) -> float:
        if name in ("embed.weight", "head.weight"):
            return 1.0
        return ROUTER if name.endswith("gate.weight") else NORM_LIKE

    def step(self, factor: float) -> None:
        """One update at `factor` times the peak learning rates; clears the gradients."""
        torch.nn.utils.clip_grad_norm_([self.chosen[n] for n in self.adam_names], 1.0, foreach=True)
        for group in self.adam.param_groups:
            group["lr"] = self.adam_lr * group["relative"] * factor
        self.adam.step()
        self.muon.step(self.muon_lr * factor)
        for t in self.chosen.values():
            t.grad = None

    def state(self) -> dict[str, Any]:
        return {"adam": self.adam.state_dict(), "muon": self.muon.state()}

    def load(self, state: dict[str, Any]) -> None:
        self.adam.load_state_dict(state["adam"])
        self.muon.load(state["muon"])
