"""What one call costs, how much of the quota is used, who is overtaken, and how even the calls are."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from .peers import OPEN, PEERS, RATE, WITHIN, Acquire


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


HEADS = ("", "CPU µs a call", "quota used", "overtaken", "ms off even gaps")


def table(names: Iterable[str]) -> list[Sequence[str]]:
    """The figures of these peers; one that raises an error shows it."""
    lines: list[Sequence[str]] = [HEADS, ["---", *["---:"] * (len(HEADS) - 1)]]
    for name in names:
        try:
            lines.append(asyncio.run(row(name)))
        except Exception as error:  # noqa: BLE001  # the others go on
            lines.append([name, f"{type(error).__name__}: {error}"[:100], *[""] * (len(HEADS) - 2)])
        print(*lines[-1], sep="  ", flush=True)
    return lines


async def row(name: str) -> list[str]:
    """The figures of one peer."""
    make = PEERS[name]
    shown = [await _within(cost(make), "{:.1f}")]
    shown.append("" if name == "bare sleep" else await _within(goodput(make), "{:.2f}"))
    return [name, *shown, *(await _within(fairness(make), "{0[0]:.2f} {0[1]:.2f}")).split(" ", 1)]


async def _within(measure: Awaitable[Any], form: str) -> str:
    try:
        async with asyncio.timeout(WITHIN):
            return form.format(await measure)
    except TimeoutError:
        return f">{WITHIN:.0f}s >{WITHIN:.0f}s" if "[" in form else f">{WITHIN:.0f}s"
