"""What a waiter costs beyond a bare ``asyncio.sleep``: CPU time, objects, and the pause when very many begin to wait.

Rounds of all subjects alternate, each with the bare sleep twice: once to compare with, and once as a subject, whose
difference says how exact the others are.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import TypeVar

from ..reporting.results import best
from .peers import PEERS, Acquire, bare_sleep

CALLERS, PER_SECOND, ROUNDS = 200, 200, 10
"""Callers that wait at once, how many of them go in a second, and how often."""

MANY, OF_MANY, PAUSES = 10_000, 50, 3

HEADS = (
    "",
    "CPU µs more than a bare sleep, 200 waiting",
    "by half of the rounds, and by the others",
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
    """CPU time of a call that waits among many. Polling and waking all callers make it high.

    Of each tenth of the callers, the best quarter of the rounds counts. All rounds run on one event loop, so that what
    a process does once a second for the counts of a limiter is in the rounds of all.
    """
    with asyncio.Runner() as runner:
        bare, own = _rounds(makes, rounds, lambda make: runner.run(_within(_waiting(make), 3 * CALLERS / PER_SECOND)))
    shown = {}
    for name, each in own.items():
        first, second = sorted([_more(each[half::2], bare[half::2]) for half in range(2)])
        shown[name] = [f"{_more(each, bare):.0f}", f"{first:.0f}, {second:.0f}"] if each else [">3s", ""]
    return shown


def _more(own: Sequence[Sequence[float]], bare: Sequence[Sequence[float]]) -> float:
    return (sum(map(best, zip(*own))) - sum(map(best, zip(*bare)))) / CALLERS * 1e6


T = TypeVar("T")


def _rounds(
    makes: Mapping[str, Make], rounds: int, measure: Callable[[Make], T | None]
) -> tuple[list[T], dict[str, list[T]]]:
    """The figures of the bare sleep and of each subject, in turn; none of one that once had none."""
    bare, own = list[T](), {name: list[T]() for name in makes}
    failed = {name for name, make in makes.items() if measure(make) is None}  # it warms the others up
    order = [None, *[name for name in makes if name not in failed]]
    for number in range(rounds):
        for name in order if number % 2 else reversed(order):
            gc.collect()
            figure = measure(bare_sleep if name is None else makes[name])
            if figure is not None:
                (bare if name is None else own[name]).append(figure)
    return bare, own


async def _within(measure: Awaitable[T], seconds: float) -> T | None:
    try:
        async with asyncio.timeout(seconds):
            return await measure
    except TimeoutError:
        return None


async def _waiting(make: Make) -> list[float]:
    """CPU seconds from the start until a tenth of the callers have gone, until the next tenth has, and so on."""
    acquire, went = make(PER_SECOND), [time.process_time()]

    async def call() -> None:
        await acquire("key")
        went.append(time.process_time())

    await asyncio.gather(*[call() for _ in range(CALLERS)])
    went.append(time.process_time())
    marks = [*went[: CALLERS : CALLERS // 10], went[-1]]
    return [later - earlier for earlier, later in pairwise(marks)]


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
