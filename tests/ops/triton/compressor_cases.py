"""Sequences compressed in steps of any shape, on shuffled pages of caches whose every unused row is NaN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from outrider.ops.index_rows import empty_fp4_rows
from outrider.ops.kv_rows import KvRows, empty_fp8_rows
from outrider.ops.reference.paged_attention import PagedRows, Queries, paged_slots
from outrider.ops.reference.rope import Rotation, inverse_frequencies, rotation
from outrider.platforms.architectures import Fp8Dialect

EPS = 1e-6
Device = torch.device | str
Operation = Callable[..., None]


@dataclass(frozen=True)
class Shape:
    """What the model fixes. `dialect` None: plain entries of `dtype`, rounded as FP8 would with `round_trip`. `index`:
    the indexer's compressor, whose keys are FP8 in `dialect`, FP4 or plain."""

    ratio: int
    head_dim: int = 32
    rope: int = 16
    block: int = 16
    dtype: torch.dtype = torch.bfloat16
    dialect: Fp8Dialect | None = None
    round_trip: bool = True
    page_tokens: int = 128
    index: Literal["fp4", "fp8", "plain"] | None = None

    @property
    def overlap(self) -> bool:
        return self.ratio == 4

    @property
    def width(self) -> int:
        """Of the values, or of the gates, of a token."""
        return (2 if self.overlap else 1) * self.head_dim


@dataclass(frozen=True)
class Caches:
    partial: PagedRows
    entries: PagedRows


@dataclass(frozen=True)
class Piece:
    """Tokens start .. start + count - 1 of a request. `drafts`: rows that are not the request's (another seed's)."""

    request: int
    start: int
    count: int
    drafts: int = 0


