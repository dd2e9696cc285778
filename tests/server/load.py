"""Many streams at a time whose clients often leave in the middle: `python -m tests.server.load --seconds 120`.

Starts a server of the shipped model, keeps `streams` requests going for `seconds`, and checks at the end that every
stream that was read to its end had one, that no request is left, that no page of the cache is in use, and that the
server is healthy. Prints one JSON object; exits with 1 if a check failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx
from tests.server.process import SPECULATION, process
from tests.server.serving import QUESTION

KEY = {"Authorization": "Bearer sesame"}


@dataclass
class Tally:
    """What came of the requests. left_*: clients that went away before the first event, or in the middle."""

    streams: int
    seconds: float
    finished: int = 0
    left_before_first: int = 0
    left_in_the_middle: int = 0
    events: int = 0
    problems: list[str] = field(default_factory=list)
    gauges_at_the_end: dict[str, float] = field(default_factory=dict)


async def load(url: str, streams: int, seconds: float, seed: int = 0) -> Tally:
    """url: of the API, /v1 included."""
    tally = Tally(streams, seconds)
    end = time.monotonic() + seconds
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(timeout=120, limits=limits, headers=KEY) as client:
        workers = [_worker(client, url, random.Random(seed * 1000 + i), end, tally) for i in range(streams)]
        await asyncio.gather(*workers)
        await _check_empty(client, url, tally)
    return tally


async def _worker(client: httpx.AsyncClient, url: str, rng: random.Random, end: float, tally: Tally) -> None:
    while time.monotonic() < end:
        path, body = _request(rng)
        leaves_after = rng.choice((None, None, None, 0, 1, 5, 20))  # events; None: stays to the end
        try:
            await asyncio.wait_for(_read(client, url + path, body, leaves_after, end, tally), 110)
        except Exception as error:
            tally.problems.append(f"{path} {body}: {error!r}")


def _request(rng: random.Random) -> tuple[str, dict[str, Any]]:
    sampling: dict[str, Any] = {
        "stream": True,
        "temperature": rng.choice((0, 0.7, 1.0)),
        "seed": rng.getrandbits(32),
        "n": rng.choice((1, 1, 1, 2)),
    }
    sampling["speculation"] = rng.choice(("auto", "auto", "off", 1))
    length = rng.choice((1, 8, 30, 120))
    if rng.random() < 0.5:
        return "/chat/completions", {
            **sampling,
            "messages": [{"role": "user", "content": QUESTION}],
            "max_tokens": length,
        }
    prompt = [40 + rng.randrange(90) for _ in range(rng.choice((1, 30, 200)))]
    return "/completions", {**sampling, "prompt": prompt, "max_tokens": length, "ignore_eos": True}


async def _read(
    client: httpx.AsyncClient, url: str, body: dict[str, Any], leaves_after: int | None, end: float, tally: Tally
) -> None:
    if leaves_after == 0:
        task = asyncio.create_task(client.post(url, json=body))
        await asyncio.sleep(0.02)
        task.cancel()
        tally.left_before_first += 1
        return
    events = 0
    last = ""
    async with client.stream("POST", url, json=body) as response:
        if response.status_code != 200:
            raise AssertionError(f"status {response.status_code}: {(await response.aread()).decode()}")
        async for line in response.aiter_lines():
            if not line:
                continue
            last = line
            events += 1
            if "error" in line and "error" in json.loads(line.removeprefix("data: ")):
                raise AssertionError(line)
            if events == leaves_after or (time.monotonic() > end + 5):
                tally.left_in_the_middle += 1
                return
    if last != "data: [DONE]":
        raise AssertionError(f"a stream ended with {last!r}")
    tally.finished += 1
    tally.events += events


async def _check_empty(client: httpx.AsyncClient, url: str, tally: Tally) -> None:
    names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    deadline = time.monotonic() + 20
    while True:
        text = (await client.get(f"{url[:-3]}/metrics")).text
        lines = [line for line in text.splitlines() if line.startswith(tuple(f"vllm:{name}{{" for name in names))]
        tally.gauges_at_the_end = {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in lines}
        if not any(tally.gauges_at_the_end.values()):
            break
        if time.monotonic() > deadline:
            tally.problems.append(f"not empty: {tally.gauges_at_the_end}")
            break
        await asyncio.sleep(0.2)
    health = await client.get(f"{url[:-3]}/health")
    if health.status_code != 200:
        tally.problems.append(health.text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with process("--speculative-config", SPECULATION, "--max-num-seqs", "16") as (_, url):
        tally = asyncio.run(load(url, options.streams, options.seconds, options.seed))
    print(json.dumps(asdict(tally), indent=1))
    sys.exit(bool(tally.problems))


if __name__ == "__main__":
    main()
