"""Bytes of files onto a device, through two host buffers: one is copied while the other is filled."""

from __future__ import annotations

from collections.abc import Iterator
from io import RawIOBase

import torch
from torch import Tensor

STAGING_BYTES = 64 << 20


class Staging:
    """Host memory of a load, whatever the size of a checkpoint: two buffers of `size` bytes (a multiple of 8).

    For a GPU they are page-locked, and a copy runs while the next piece is read.
    """

    def __init__(self, device: torch.device, size: int = STAGING_BYTES) -> None:
        self.device = device
        self._overlapped = device.type == "cuda"
        self._buffers = [torch.empty(size, dtype=torch.uint8, pin_memory=self._overlapped) for _ in range(2)]
        self._copied: list[torch.cuda.Event | None] = [None, None]
        self._turn = 0

    def fill(self, target: Tensor, file: RawIOBase, begin: int) -> Iterator[Tensor]:
        """Copies file[begin : begin + len(target)] to target ([N] uint8 on the device); yields each piece on the host,
        valid until the next one. EOFError when the file ends early."""
        file.seek(begin)
        size = self._buffers[0].numel()
        for start in range(0, target.numel(), size):
            piece = self._next_buffer()[: min(size, target.numel() - start)]
            view, at = piece.numpy().data, 0
            while at < len(view):  # one raw read may return less than asked
                count = file.readinto(view[at:])
                if not count:
                    raise EOFError
                at += count
            target[start : start + len(view)].copy_(piece, non_blocking=True)
            if self._overlapped:
                event = torch.cuda.Event()
                event.record(torch.cuda.current_stream(self.device))
                self._copied[self._turn] = event
            yield piece

    def _next_buffer(self) -> Tensor:
        self._turn ^= 1
        event = self._copied[self._turn]
        if event is not None:
            event.synchronize()
        return self._buffers[self._turn]
