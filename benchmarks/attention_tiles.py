"""Candidate tiles of sparse attention on a GPU: prefill and a decode step of 64 requests, one line a tile.

    python benchmarks/attention_tiles.py [--only bf16 fp8] [--queries 4096] [--repeats 8] [--compile-only]

Tiles decide the bits of a result, so an architecture ships one for a kind of cache: these are the candidates. Times are
medians with L2 flushed before each launch; decode also inside a graph of repeated launches.
"""

from __future__ import annotations

import argparse
from typing import Any

from triton.runtime.errors import OutOfResources

from kernels import Timer, attention  # type: ignore[import-not-found]
from outrider.platforms.tiles import AttentionTiles

CANDIDATES = {
    "bf16": [
        (64, 64, 640, 8, 2),
        (64, 32, 640, 8, 3),
        (64, 32, 640, 8, 2),
        (64, 64, 640, 8, 1),
        (32, 64, 640, 8, 1),
        (64, 64, 320, 8, 2),
        (64, 64, 128, 8, 2),
    ],
    "fp8": [
        (64, 32, 640, 8, 2),
        (64, 64, 640, 8, 1),
        (64, 16, 640, 8, 2),
        (64, 32, 640, 8, 1),
        (16, 32, 640, 8, 1),
        (64, 64, 320, 8, 1),
        (64, 64, 128, 8, 1),
    ],
}


def time_tiles(timer: Timer, form: str, tiles: AttentionTiles, queries: int) -> str:
    fp8 = form == "fp8"
    alone = timer.graphed(attention(1, 8192, 1, 512, fp8=fp8, tiles=tiles)[0])
    launch, _, flop = attention(1, 16384, queries, 512, fp8=fp8, tiles=tiles)
    prefill = timer.medians({"prefill": launch})["prefill"]
    launch, moved, _ = attention(64, 8192, 1, 512, fp8=fp8, tiles=tiles)
    decode, graphed = timer.medians({"decode": launch})["decode"], timer.graphed(launch)
    return (
        f"prefill {queries} {prefill * 1e6:8.1f} us {flop / prefill / 1e12:6.1f} TFLOP/s   decode 64 x 1 "
        f"{decode * 1e6:7.1f} us, in a graph {graphed * 1e6:7.1f} us {moved / graphed / 1e9:6.0f} GB/s, "
        f"1 x 1 in a graph {alone * 1e6:6.1f} us"
    )


def compile_tiles(form: str, tiles: AttentionTiles) -> None:
    """Fills the compiler's cache on disk: the same kernel that is timed, on the smallest batch."""
    launch: Any = attention(1, 8192, 1, 512, fp8=form == "fp8", tiles=tiles)[0]
    launch()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CANDIDATES, default=list(CANDIDATES))
    parser.add_argument("--queries", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--compile-only", action="store_true", help="fill the compiler's cache and print nothing")
    a = parser.parse_args()
    timer = Timer(a.repeats)
    for form in a.only:
        for candidate in CANDIDATES[form]:
            tiles = AttentionTiles(*candidate)
            try:
                if a.compile_only:
                    compile_tiles(form, tiles)
                    continue
                line = time_tiles(timer, form, tiles, a.queries)
            except (OutOfResources, RuntimeError) as error:  # the next candidate may still run
                line = f"failed: {type(error).__name__} {str(error)[:120]}"
            shape = f"{tiles.head_tile:2} heads x {tiles.key_tile:3} of {tiles.split_keys} keys"
            print(f"{form} {shape}, {tiles.num_warps} warps, {tiles.num_stages} stages: {line}", flush=True)


if __name__ == "__main__":
    main()
