"""Candidate tiles of the hyper-connections' first launch on a GPU, and the second launch beside it, one line a tile.

    python benchmarks/mhc_tiles.py [--tokens 1 64 4096] [--repeats 8] [--compile-only]

V4-Flash's width. `columns` decides the bits of a sum, tokens and warps do not. Medians with L2 flushed before each
launch; up to 64 tokens inside a graph of repeated launches.
"""

from __future__ import annotations

import argparse
import itertools

import torch
from triton.runtime.errors import OutOfResources

from kernels import DEVICE, Timer  # type: ignore[import-not-found]
from outrider.ops.reference.mhc_site import MixWeights, Written
from outrider.ops.triton.mhc_site import SPLITS, launch_mix, mhc_site

WIDTH, ROWS = 4096, 24
COLUMNS, TOKENS_AT_ONCE, WARPS = (32, 64, 128), (16, 32, 64), (4, 8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 64, 4096])
    parser.add_argument("--columns", type=int, nargs="+", default=list(COLUMNS))
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--compile-only", action="store_true", help="fill the compiler's cache and print nothing")
    a = parser.parse_args()
    timer = Timer(a.repeats)
    fn = torch.randn(ROWS, 4 * WIDTH, device=DEVICE) / 128
    for tokens in [1] if a.compile_only else a.tokens:
        streams = torch.randn(tokens, 4, WIDTH, device=DEVICE).bfloat16()
        out = torch.empty_like(streams)
        y = torch.randn(tokens, WIDTH, device=DEVICE).bfloat16()
        post, comb = torch.rand(tokens, 4, device=DEVICE), torch.rand(tokens, 4, 4, device=DEVICE)
        partial = torch.empty(SPLITS, tokens, 32, device=DEVICE)
        weights = MixWeights(fn, torch.randn(ROWS, device=DEVICE), torch.rand(3, device=DEVICE))
        norm_weight = torch.rand(WIDTH, device=DEVICE)

        def time(launch: object, tokens: int = tokens) -> str:
            seconds = timer.graphed(launch) if tokens <= 64 else timer.medians({"mix": launch})["mix"]
            return f"{seconds * 1e6:8.1f} us"

        def both(streams=streams, y=y, post=post, comb=comb, weights=weights, norm_weight=norm_weight):  # type: ignore[no-untyped-def]
            written = Written(y, post, comb)
            return mhc_site(streams, written, weights, norm_weight, iterations=20, hc_eps=1e-6, norm_eps=1e-6)

        if not a.compile_only:
            print(f"{tokens} tokens, both launches as they ship: {time(both)}", flush=True)
        for columns, at_once, warps in itertools.product(a.columns, TOKENS_AT_ONCE, WARPS):

            def mix(  # type: ignore[no-untyped-def]
                columns=columns, at_once=at_once, warps=warps, streams=streams, out=out, y=y, post=post, comb=comb,
                partial=partial,
            ) -> None:  # fmt: skip
                launch_mix(
                    streams, out, (y, post, comb), fn, partial, write=True,
                    tokens_at_once=at_once, columns=columns, num_warps=warps,
                )  # fmt: skip

            try:
                if a.compile_only:
                    mix()
                    continue
                line = time(mix)
            except (OutOfResources, RuntimeError) as error:
                line = f"failed: {type(error).__name__} {str(error)[:100]}"
            print(
                f"{tokens} tokens: mix {columns:3} columns, {at_once:2} tokens at once, {warps} warps {line}",
                flush=True,
            )


if __name__ == "__main__":
    main()
