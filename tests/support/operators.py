"""Many stores that send one operation at once, and again after their connections were cut: run as a program.

Arguments: the URL of a proxy, how many stores, and the id of the operation. It prints what each of them was answered.
"""

from __future__ import annotations

import asyncio
import json
import sys

from asgi_ratelimit.counts.process_counts import Counts
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import TokenBucket
from asgi_ratelimit.stores import RedisStore

QUOTA = TokenBucket(100, 86_400)  # a unit comes back in a quarter of an hour


async def main(url: str, stores: str, operation: str) -> None:
    """Ten takes of each store, in the middle of which somebody may cut the lines."""
    limiters = [Limiter(QUOTA, store=RedisStore(url, timeout=60)) for _ in range(int(stores))]
    Counts.is_needed = False  # type: ignore[assignment, method-assign]  # so that all commands are those of operations
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    answers = []
    for _ in range(10):
        answers += await asyncio.gather(*[limiter.rate_limit("key", operation=operation) for limiter in limiters])
        await asyncio.sleep(0.05)  # ten of these outlast the pause that an open breaker makes
    await asyncio.gather(*[limiter.aclose() for limiter in limiters])
    print(json.dumps([(each.allowed, each.degraded, each.remaining, each.ready_at) for each in answers]))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
