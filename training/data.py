"""Token rows for training: sources mixed by weight, held on the training device.

Files: `train_<source>.npy` and `heldout_<source>.npy`, uint16, documents from BOS to EOS one after another. Synthetic
problems arrive while training runs (`SyntheticStream`): a background process writes chunks, the mix picks them up.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

SYNTHETIC = "synthetic"


class Source:
    """One source's tokens on the device, with the places where documents begin."""

    def __init__(self, tokens: np.ndarray, device: str, bos: int) -> None:
        self.device, self.bos = device, bos
        self.chunks: list[Tensor] = []
        self.starts: list[np.ndarray] = []
        self.append(tokens)

    def append(self, tokens: np.ndarray) -> None:
        self.chunks.append(torch.from_numpy(tokens.astype(np.int32)).to(self.device))
        self.starts.append(np.flatnonzero(tokens == self.bos))

    def __len__(self) -> int:
        return sum(c.numel() for c in self.chunks)

    def rows(self, count: int, length: int, rng: np.random.Generator, at_bos: float) -> Tensor:
        """[count, length] consecutive tokens; a share `at_bos` of the rows begins with a document."""
        sizes = np.array([c.numel() for c in self.chunks], dtype=np.float64)
        out = []
        for chunk, n in enumerate(rng.multinomial(count, sizes / sizes.sum())):
            if n == 0:
                continue
            tokens, starts = self.chunks[chunk], self.starts[chunk]
            last = tokens.numel() - length
            if last < 0:
                raise ValueError(f"a source of {tokens.numel()} tokens cannot give rows of {length}")
            offset = rng.integers(0, last + 1, n)
            if len(starts):
                begin = np.minimum(starts[rng.integers(0, len(starts), n)], last)
                offset = np.where(rng.random(n) < at_bos, begin, offset)
            index = torch.from_numpy(offset).to(self.device)[:, None] + torch.arange(length, device=self.device)
            out.append(tokens[index])
        return torch.cat(out).long()


class Mix:
    """Draws batches from weighted sources."""

    def __init__(self, sources: dict[str, Source], weights: dict[str, float], seed: int, at_bos: float = 0.5) -> None:
        self.sources, self.weights, self.at_bos = sources, weights, at_bos
        self.rng = np.random.default_rng(seed)
        self.drawn = dict.fromkeys(weights, 0)

    def batch(self, rows: int, length: int) -> Tensor:
        """[rows, length] int64, shuffled across sources."""
        share = np.array(list(self.weights.values()))
        counts = self.rng.multinomial(rows, share / share.sum())
        parts = []
        for name, count in zip(self.weights, counts, strict=True):
            if count:
                at_bos = 0.9 if name == SYNTHETIC else self.at_bos
                parts.append(self.sources[name].rows(int(count), length, self.rng, at_bos))
                self.drawn[name] += int(count) * length
        ids = torch.cat(parts)
        return ids[torch.from_numpy(self.rng.permutation(rows)).to(ids.device)]


class SyntheticStream:
    """Chunks of synthetic tokens, written by a child process while training goes on."""

    def __init__(self, folder: Path, tokenizer: Path, total: int, chunk: int, processes: int, seed: int) -> None:
        self.folder, self.taken = folder, set[Path]()
        folder.mkdir(parents=True, exist_ok=True)
        self.child: subprocess.Popen[bytes] | None = None
        if not (folder / "done").exists():
            arguments = [str(v) for v in (folder, tokenizer, total, chunk, processes, seed)]
            self.child = subprocess.Popen([sys.executable, "-m", "training.data", *arguments])

    def new_chunks(self) -> list[np.ndarray]:
        """Chunks finished since the last call."""
        paths = sorted(p for p in self.folder.glob("chunk_*.npy") if p not in self.taken)
        self.taken.update(paths)
        return [np.load(p) for p in paths]

    def wait_first(self, seconds: float) -> list[np.ndarray]:
        """Blocks until there is at least one chunk."""
        end = time.monotonic() + seconds
        while not (chunks := self.new_chunks()):
            if time.monotonic() > end or (self.child is not None and self.child.poll() not in (None, 0)):
                raise RuntimeError("no synthetic tokens arrived: see the child process's error above")
            time.sleep(0.5)
        return chunks

    def stop(self) -> None:
        if self.child is not None and self.child.poll() is None:
            self.child.terminate()


def write_chunks(folder: Path, tokenizer: Path, total: int, chunk: int, processes: int, seed: int) -> None:
    """Child process: chunks of `chunk` tokens up to `total`, each from its own seed; existing chunks are kept."""
    from training.problems_stream import synthetic_tokens

    written, number = 0, 0
    while written < total:
        path = folder / f"chunk_{number:04d}.npy"
        size = chunk if number else min(chunk, 1_000_000)  # a small first one, so that training can begin
        if not path.exists():
            tokens = synthetic_tokens(tokenizer, size, seed + number, processes)
            partial = path.with_suffix(".partial")
            with partial.open("wb") as f:
                np.save(f, np.asarray(tokens, dtype=np.uint16))
            partial.rename(path)
        written, number = written + size, number + 1
    (folder / "done").touch()


def load_sources(folder: Path, prefix: str, device: str, bos: int) -> dict[str, Source]:
    """All `<prefix>_<source>.npy` of a folder."""
    paths = sorted(folder.glob(f"{prefix}_*.npy"))
    return {p.stem.removeprefix(prefix + "_"): Source(np.load(p), device, bos) for p in paths}


if __name__ == "__main__":
    where, tok, *numbers = sys.argv[1:]
    write_chunks(Path(where), Path(tok), *(int(v) for v in numbers))
