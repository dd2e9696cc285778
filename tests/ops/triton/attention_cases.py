"""Ragged batches over paged caches, whose pages are shuffled and whose every unused row is NaN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from outrider.ops.kv_rows import KvRows, empty_fp8_rows, write_rows
from outrider.ops.reference.paged_attention import EntryKeys, PagedRows, Queries
from outrider.ops.reference.rope import Rotation, inverse_frequencies, rotation
from outrider.platforms.architectures import Fp8Dialect

PAGE_TOKENS = 128
WINDOW = 128
Device = torch.device | str


@dataclass(frozen=True)
class Shape:
    """What the model fixes. `dialect` None: plain rows of `dtype`; topk None: a layer attends all entries."""

    heads: int
    head_dim: int
    rope: int
    ratio: int
    topk: int | None = None
    dtype: torch.dtype = torch.bfloat16
    dialect: Fp8Dialect | None = None
    block: int = 16
    window: int = WINDOW

    @property
    def nope(self) -> int:
        return self.head_dim - self.rope


@dataclass(frozen=True)
class Problem:
    """Arguments of `paged_sparse_attention`."""

    q: Tensor
    queries: Queries
    window: PagedRows
    first_positions: Tensor
    window_size: int
    entries: EntryKeys | None
    sink: Tensor
    scale: float
    max_seq_len: int
    rotation: Rotation | None

    def arguments(self) -> tuple[object, ...]:
        return tuple(vars(self).values())

    def select(self, rows: Tensor) -> Problem:
        """The same problem for some of its queries, in any order."""
        entries = self.entries
        if entries is not None and entries.topk_indices is not None:
            entries = entries._replace(topk_indices=entries.topk_indices[rows])
        return replace(
            self,
            q=self.q[rows],
            queries=Queries(self.queries.positions[rows], self.queries.requests[rows]),
            entries=entries,
            rotation=None if self.rotation is None else self.rotation.select(rows),
        )


def build(
    shape: Shape,
    requests: Sequence[tuple[int, int]],
    device: Device,
    *,
    padded_rows: int = 0,
    holes: float = 0.0,
    seed: int = 0,
) -> Problem:
    """requests: (seq_len, query_len) each. `holes`: share of top-k columns that are -1 or out of range."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator)

    positions = [p for seq_len, query_len in requests for p in range(seq_len - query_len, seq_len)]
    owners = [r for r, (_, query_len) in enumerate(requests) for _ in range(query_len)]
    positions += [-1] * padded_rows
    owners += [-1] * padded_rows
    seq_lens = [seq_len for seq_len, _ in requests]
    window = paged(shape, seq_lens, 1, PAGE_TOKENS, generator, device)
    entries = None
    if shape.ratio:
        rows = paged(
            shape, [n // shape.ratio for n in seq_lens], shape.ratio, PAGE_TOKENS // shape.ratio, generator, device
        )
        chosen = None
        if shape.topk is not None:
            chosen = torch.full((len(positions), shape.topk), 2**31 - 1, dtype=torch.int32)  # unused columns: anything
            for row, p in enumerate(positions):
                visible = (p + 1) // shape.ratio
                count = min(visible, shape.topk)
                picked = torch.randperm(visible, generator=generator)[:count].sort().values.to(torch.int32)
                wrong = torch.tensor([-1, visible, 10**6, -(2**31)], dtype=torch.int32)
                bad = torch.rand(count, generator=generator) < holes
                picked[bad] = wrong[torch.randint(4, (int(bad.sum()),), generator=generator)]
                chosen[row, :count] = picked
            chosen = chosen.to(device)
        entries = EntryKeys(rows, shape.ratio, chosen)
    positions_tensor = torch.tensor(positions, dtype=torch.int32)
    angles = rotation(positions_tensor.clamp_min(0), inverse_frequencies(shape.rope, 10000.0))
    return Problem(
        q=normal(len(positions), shape.heads, shape.head_dim).to(shape.dtype).to(device),
        queries=Queries(positions_tensor.to(device), torch.tensor(owners, dtype=torch.int32, device=device)),
        window=window,
        first_positions=torch.zeros(len(requests), dtype=torch.int32, device=device),
        window_size=shape.window,
        entries=entries,
        sink=normal(shape.heads).to(device),
        scale=shape.head_dim**-0.5,
        max_seq_len=max(seq_lens),
        rotation=Rotation(angles.cos.to(device), angles.sin.to(device)),
    )


def paged(
    shape: Shape, counts: Sequence[int], ratio: int, per_page: int, generator: torch.Generator, device: Device
) -> PagedRows:
    """counts[r] rows of each request on shuffled pages; page 0 and one more belong to nobody, and rows in use by nobody
    are NaN. Tables are as wide as the longest request's, the others' ends -1."""
    pages = [-(-count // per_page) for count in counts]
    order = (1 + torch.randperm(sum(pages) + 1, generator=generator)).tolist()
    table = torch.full((len(counts), max([1, *pages])), -1, dtype=torch.int32)
    slots = (sum(pages) + 2) * per_page
    rows = empty_rows(shape, slots, device)
    for request, count in enumerate(counts):
        mine = [order.pop() for _ in range(pages[request])]
        table[request, : len(mine)] = torch.tensor(mine, dtype=torch.int32)
        index = torch.arange(count)
        where = table[request, index // per_page].long() * per_page + index % per_page
        values = torch.randn(count, shape.head_dim, generator=generator).to(shape.dtype).float()
        write_rows(rows, where.to(device), values.to(device), nope=shape.nope, block=shape.block, round_trip=False)
    return PagedRows(rows, table.to(device), per_page)


def empty_rows(shape: Shape, slots: int, device: Device) -> KvRows:
    """Rows that are NaN."""
    if shape.dialect is None:
        return KvRows(torch.full((slots, shape.head_dim), float("nan"), dtype=shape.dtype, device=device))
    rows = empty_fp8_rows(slots, shape.nope, shape.rope, shape.block, shape.dialect, device)
    assert rows.scales is not None
    rows.data.fill_(0xFF)
    rows.scales.fill_(0xFF)
    return rows
