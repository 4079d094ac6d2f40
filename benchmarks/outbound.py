"""Outgoing calls that wait for a slot: what one costs, how much quota is used, who is overtaken, and who is refused.

``scripts/bench outbound`` prints a table and writes it to ``benchmarks/results/outbound.md``. Peers run in memory and
on one event loop, because some support no more. Each peer is set up for even spacing, or for the
smallest burst that it allows; against the services that count for themselves, for the quota that the service has.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Awaitable, Callable
from functools import cache
from itertools import count, pairwise
from typing import Any

from benchmarks import transport
from tests.stand_ins.counted_calls import call_async, call_from_processes, counts_of
from tests.stand_ins.counting_server import counting_server
from tests.support.redis_server import RedisServer
from tests.support.server import ROOT

RATE = 100
OPEN = 10_000_000
"""A rate at which no call waits."""

WITHIN = 20.0
"""Seconds for one figure; a peer that needs longer has none."""

Acquire = Callable[[str], Awaitable[Any]]
"""Wait for a slot under a key."""


def ours(rate: int) -> Acquire:
    from asgi_ratelimit import pace

    @pace(f"{rate}/s burst {1 if rate <= RATE else rate}", key=lambda key: key)
    async def call(key: str) -> None: ...

    return call


def aiolimiter(rate: int) -> Acquire:
    from aiolimiter import AsyncLimiter

    limiter_of = cache(lambda key: AsyncLimiter(1, 1 / rate))
    return lambda key: limiter_of(key).acquire()


def pyrate_limiter(rate: int) -> Acquire:
    from pyrate_limiter import Limiter, Rate

    spacing = Rate(1, 1000 // rate) if rate <= 1000 else Rate(rate // 1000, 1)
    limiter_of = cache(lambda key: Limiter(spacing))
    return lambda key: limiter_of(key).try_acquire_async(key)


def steindamm(rate: int) -> Acquire:
    from steindamm import AsyncLocalTokenBucket

    async def acquire(key: str) -> None:
        settings = {"capacity": 1, "refill_frequency": 1 / rate, "refill_amount": 1, "max_sleep": 0}
        async with AsyncLocalTokenBucket(name=f"{rate} {key}", **settings):
            pass

    return acquire


def bare_sleep(rate: int) -> Acquire:
    """No limiter: each caller sleeps until its slot."""
    numbers = count()
    return lambda key: asyncio.sleep(0 if rate == OPEN else next(numbers) / rate)


def throttled(rate: int) -> Acquire:
    from throttled.asyncio import Throttled

    limiter = Throttled(using="gcra", quota=f"{rate}/s burst {1 if rate <= RATE else rate}", timeout=60)
    acquire: Acquire = limiter.limit
    return acquire


PEERS = {
    "bare sleep": bare_sleep,
    "ours": ours,
    "aiolimiter": aiolimiter,
    "pyrate-limiter": pyrate_limiter,
    "steindamm": steindamm,
    "throttled-py": throttled,
}


async def cost(make: Callable[[int], Acquire], calls: int = 20_000) -> float:
    """CPU time of a call that does not wait, in microseconds: the best of several rounds."""
    acquire, rounds = make(OPEN), []
    for _ in range(5):
        start = time.process_time()
        for _ in range(calls // 5):
            await acquire("key")
        rounds.append((time.process_time() - start) / (calls // 5) * 1e6)
    return min(rounds)


async def goodput(make: Callable[[int], Acquire], seconds: float = 4.0) -> float:
    """The part of the quota that is used by twice as many callers as it allows, which give up after half a second."""
    acquire, done = make(RATE), list[float]()

    async def call() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await acquire("key")
            done.append(time.monotonic())

    start, calls = time.monotonic(), []
    for number in range(round(seconds * RATE * 2)):
        await asyncio.sleep(max(start + number / RATE / 2 - time.monotonic(), 0.0))
        calls.append(asyncio.ensure_future(call()))
    await asyncio.gather(*calls)
    first = start + 1.0  # from then on, as many callers give up as new ones arrive
    return sum(first <= at < start + seconds for at in done) / RATE / (seconds - 1.0)


async def fairness(make: Callable[[int], Acquire], callers: int = 200) -> tuple[float, float]:
    """The part of the callers that a later one overtakes, and the mean error of the gaps in milliseconds."""
    acquire, served = make(RATE), list[tuple[float, int]]()

    async def call(number: int) -> None:
        await acquire("key")
        served.append((time.monotonic(), number))

    await asyncio.gather(*[call(number) for number in range(callers)])
    overtaken = sum(number < max(before for _, before in served[: at + 1]) for at, (_, number) in enumerate(served))
    gaps = [later - earlier for (earlier, _), (later, _) in pairwise(served)]
    return overtaken / callers, sum(abs(gap - 1 / RATE) for gap in gaps) / len(gaps) * 1000


async def wake_ups(make: Callable[[int], Acquire], callers: int = 200) -> float:
    """CPU time of a call that waits among many, in microseconds: the least of some rounds beyond bare sleeps.

    Polling and waking all callers make it high.
    """
    return min([await _waiting(make, callers) - await _waiting(bare_sleep, callers) for _ in range(3)])


async def _waiting(make: Callable[[int], Acquire], callers: int) -> float:
    acquire = make(RATE)
    start = time.process_time()
    await asyncio.gather(*[acquire("key") for _ in range(callers)])
    return (time.process_time() - start) / callers * 1e6


async def pause(make: Callable[[int], Acquire], callers: int = 10_000) -> float:
    """The longest time in milliseconds for which other tasks stand still when so many callers begin to wait."""
    acquire, pauses = make(50), list[float]()
    tasks = [asyncio.ensure_future(acquire("key")) for _ in range(callers)]
    deadline = time.monotonic() + 2.0
    while time.monotonic() < deadline:
        before = time.perf_counter()
        await asyncio.sleep(0)
        pauses.append(time.perf_counter() - before)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return max(pauses) * 1000


def ours_for(quota: str) -> Callable[[Any], Any]:
    """``pace`` with a quota."""
    from asgi_ratelimit import pace

    return pace(quota)


def aiolimiter_for(limit: int, period: float) -> Callable[[Any], Any]:
    """The limiter that allows ``limit`` calls at once, and as many for each period."""
    from aiolimiter import AsyncLimiter

    limiter = AsyncLimiter(limit, period)
    return _around(limiter.acquire)


def pyrate_for(limit: int, milliseconds: int) -> Callable[[Any], Any]:
    """The limiter that keeps a log of the last calls."""
    from pyrate_limiter import Limiter, Rate

    limiter = Limiter(Rate(limit, milliseconds))
    return _around(lambda: limiter.try_acquire_async("key"))


def steindamm_for(limit: int, period: float) -> Callable[[Any], Any]:
    """The bucket of ``limit`` tokens that fills once a period."""
    from steindamm import AsyncLocalTokenBucket

    settings = {"capacity": limit, "refill_frequency": period / limit, "refill_amount": 1, "max_sleep": 0}
    name = f"for {next(_numbers)}"

    async def acquire() -> None:
        async with AsyncLocalTokenBucket(name=name, **settings):
            pass

    return _around(acquire)


_numbers = count()


def _around(acquire: Callable[[], Awaitable[Any]]) -> Callable[[Any], Any]:
    def decorate(function: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
        async def call() -> None:
            await acquire()
            await function()

        return call

    return decorate


Limit = tuple[str, int, float, dict[str, float], float]
"""A service: its kind, limit and period, its other settings, and the seconds that its calls take at least."""

CALLS = 200
SERVICES: dict[str, tuple[Limit, dict[str, Callable[[], Callable[[Any], Any]]]]] = {
    "bucket, burst 50": (
        ("bucket", 50, 1.0, {"burst": 50}, (CALLS - 50) / 50),
        {
            "ours": lambda: ours_for("50/s burst 50"),
            "aiolimiter": lambda: aiolimiter_for(50, 1),
            "pyrate-limiter": lambda: pyrate_for(50, 1000),
            "steindamm": lambda: steindamm_for(50, 1.0),
        },
    ),
    "spaced, 2 ms": (
        ("spaced", 50, 1.0, {"tolerance": 2}, (CALLS - 1) / 50),
        {
            "ours": lambda: ours_for("50/s"),
            "aiolimiter": lambda: aiolimiter_for(1, 1 / 50),
            "pyrate-limiter": lambda: pyrate_for(1, 20),
            "steindamm": lambda: steindamm_for(1, 1 / 50),
        },
    ),
    "fixed, 50 in 5 s": (
        ("fixed", 50, 5.0, {}, 15.0),
        {
            "ours": lambda: ours_for("50 per 5 seconds fixed"),
            "aiolimiter": lambda: aiolimiter_for(50, 5),
            "pyrate-limiter": lambda: pyrate_for(50, 5000),
            "steindamm": lambda: steindamm_for(50, 5.0),
        },
    ),
    "rolling, 50 in 5 s": (
        ("rolling", 50, 5.0, {}, 15.0),
        {
            "ours": lambda: ours_for("50 per 5 seconds rolling"),
            "aiolimiter": lambda: aiolimiter_for(50, 5),
            "pyrate-limiter": lambda: pyrate_for(50, 5000),
            "steindamm": lambda: steindamm_for(50, 5.0),
        },
    ),
}
"""Services that count for themselves, and how each peer is told of the limit."""


def services() -> list[list[str]]:
    """The calls that each service refuses, and the part of its rate that is used."""
    names = ["ours", "aiolimiter", "pyrate-limiter", "steindamm"]
    lines = [["200 calls; refused, rate used", *names], ["---", *["---:"] * len(names)]]
    for service, (limit, peers) in SERVICES.items():
        lines.append([service, *[_refused(limit, peers[name]) for name in names]])
        print(*lines[-1], sep="  ", flush=True)
    return lines


def _refused(limit: Limit, decorate: Callable[[], Callable[[Any], Any]]) -> str:
    kind, units, period, settings, least = limit
    with counting_server(kind, units, period, **settings) as server:
        start = time.monotonic()
        try:
            asyncio.run(asyncio.wait_for(call_async(server.url, CALLS, decorate()), 3 * WITHIN))
        except TimeoutError:
            return f">{time.monotonic() - start:.0f}s"
        counts = counts_of(server)
    return f"{counts.refused}, {least / max(counts.seconds, 0.001):.2f}"


def processes(margin: float = 0.02, count: int = 4) -> list[list[str]]:
    """What each service refuses of the calls of several processes that share a Redis, and the part of its rate."""
    lines = [[f"ours, {count} processes, margin {margin}", "refused, rate used"], ["---", "---:"]]
    with RedisServer() as redis:
        for service, ((kind, units, period, settings, least), _) in SERVICES.items():
            redis.flush()
            quota = {"bucket": "50/s burst 50", "spaced": "50/s"}.get(kind, f"{units} per {period:.0f} seconds {kind}")
            with counting_server(kind, units, period, **settings) as server:
                call_from_processes(server, redis.url, quota, margin, CALLS, count)
                counts = counts_of(server)
            lines.append([service, f"{counts.refused}, {least / max(counts.seconds, 0.001):.2f}"])
            print(*lines[-1], sep="  ", flush=True)
    return lines


HEADS = (
    "",
    "CPU µs a call",
    "CPU µs more than a sleep, 200 waiting",
    "ms pause, 10,000 callers, garbage collector off",
    "the same, on",
    "quota used",
    "overtaken",
    "ms off even gaps",
)


async def row(name: str) -> list[str]:
    """The figures of one peer."""
    make = PEERS[name]
    shown = [await _within(cost(make), "{:.1f}"), await _within(wake_ups(make), "{:.0f}")]
    for switch in (gc.disable, gc.enable):
        switch()
        shown.append(await _within(pause(make), "{:.0f}"))
    shown.append("" if name == "bare sleep" else await _within(goodput(make), "{:.2f}"))
    return [name, *shown, *(await _within(fairness(make), "{0[0]:.2f} {0[1]:.2f}")).split(" ", 1)]


async def _within(measure: Awaitable[Any], form: str) -> str:
    try:
        async with asyncio.timeout(WITHIN):
            return form.format(await measure)
    except TimeoutError:
        return f">{WITHIN:.0f}s >{WITHIN:.0f}s" if "[" in form else f">{WITHIN:.0f}s"


def main() -> None:
    lines = [HEADS, ["---", *["---:"] * (len(HEADS) - 1)]]
    for name in PEERS:
        try:
            lines.append(asyncio.run(row(name)))
        except Exception as error:  # noqa: BLE001  # its row shows the error, and the others go on
            lines.append([name, f"{type(error).__name__}: {error}"[:100], *[""] * (len(HEADS) - 2)])
        print(*lines[-1], sep="  ", flush=True)
    table = "\n\n".join(
        ["\n".join(f"| {' | '.join(line)} |" for line in part) for part in (lines, services(), processes())]
    )
    table = f"{table}\n\n## PacedTransport\n\n{transport.table()}"
    (ROOT / "benchmarks" / "results" / "outbound.md").write_text(f"# Outgoing calls\n\n{table}\n")
    print(f"\n{table}")


if __name__ == "__main__":
    main()
