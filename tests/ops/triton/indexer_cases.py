"""Ragged batches over paged indexer keys, whose pages are shuffled and whose every unused row is NaN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from outrider.ops.formats import round_trip_fp4, round_trip_fp8
from outrider.ops.index_rows import empty_fp4_rows, write_index_rows
from outrider.ops.kv_rows import KvRows, empty_fp8_rows
from outrider.ops.reference.paged_attention import PagedRows, Queries
from outrider.platforms.architectures import Fp8Dialect

FP4_BLOCK = 32
Device = torch.device | str


@dataclass(frozen=True)
class Shape:
    """What the model fixes. form: "float32", "bfloat16", "ocp", "fnuz" or "fp4"."""

    heads: int
    head_dim: int
    ratio: int = 4
    page_tokens: int = 128
    form: str = "bfloat16"

    @property
    def per_page(self) -> int:
        return self.page_tokens // self.ratio

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32 if self.form == "float32" else torch.bfloat16


@dataclass(frozen=True)
class Problem:
    q: Tensor
    head_weights: Tensor
    queries: Queries
    keys: PagedRows
    ratio: int

    def select(self, rows: Tensor) -> Problem:
        """The same problem for some of its queries, in any order."""
        queries = Queries(self.queries.positions[rows], self.queries.requests[rows])
        return replace(self, q=self.q[rows], head_weights=self.head_weights[rows], queries=queries)

    def on_cpu(self) -> Problem:
        rows = KvRows(*(x.cpu() if isinstance(x, Tensor) else x for x in self.keys.rows))  # type: ignore[arg-type]
        keys = PagedRows(rows, self.keys.table.cpu(), self.keys.per_page)
        queries = Queries(self.queries.positions.cpu(), self.queries.requests.cpu())
        return Problem(self.q.cpu(), self.head_weights.cpu(), queries, keys, self.ratio)

    def visible(self) -> Tensor:
        """[T] entries that each query sees."""
        positions, requests = self.queries.positions.cpu(), self.queries.requests.cpu()
        return torch.where((positions >= 0) & (requests >= 0), (positions + 1) // self.ratio, 0)


def empty_rows(shape: Shape, slots: int, device: Device) -> KvRows:
    """Rows that are NaN."""
    if shape.form in ("float32", "bfloat16"):
        return KvRows(torch.full((slots, shape.head_dim), float("nan"), dtype=shape.dtype, device=device))
    if shape.form == "fp4":
        rows = empty_fp4_rows(slots, shape.head_dim, device)
    else:
        dialect = Fp8Dialect.OCP if shape.form == "ocp" else Fp8Dialect.FNUZ
        rows = empty_fp8_rows(slots, shape.head_dim, 0, shape.head_dim, dialect, device)
    assert rows.scales is not None
    rows.scales.fill_(0xFF)
    return rows


def rounded(x: Tensor, form: str) -> Tensor:
    """As queries and keys of this form are."""
    if form == "fp4":
        return round_trip_fp4(x, FP4_BLOCK)
    return round_trip_fp8(x, x.shape[-1]) if form in ("ocp", "fnuz") else x


def build(
    shape: Shape, requests: Sequence[tuple[int, int]], device: Device, *, padded_rows: int = 0, seed: int = 0
) -> Problem:
    """requests: (seq_len, query_len) each. Tables are as wide as the longest request's, the others' ends -1."""
    generator = torch.Generator().manual_seed(seed)
    positions = [p for seq_len, query_len in requests for p in range(seq_len - query_len, seq_len)]
    owners = [r for r, (_, query_len) in enumerate(requests) for _ in range(query_len)]
    positions += [-1] * padded_rows
    owners += [-1] * padded_rows
    pages = [-(-(seq_len // shape.ratio) // shape.per_page) for seq_len, _ in requests]
    order = (1 + torch.randperm(sum(pages) + 1, generator=generator)).tolist()
    table = torch.full((len(requests), max([1, *pages])), -1, dtype=torch.int32)
    rows = empty_rows(shape, (sum(pages) + 2) * shape.per_page, device)
    for request, (seq_len, _) in enumerate(requests):
        table[request, : pages[request]] = torch.tensor([order.pop() for _ in range(pages[request])], dtype=torch.int32)
        index = torch.arange(seq_len // shape.ratio)
        slots = table[request, index // shape.per_page].long() * shape.per_page + index % shape.per_page
        values = torch.randn(index.numel(), shape.head_dim, generator=generator)
        write_index_rows(rows, slots.to(device), values.to(device))
    q = torch.randn(len(positions), shape.heads, shape.head_dim, generator=generator)
    return Problem(
        q=rounded(q, shape.form).to(shape.dtype).to(device),
        head_weights=torch.randn(len(positions), shape.heads, generator=generator).to(device),
        queries=Queries(
            torch.tensor(positions, dtype=torch.int32, device=device),
            torch.tensor(owners, dtype=torch.int32, device=device),
        ),
        keys=PagedRows(rows, table.to(device), shape.per_page),
        ratio=shape.ratio,
    )
