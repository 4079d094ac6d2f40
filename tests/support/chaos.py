"""A process that takes, and settles some of it, while its line to Redis flaps: run as a program.

Arguments: the URL of its proxy, its number, how many processes there are, how many keys, the kind of quota, and how
many takes it sends in a second. It stops at the first line of its input, waits until Redis answers and its ledger is
repaid, and prints what it has admitted in all, by key.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter

from asgi_ratelimit import RedisStore
from asgi_ratelimit.decision import Decision
from asgi_ratelimit.limiter.limiter import Limiter
from asgi_ratelimit.quotas import FixedWindow, RollingWindow, TokenBucket

LIMIT = 50
FOREVER = 400 * 86_400  # nothing comes back in the time of a test
KINDS = {"bucket": TokenBucket, "fixed": FixedWindow, "rolling": RollingWindow}
QUOTAS = {name: kind(LIMIT, FOREVER) for name, kind in KINDS.items()}
CALLERS = 8
TIMEOUT = 0.25
BACK_WITHIN = 30


class Process:
    """One of ``count`` processes that share a quota of 50 for each key."""

    def __init__(self, url: str, number: int, count: int, keys: int, kind: str, rate: float) -> None:
        self.admitted: Counter[str] = Counter()
        self.degraded = 0
        self._store = RedisStore(url, timeout=TIMEOUT, replicas=count)
        self._limiter = Limiter(QUOTAS[kind], store=self._store)
        self._chance = random.Random(number)
        self._number, self._keys, self._pause = number, keys, CALLERS / rate
        self._taken = 0
        self._unclear: list[tuple[str, str]] = []
        self._refunds = kind == "fixed"  # the others give less back where many can be settled, or above the limit
        self._stopped = False

    async def run(self) -> None:
        """Take until stopped, then see that all is repaid."""
        async with asyncio.TaskGroup() as group:
            for _ in range(CALLERS):
                group.create_task(self._take_again_and_again())
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
            self._stopped = True
        await self._until_back()
        for key, operation in self._unclear:  # Redis may have carried these out, although this process refused them
            self._count(key, await self._limiter.rate_limit(key, operation=operation))
        await self._limiter.aclose()

    async def _until_back(self) -> None:
        for _ in range(BACK_WITHIN * 20):
            if not (await self._limiter.rate_limit(f"probe {self._number}", 0.001)).degraded:
                return
            await asyncio.sleep(0.05)
        raise TimeoutError("Redis does not come back")

    async def _take_again_and_again(self) -> None:
        while not self._stopped:
            key, operation = f"key-{self._chance.randrange(self._keys)}", f"{self._number} {self._taken}"
            self._taken += 1
            decision = await self._limiter.rate_limit(key, operation=operation)
            self._count(key, decision)
            self.degraded += decision.degraded
            if decision.degraded and not decision.allowed:
                self._unclear.append((key, operation))
            await asyncio.sleep(self._pause * self._chance.random() * 2)
            if decision.allowed and self._refunds and self._chance.random() < 0.1:
                await self._limiter.refund(decision)
                self.admitted[key] -= 1

    def _count(self, key: str, decision: Decision) -> None:
        self.admitted[key] += int(decision.allowed)


async def main(url: str, number: str, count: str, keys: str, kind: str, rate: str) -> None:
    """Run one process, and print what it has admitted, and how many takes it decided itself."""
    process = Process(url, int(number), int(count), int(keys), kind, float(rate))
    print("ready", flush=True)
    await process.run()
    print(json.dumps({"admitted": process.admitted, "degraded": process.degraded}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
