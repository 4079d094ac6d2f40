"""Which functions ``@pace`` goes on, and which it refuses."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from asgi_ratelimit import ConfigurationError, pace
from asgi_ratelimit.testing import SteppedClock
from tests.support.counting import CountingStore


class Client:
    """A class with methods of every kind, each of which returns the time when it ran."""

    def __init__(self, clock: SteppedClock) -> None:
        self.clock = clock

    def plain(self) -> float:
        return self.clock.now

    async def coroutine(self) -> float:
        return self.clock.now

    def generator(self) -> Iterator[float]:
        yield self.clock.now

    async def async_generator(self) -> AsyncIterator[float]:
        yield self.clock.now


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_methods_stay_methods_of_their_kind(store: CountingStore, clock: SteppedClock, kind: str) -> None:
    """With their name and signature."""
    function = getattr(Client, kind)
    paced = pace("10/s", store=store, key=lambda self: str(id(self)))(function)
    api = type("Api", (Client,), {"paced": paced})
    assert inspect.iscoroutinefunction(paced) == inspect.iscoroutinefunction(function)
    assert (paced.__name__, inspect.signature(paced)) == (kind, inspect.signature(function))
    one, other = api(clock), api(clock)

    async def main() -> list[float]:
        results = [each.paced() for each in (one, one, other, one)]
        return [await result if inspect.isawaitable(result) else result for result in results]

    assert clock.run(main()) == [0.0, 0.1, 0.1, 0.2]


def test_objects_that_are_called_like_functions(store: CountingStore, clock: SteppedClock) -> None:
    """With ``async`` or without, as well as partial functions."""

    class Called:
        async def __call__(self) -> float:
            return clock.now

    def late(by: float) -> float:
        return clock.now + by

    call = pace("10/s", store=store, name="object")(Called())
    partial = pace("10/s", store=store)(functools.partial(late, 5))

    async def main() -> list[float]:
        return [await call(), await call()]

    assert clock.run(main()) == [0.0, 0.1]
    assert [partial(), partial()] == [5.1, 5.2]
    for unnamed in (Called(), dict.get):
        with pytest.raises(ConfigurationError, match="no name"):
            pace("10/s")(unnamed)
    for function, key in ((max, lambda account: account), (late, str)):
        with pytest.raises(ConfigurationError, match="one of them has no names: def call"):
            pace("10/s", key=key)(function)


@pytest.mark.parametrize(
    "function",
    [Client.generator, Client.async_generator, functools.partial(Client.generator, Client(SteppedClock()))],
    ids=["generator", "async generator", "partial"],
)
def test_generators_are_refused(function: Any) -> None:
    """One slot for a whole generator would pace none of its values; the error shows what to do instead."""
    with pytest.raises(ConfigurationError, match=r"a generator.*Limiter\.pace\(key\) and sleep for decision\.delay"):
        pace("10/s")(function)


@functools.wraps(Client.coroutine)
def returns_a_coroutine() -> Awaitable[float]:
    return Client(SteppedClock()).coroutine()


@asynccontextmanager
async def an_async_context() -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (returns_a_coroutine, "put @pace below the other decorator, next to the def"),
        (an_async_context, "event loop.*await a function under @pace inside"),
        (staticmethod(returns_a_coroutine), "below @staticmethod"),
        (Client, "goes on a function, not on <class"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_paced_is_refused(function: Any, message: str) -> None:
    """It would not wait at all, or would block the event loop."""
    with pytest.raises(ConfigurationError, match=message):
        pace("10/s")(function)


def test_callers_that_come_at_once_do_not_stop_the_event_loop(store: CountingStore, clock: SteppedClock) -> None:
    """A few of them begin in one of its iterations, in their order; those that are cancelled before hold nobody up."""
    order = list[int]()

    @pace("1000/s burst 1", store=store)
    async def call(number: int) -> None:
        order.append(number)

    async def main() -> None:
        tasks = [asyncio.ensure_future(call(number)) for number in range(300)]
        await asyncio.sleep(0)
        for task in tasks[100:200]:
            task.cancel()
        tasks.append(asyncio.ensure_future(call(300)))
        for _ in range(10):
            before = store.takes
            await asyncio.sleep(0)
            assert store.takes <= before + 50
        await asyncio.gather(*tasks, return_exceptions=True)

    clock.run(main())
    assert order == [*range(100), *range(200, 301)]
