"""Experts of random weights and the tokens that go to them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from outrider.ops.expert_bank import ExpertBank, quantize_experts
from outrider.ops.reference.expert_routing import Routes
from outrider.platforms.architectures import Fp8Dialect

DIALECTS = {"fp4": None, "ocp": Fp8Dialect.OCP, "fnuz": Fp8Dialect.FNUZ}


@dataclass(frozen=True)
class Problem:
    x: Tensor
    routes: Routes
    bank: ExpertBank
    shared: Tensor | None = None

    def select(self, rows: Tensor) -> Problem:
        """The same experts for some of the tokens, in any order."""
        shared = None if self.shared is None else self.shared[rows]
        return replace(self, x=self.x[rows], routes=Routes(*(x[rows] for x in self.routes)), shared=shared)

    def on_cpu(self) -> Problem:
        bank = ExpertBank(*(x.cpu() if isinstance(x, Tensor) else x for x in self.bank))  # type: ignore[arg-type]
        shared = None if self.shared is None else self.shared.cpu()
        return Problem(self.x.cpu(), Routes(*(x.cpu() for x in self.routes)), bank, shared)


def build_bank(form: str, experts: int, d: int, width: int, device: torch.device | str, seed: int = 0) -> ExpertBank:
    """Gates and ups of which a good part is beyond a limit of 10."""
    generator = torch.Generator().manual_seed(seed)
    gate_up = torch.randn(experts, 2 * width, d, generator=generator) * (6.0 * d**-0.5)
    gate_up *= torch.exp2(torch.randint(-2, 3, (experts, 2 * width, d // 128), generator=generator)).repeat_interleave(
        128, -1
    )
    down = torch.randn(experts, d, width, generator=generator) * width**-0.5
    bank = quantize_experts(gate_up, down, DIALECTS[form])
    return ExpertBank(*(x.to(device) if isinstance(x, Tensor) else x for x in bank))  # type: ignore[arg-type]


def build(
    form: str,
    tokens: int,
    device: torch.device | str,
    *,
    experts: int = 5,
    topk: int = 2,
    d: int = 256,
    width: int = 128,
    padded: tuple[int, ...] = (),
    dtype: torch.dtype = torch.float32,
    shared: bool = False,
    seed: int = 0,
) -> Problem:
    """`padded`: rows that are, whose x is NaN."""
    generator = torch.Generator().manual_seed(seed + 1)
    x = torch.randn(tokens, d, generator=generator) * torch.exp2(torch.arange(tokens) % 5 - 2.0)[:, None]
    scores = torch.rand(tokens, experts, generator=generator)
    selected = scores.topk(topk).indices.sort(dim=-1).values.to(torch.int32)
    shares = torch.rand(tokens, topk, generator=generator)
    for row in padded:
        x[row], selected[row], shares[row] = float("nan"), -1, 0.0
    return Problem(
        x.to(dtype).to(device),
        Routes(selected.to(device), shares.to(device)),
        build_bank(form, experts, d, width, device, seed),
        torch.randn(tokens, d, generator=generator).to(dtype).to(device) if shared else None,
    )
