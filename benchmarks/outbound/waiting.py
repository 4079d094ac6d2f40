"""What a waiter costs beyond a bare ``asyncio.sleep``: CPU time, objects, and the pause when very many begin to wait.

Rounds of all subjects alternate, each with the bare sleep twice: once to compare with, and once as a subject, whose
difference says how exact the others are.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from statistics import median, quantiles

from ..reporting.results import best
from .peers import PEERS, Acquire, bare_sleep

CALLERS, PER_SECOND, ROUNDS = 200, 200, 12
"""Callers that wait at once, how many of them go in a second, and how often."""

MANY, OF_MANY, PAUSES = 10_000, 50, 5

HEADS = (
    "",
    "CPU µs more than a bare sleep, 200 waiting",
    "its middle half of rounds",
    "objects for the collector",
    "ms pause, 10,000 callers, garbage collector off",
    "more than bare sleeps",
    "ms pause, on",
    "more than bare sleeps",
)

Make = Callable[[int], Acquire]


def table(names: Iterable[str], rounds: int = ROUNDS, pauses: int = PAUSES) -> list[Sequence[str]]:
    """The rows of these peers."""
    makes = {name: PEERS[name] for name in names}
    rows: dict[str, list[str]] = {name: [name] for name in makes}
    for figures in (cpu(makes, rounds), objects(makes), longest(makes, False, pauses), longest(makes, True, pauses)):
        for name, shown in figures.items():
            rows[name] += shown
            print(name, *shown, sep="  ", flush=True)
    return [HEADS, ["---", *["---:"] * (len(HEADS) - 1)], *rows.values()]


def cpu(makes: Mapping[str, Make], rounds: int) -> dict[str, list[str]]:
    """CPU time of a call that waits among many. Polling and waking all callers make it high."""
    bare, own = _rounds(makes, rounds, lambda make: asyncio.run(_within(_waiting(make), 3 * CALLERS / PER_SECOND)))
    return {
        name: [f"{best(each) - best(bare):.0f}", _middle(each, bare)] if each else [">3s", ""]
        for name, each in own.items()
    }


def _middle(own: Sequence[float], bare: Sequence[float]) -> str:
    """The quartiles of the differences of rounds that follow each other."""
    low, _, high = quantiles([mine - theirs for mine, theirs in zip(own, bare)])
    return f"{low:.0f} to {high:.0f}"


def _rounds(
    makes: Mapping[str, Make], rounds: int, measure: Callable[[Make], float | None]
) -> tuple[list[float], dict[str, list[float]]]:
    """The figures of the bare sleep and of each subject, in turn; none of one that once had none."""
    bare, own = list[float](), {name: list[float]() for name in makes}
    failed = {name for name, make in makes.items() if measure(make) is None}  # it warms the others up
    order = [None, *[name for name in makes if name not in failed]]
    for number in range(rounds):
        for name in order if number % 2 else reversed(order):
            gc.collect()
            figure = measure(bare_sleep if name is None else makes[name])
            if figure is not None:
                (bare if name is None else own[name]).append(figure)
    return bare, own


async def _within(measure: Awaitable[float], seconds: float) -> float | None:
    try:
        async with asyncio.timeout(seconds):
            return await measure
    except TimeoutError:
        return None


async def _waiting(make: Make) -> float:
    acquire = make(PER_SECOND)
    start = time.process_time()
    await asyncio.gather(*[acquire("key") for _ in range(CALLERS)])
    return (time.process_time() - start) / CALLERS * 1e6


def objects(makes: Mapping[str, Make], callers: int = 1000) -> dict[str, list[str]]:
    """How many objects of a caller that waits the garbage collector examines, the task included."""
    return {name: [f"{asyncio.run(_objects(make, callers)):.1f}"] for name, make in makes.items()}


async def _objects(make: Make, callers: int) -> float:
    acquire = make(OF_MANY)
    counts = []
    for number in (callers, 2 * callers):
        tasks = [asyncio.ensure_future(acquire("key")) for _ in range(number)]
        await asyncio.sleep(0.1)
        gc.collect()
        counts.append(len(gc.get_objects()))
        await _cancel(tasks)
    return (counts[1] - counts[0]) / callers


def longest(makes: Mapping[str, Make], is_collecting: bool, rounds: int) -> dict[str, list[str]]:
    """The longest time in milliseconds for which other tasks stand still when very many callers begin to wait."""
    (gc.enable if is_collecting else gc.disable)()
    bare, own = _rounds(makes, rounds, lambda make: asyncio.run(_pause(make)))
    gc.enable()
    return {name: [f"{median(each):.0f}", f"{median(each) - median(bare):.0f}"] for name, each in own.items()}


async def _pause(make: Make, callers: int = MANY) -> float:
    acquire, pauses = make(OF_MANY), list[float]()
    tasks = [asyncio.ensure_future(acquire("key")) for _ in range(callers)]
    deadline = time.monotonic() + 0.7
    while time.monotonic() < deadline:
        before = time.perf_counter()
        await asyncio.sleep(0)
        pauses.append(time.perf_counter() - before)
    await _cancel(tasks)
    return max(pauses) * 1000


async def _cancel(tasks: Sequence[asyncio.Future[object]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
