"""The client of `outrider bench serve` against another one: the `openai` package, with its own view of the clock.

    python benchmarks/client_crosscheck.py [--model M] [--concurrency 1] [--rounds 32] [--json FILE]

One server, the same requests, both clients in turn, `concurrency` requests a round (short rounds, so that both meet the
same machine). Printed: medians over rounds of output tokens/s, time to the first
token, time per output token and time of a whole answer, and the median of their ratios (openai over ours) round by
round; exit code 1 if one is more than 5 % away from 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from openai import AsyncOpenAI

from outrider.bench import http_client
from outrider.bench.environment import environment_report, source_commit
from outrider.bench.prompts import BenchPrompt, built_in, from_texts
from outrider.bench.server_process import server_process
from outrider.bench.window import Load, Window

MOST = 0.05


async def openai_figures(url: str, model: str, prompts: list[BenchPrompt], concurrency: int) -> Mapping[str, float]:
    places = asyncio.Semaphore(concurrency)
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:

        async def one(prompt: BenchPrompt) -> tuple[float, float, float, int]:
            async with places:
                sent = time.perf_counter()
                stream = await client.chat.completions.create(
                    model=model,
                    messages=[{"role": "user", "content": str(prompt.content)}],
                    max_tokens=prompt.max_tokens,
                    temperature=0,
                    stream=True,
                    stream_options={"include_usage": True},
                )
                arrivals, tokens = [], 0
                async for chunk in stream:
                    if any(choice.delta.content or choice.finish_reason for choice in chunk.choices):
                        arrivals.append(time.perf_counter())
                    if chunk.usage is not None:
                        tokens = chunk.usage.completion_tokens
                return sent, arrivals[0], arrivals[-1], tokens

        await client.models.list()  # opens the connection, as our client's look at the metrics does
        start = time.perf_counter()
        found = await asyncio.gather(*(one(prompt) for prompt in prompts))
    return {
        "output_tokens_per_second": sum(tokens for *_, tokens in found)
        / (max(last for _, _, last, _ in found) - start),
        "time_to_first_token": median(first - sent for sent, first, _, _ in found),
        "time_per_output_token": median((last - first) / (tokens - 1) for _, first, last, tokens in found),
        "end_to_end": median(last - sent for sent, _, last, _ in found),
    }


def our_figures(window: Window) -> Mapping[str, float]:
    return {
        "output_tokens_per_second": window.output_tokens_per_second,
        "time_to_first_token": median(r.time_to_first_token for r in window.requests),
        "time_per_output_token": median(r.time_per_output_token or 0.0 for r in window.requests),
        "end_to_end": median(r.end_to_end for r in window.requests),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=None)
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=32)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--json", type=Path, default=None)
    a = parser.parse_args()
    every = from_texts(built_in("mixed"), a.rounds * a.concurrency, a.max_tokens)
    load = Load(a.concurrency, concurrency=a.concurrency)
    speculation = '{"method": "mtp", "num_speculative_tokens": 2}'
    options = [*([a.model] if a.model else []), "--no-enable-prefix-caching", "--speculative-config", speculation]
    ours, theirs = [], []
    with server_process(options) as url:
        model = http_client.served_model(url, None)
        target = http_client.Target(url, model, None, chat=True, fields={"temperature": 0}, timeout=600)
        for number in range(-2, a.rounds):  # the first two warm up
            first = max(number, 0) * a.concurrency
            prompts = every[first : first + a.concurrency]
            for client in ("ours", "openai") if number % 2 else ("openai", "ours"):
                if client == "ours":
                    ours.append(our_figures(asyncio.run(http_client.run_window(target, prompts, load, seed=0))))
                else:
                    theirs.append(asyncio.run(openai_figures(url, model, prompts, a.concurrency)))
    report = {
        name: {
            "ours": median(each[name] for each in ours[2:]),
            "openai": median(each[name] for each in theirs[2:]),
            "ratio": median(b[name] / a[name] for a, b in zip(ours[2:], theirs[2:], strict=True)),
        }
        for name in ours[0]
    }
    for name, row in report.items():
        print(f"{name:26s} ours {row['ours']:9.4f}   openai {row['openai']:9.4f}   ratio {row['ratio']:.3f}")
    settings = {"concurrency": a.concurrency, "rounds": a.rounds, "max_tokens": a.max_tokens}
    if a.json is not None:
        full = {"figures": report, **settings, "commit": source_commit(), **environment_report()}
        a.json.write_text(json.dumps(full, indent=1) + "\n")
    return int(any(abs(row["ratio"] - 1) > MOST for row in report.values()))


if __name__ == "__main__":
    sys.exit(main())