class Sequences:
    """Projections of requests of these lengths; caches are made anew for every run."""

    def __init__(self, shape: Shape, lengths: Sequence[int], seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.shape, self.lengths = shape, lengths
        self.rows = [self._projected(length, generator) for length in lengths]
        self.drafts = [self._projected(length, generator) for length in lengths]
        self.ape = torch.randn(shape.ratio, shape.width, generator=generator)
        self.norm_weight = torch.rand(shape.head_dim, generator=generator) + 0.5
        self._order = torch.randperm(4 + sum(self._pages), generator=generator).tolist()
        self._freqs = inverse_frequencies(shape.rope, 10000.0)

    def _projected(self, length: int, generator: torch.Generator) -> Tensor:
        x = torch.randn(length, 2 * self.shape.width, generator=generator)
        x[:, self.shape.width :] *= 4  # gates: some windows are decided by one token
        return x

    @property
    def _pages(self) -> list[int]:
        return [-(-length // self.shape.page_tokens) for length in self.lengths]

    def caches(self, device: Device) -> Caches:
        """NaN everywhere; the pages of partial rows and of entries lie in different orders."""
        shape, pages = self.shape, 4 + sum(self._pages)
        tables = []
        for order in (self._order, self._order[::-1]):
            free = list(order)
            table = torch.full((len(self.lengths), max(self._pages)), -1, dtype=torch.int32)
            for request, count in enumerate(self._pages):
                table[request, :count] = torch.tensor([free.pop() for _ in range(count)], dtype=torch.int32)
            tables.append(table.to(device))
        partial = torch.full((pages * shape.page_tokens, 2 * shape.width), torch.nan, device=device)
        per_page = shape.page_tokens // shape.ratio
        return Caches(
            PagedRows(KvRows(partial), tables[0], shape.page_tokens),
            PagedRows(self._empty_entries(pages * per_page, device), tables[1], per_page),
        )

    def _empty_entries(self, slots: int, device: Device) -> KvRows:
        shape = self.shape
        if shape.index == "fp4":
            rows = empty_fp4_rows(slots, shape.head_dim, device)
        elif shape.dialect is None:
            return KvRows(torch.full((slots, shape.head_dim), torch.nan, dtype=shape.dtype, device=device))
        elif shape.index == "fp8":
            rows = empty_fp8_rows(slots, shape.head_dim, 0, shape.head_dim, shape.dialect, device)
        else:
            rows = empty_fp8_rows(slots, shape.head_dim - shape.rope, shape.rope, shape.block, shape.dialect, device)
        assert rows.scales is not None
        rows.data.fill_(0xFF)
        rows.scales.fill_(0xFF)
        return rows

    def step(
        self, operation: Operation, caches: Caches, pieces: Sequence[Piece], *, padding: Sequence[tuple[int, int]] = ()
    ) -> None:
        """One call for these pieces, then rows of padding: (position, request) each."""
        rows = [self._piece_rows(piece) for piece in pieces]
        where = [(p, piece.request) for piece in pieces for p in range(piece.start, piece.start + piece.count)]
        rows.append(torch.full((len(padding), 2 * self.shape.width), torch.nan))
        self.call(operation, caches, torch.cat(rows), [*where, *padding])

    def _piece_rows(self, piece: Piece) -> Tensor:
        end = piece.start + piece.count
        first_draft = end - piece.drafts
        return torch.cat(
            [self.rows[piece.request][piece.start : first_draft], self.drafts[piece.request][first_draft:end]]
        )

    def call(
        self, operation: Operation, caches: Caches, rows: Tensor, where: Sequence[tuple[int, int]], **changes: object
    ) -> None:
        shape, device = self.shape, caches.partial.table.device
        positions, requests = torch.tensor(list(where), dtype=torch.int32).reshape(-1, 2).unbind(1)
        angles = rotation((positions + 1 - shape.ratio).clamp_min(0), self._freqs)
        # no entry is rotated by the angles of a row that closes none
        closes = ((positions + 1) % shape.ratio == 0)[:, None]
        angles = Rotation(*(torch.where(closes, x, torch.nan).to(device) for x in angles))
        arguments: dict[str, object] = {
            "values_gates": rows.to(device),
            "ape": self.ape.to(device),
            "norm_weight": self.norm_weight.to(device),
            "queries": Queries(positions.contiguous().to(device), requests.contiguous().to(device)),
            "rotation": angles,
            "partial": caches.partial,
            "ratio": shape.ratio,
            "eps": EPS,
        }
        if shape.index:
            arguments["keys"] = caches.entries
        else:
            arguments |= {"entries": caches.entries, "block": shape.block, "round_trip": shape.round_trip}
        operation(**(arguments | changes))

    def exact(self, request: int) -> Tensor:
        """Entries of a whole request in float64, straight from the formula of spec 2.5: [entries, D], not rounded."""
        shape = self.shape
        a, gates = self.rows[request].double().chunk(2, dim=-1)
        z = gates + self.ape.double()[torch.arange(len(a)) % shape.ratio]
        found = []
        for w in range(len(a) // shape.ratio):
            own = slice(shape.ratio * w, shape.ratio * (w + 1))
            values, weights = a[own, -shape.head_dim :], z[own, -shape.head_dim :]
            if shape.overlap and w > 0:
                before = slice(own.start - shape.ratio, own.start)
                values = torch.cat([a[before, : shape.head_dim], values])
                weights = torch.cat([z[before, : shape.head_dim], weights])
            e = (weights.softmax(0) * values).sum(0)
            e = e / (e.square().mean() + EPS).sqrt() * self.norm_weight.double()
            angle = shape.ratio * w * self._freqs.double()
            tail = torch.view_as_complex(e[-shape.rope :].reshape(-1, 2).contiguous())
            turned = torch.view_as_real(tail * torch.polar(torch.ones_like(angle), angle)).flatten()
            found.append(torch.cat([e[: -shape.rope], turned]))
        return torch.stack(found) if found else torch.empty(0, shape.head_dim, dtype=torch.float64)


def entry_slots(caches: Caches, request: int, count: int) -> Tensor:
    """Slots of a request's first entries, on the host."""
    table = caches.entries._replace(table=caches.entries.table.cpu())
    return paged_slots(table, torch.tensor([request]), torch.arange(count))


def entry_bits(caches: Caches, request: int, count: int) -> Tensor:
    """The bytes of a request's first entries, scales included: [count, bytes]."""
    slots = entry_slots(caches, request, count)
    parts = [caches.entries.rows.data.cpu()[slots].contiguous().view(torch.uint8)]
    if caches.entries.rows.scales is not None:
        parts.append(caches.entries.rows.scales.cpu()[slots])
    return torch.cat(parts, dim=-1)


def all_bits(caches: Caches) -> Tensor:
    """Every byte of both caches."""
    rows = caches.entries.rows
    parts = [caches.partial.rows.data, rows.data, *([] if rows.scales is None else [rows.scales])]
    return torch.cat([x.cpu().contiguous().view(torch.uint8).flatten() for x in parts])
