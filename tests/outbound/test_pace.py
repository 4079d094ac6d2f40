"""``@pace``: functions of every kind whose calls wait for their turn, on a clock that is stepped by hand."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from asgi_ratelimit import (
    ConfigurationError,
    FixedWindow,
    Limiter,
    MemoryStore,
    PaceTimeout,
    QuotaError,
    SyncLimiter,
    TokenBucket,
    pace,
)
from asgi_ratelimit.decision import Decision
from asgi_ratelimit.quota_text import QuotaLike
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.waiting import drivers as steps

CASES: list[tuple[QuotaLike, list[float]]] = [
    ("10/s", [0.0, 0.1, 0.2, 0.3, 0.4]),
    ("10/s burst 3", [0.0, 0.0, 0.0, 0.1, 0.2]),
    (TokenBucket(10, burst=2), [0.0, 0.0, 0.1, 0.2, 0.3]),
    (FixedWindow(2, 1), [0.0, 0.0, 1.0, 1.0, 2.0]),
    (["10/s", TokenBucket(2, 1, name="pairs")], [0.0, 0.1, 0.5, 1.0, 1.5]),
]


class Counting(MemoryStore):
    """A store that counts how often it was asked."""

    asked = 0

    async def take(self, takes: Any) -> list[Decision]:
        self.asked += 1
        return await super().take(takes)


@pytest.fixture
def clock() -> SteppedClock:
    """It starts at a whole second."""
    return SteppedClock(0)


@pytest.fixture
def store(clock: SteppedClock) -> Counting:
    """One for all budgets of a test."""
    return Counting(clock=clock)


@pytest.mark.parametrize(("quota", "starts"), CASES)
def test_calls_go_as_soon_as_they_may(
    store: Counting, clock: SteppedClock, quota: QuotaLike, starts: list[float]
) -> None:
    """Five at once, each at its slot and in their order; the store is asked once for each."""

    @pace(quota, store=store)
    async def call(number: int) -> tuple[int, float]:
        return number, clock.now

    async def main() -> list[tuple[int, float]]:
        return await asyncio.gather(*map(call, range(5)))

    assert clock.run(main()) == list(enumerate(starts))
    assert store.asked == 5


@pytest.mark.parametrize(("quota", "starts"), CASES)
def test_without_async_it_is_the_same(
    store: Counting, clock: SteppedClock, quota: QuotaLike, starts: list[float]
) -> None:
    """One after the other, in one thread."""

    @pace(quota, store=store)
    def call() -> float:
        return clock.now

    assert [call() for _ in range(5)] == starts
    assert store.asked == 5


def test_a_wait_is_one_sleep(store: Counting, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing polls: the clock is moved once for each slot, and no further."""
    moves: list[float] = []
    advance = clock.advance
    monkeypatch.setattr(clock, "advance", lambda seconds: (moves.append(seconds), advance(seconds)))

    @pace("10/s", store=store)
    async def call() -> None: ...

    async def main() -> None:
        await asyncio.gather(*[call() for _ in range(4)])

    clock.run(main())
    assert moves == pytest.approx([0.1, 0.1, 0.1])


# What a slot is worth


def test_a_slot_too_far_away_is_not_booked(store: Counting, clock: SteppedClock) -> None:
    """It is said at once, with the decision, and the next caller finds all as it was."""

    @pace("10/s", store=store, max_delay=0.15, name="api")
    async def call() -> float:
        return clock.now

    async def main() -> None:
        first, second, third = await asyncio.gather(call(), call(), call(), return_exceptions=True)
        assert (first, second) == (0.0, 0.1)
        assert isinstance(third, PaceTimeout)
        assert isinstance(third, TimeoutError)
        assert (third.decision.allowed, third.decision.retry_after) == (False, 0.05)
        assert "is 0.2 s away, max_delay is 0.15 s" in str(third)
        assert await call() == 0.2

    clock.run(main())


def test_without_async_it_is_said_as_well(store: Counting, clock: SteppedClock) -> None:
    """``max_delay=0`` never waits."""

    @pace("10/s", store=store, max_delay=0)
    def call() -> float:
        return clock.now

    assert call() == 0.0
    with pytest.raises(PaceTimeout):
        call()
    clock.advance(0.1)
    assert call() == 0.1


def test_a_cancelled_caller_gives_its_slot_back(store: Counting, clock: SteppedClock) -> None:
    """The bucket is as if it had never been there."""
    limiter = Limiter(TokenBucket(10, burst=1), store=store, name="api")

    @pace("10/s", store=store, name="api")
    async def call() -> float:
        return clock.now

    async def main() -> None:
        await call()
        before = await limiter.peek("")
        sleeper = asyncio.ensure_future(call())
        await asyncio.sleep(0)
        assert (await limiter.peek("")).reset_after == 0.2
        sleeper.cancel()
        await asyncio.wait([sleeper])
        assert sleeper.cancelled()
        assert await limiter.peek("") == before

    clock.run(main())


def test_those_behind_a_cancelled_caller_move_up(store: Counting, clock: SteppedClock) -> None:
    """They keep their order, no slot is left empty, and the next caller comes right after them."""

    @pace("10/s", store=store)
    async def call(number: int) -> tuple[int, float]:
        return number, clock.now

    async def main() -> list[Any]:
        calls = [asyncio.ensure_future(call(number)) for number in range(8)]
        await asyncio.sleep(0.15)
        for number in (2, 5):
            calls[number].cancel()
        await asyncio.sleep(0)
        calls.append(asyncio.ensure_future(call(8)))
        return [call for call in await asyncio.gather(*calls, return_exceptions=True) if isinstance(call, tuple)]

    assert clock.run(main()) == [(0, 0.0), (1, 0.1), (3, 0.2), (4, 0.3), (6, 0.4), (7, 0.5), (8, 0.6)]


def test_after_a_stall_nobody_joins_a_stampede(store: Counting, clock: SteppedClock) -> None:
    """Ten slots passed while the loop stood still: the two newest are still good, the others are booked anew."""

    @pace("20/s", store=store)
    async def call(number: int) -> tuple[int, float]:
        return number, clock.now

    async def main() -> list[tuple[int, float]]:
        calls = [asyncio.ensure_future(call(number)) for number in range(10)]
        await asyncio.sleep(0)
        clock.advance(0.5)
        return await asyncio.gather(*calls)

    starts = clock.run(main())
    assert [number for number, _ in starts] == list(range(10))
    assert [start for _, start in starts] == [0.0, 0.5, 0.5, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8]


def test_a_call_that_fails_has_used_its_slot(store: Counting, clock: SteppedClock) -> None:
    """Its error is the caller's, and nothing is given back."""

    @pace("10/s", store=store)
    def call() -> None:
        raise KeyError(clock.now)

    for start in (0.0, 0.1):
        with pytest.raises(KeyError, match=str(start)):
            call()


# Whose budget


def test_a_budget_is_shared_by_name(store: Counting, clock: SteppedClock) -> None:
    """With a limiter of that name, and with other functions; without a name, each function has its own."""
    limiter = SyncLimiter(TokenBucket(10, burst=1), store=store, name="api")

    @pace("10/s", store=store, name="api")
    def named() -> float:
        return clock.now

    @pace("10/s", store=store)
    def unnamed() -> float:
        return clock.now

    assert limiter.rate_limit("").allowed
    assert named() == 0.1
    assert limiter.peek("").retry_after == 0.1
    assert pace("10/s", store=store, name="api")(lambda: clock.now)() == 0.2
    assert [unnamed(), unnamed()] == [0.2, 0.3]
    own = SyncLimiter("10/s burst 1", store=store, name=f"{__name__}.{unnamed.__qualname__}")
    assert own.peek("").retry_after == 0.1


def test_keys_come_from_arguments(store: Counting, clock: SteppedClock) -> None:
    """By their names, however they were passed, defaults too."""

    @pace("10/s", store=store, key=lambda guild, kind: f"{guild}/{kind}")
    def call(text: str, guild: str, *, kind: str = "chat") -> float:
        return clock.now

    assert [call("a", "one"), call("b", "two"), call("c", guild="one", kind="voice")] == [0.0, 0.0, 0.0]
    assert call(guild="one", text="d") == 0.1


def test_costs_come_from_arguments(store: Counting, clock: SteppedClock) -> None:
    """One for all quotas, or one for each by its name."""
    quotas = [TokenBucket(10, burst=1, name="requests"), TokenBucket(1000, burst=1000, name="tokens")]

    @pace(quotas, store=store, cost={"requests": 1, "tokens": lambda prompt: max(1, len(prompt))})
    def ask(prompt: str) -> float:
        return clock.now

    @pace("10/s", store=store, cost=lambda pages: max(1, len(pages)))
    def fetch(*pages: int) -> float:
        return clock.now

    assert [ask("x" * 900), ask("x" * 200), ask("x" * 500)] == [0.0, 0.1, 0.6]
    clock.move_to(10)
    assert [fetch(1), fetch(1, 2, 3), fetch(1)] == [10.0, 10.1, 10.4]


def test_a_key_may_be_one_for_each_quota(store: Counting, clock: SteppedClock) -> None:
    """By the quota's name."""
    quotas = [TokenBucket(1, burst=1, name="guild"), TokenBucket(10, burst=1, name="all")]

    @pace(quotas, store=store, key={"guild": lambda guild: guild, "all": "everybody"})
    def call(guild: str) -> float:
        return clock.now

    assert [call("a"), call("b"), call("a"), call("b")] == [0.0, 0.1, 1.0, 1.1]


@pytest.mark.parametrize("key", ["github", b"github"], ids=repr)
def test_a_key_may_be_fixed(store: Counting, clock: SteppedClock, key: str | bytes) -> None:
    """Then all calls share it."""
    call = pace("10/s", store=store, key=key, name="api")(lambda: clock.now)
    assert SyncLimiter("10/s burst 1", store=store, name="api").rate_limit("github").allowed
    assert call() == 0.1


@pytest.mark.parametrize("wrong", [{"key": lambda: 5}, {"cost": lambda: 0}, {"key": lambda: 1 / 0}], ids=repr)
def test_a_key_or_cost_that_cannot_be_books_nothing(store: Counting, wrong: dict[str, Any]) -> None:
    """It is the caller's error."""
    called: list[int] = []
    call = pace("10/s", store=store, **wrong)(lambda: called.append(1))
    with pytest.raises((TypeError, ValueError, ZeroDivisionError)):
        call()
    assert (called, store.asked) == ([], 0)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"key": lambda guid: guid}, "key asks for guid, where a call has the arguments guild, text"),
        ({"cost": lambda guild, *rest: 1}, r"cost asks for \*rest"),
        ({"cost": {"per-second": lambda size: size}}, "cost asks for size"),
        ({"key": type("Odd", (), {"__call__": None, "__signature__": 5})()}, "does not say what arguments"),
    ],
    ids=["key", "star", "mapping", "opaque"],
)
def test_a_function_of_arguments_that_are_not_there_is_refused(wrong: dict[str, Any], says: str) -> None:
    """When it is decorated, and the error shows a right one."""

    def call(guild: str, text: str) -> None: ...

    with pytest.raises(ConfigurationError, match=says) as raised:
        pace("10/s", **wrong)(call)
    assert "lambda account: account.id" in str(raised.value)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"quota": "10/fortnight"}, QuotaError),
        ({"quota": "10/s", "max_delay": -1}, ValueError),
        ({"quota": "10/s", "name": ""}, ConfigurationError),
        ({"quota": "10/s", "store": "nowhere://"}, ConfigurationError),
        ({"quota": "10/s", "cost": 0}, ValueError),
        ({"quota": "10/s", "cost": {"tokens": 1}}, ValueError),
        ({"quota": "10/s", "key": 5}, TypeError),
        ({"quota": "10/s", "key": {"tokens": "a"}}, ValueError),
    ],
    ids=repr,
)
def test_what_cannot_be_is_said_when_it_is_decorated(wrong: dict[str, Any], error: type[Exception]) -> None:
    """Not at the first call."""
    with pytest.raises(error):
        pace(**wrong)(print)


# Kinds of functions


class Client:
    """Something with methods of every kind, each of which says when it ran."""

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


async def run_any(made: Any) -> float:
    """The first value of whatever a call has made."""
    if inspect.isawaitable(made):
        return await made  # type: ignore[no-any-return]
    if hasattr(made, "__anext__"):
        return [value async for value in made][0]  # type: ignore[no-any-return]  # noqa: RUF015
    return next(made) if hasattr(made, "__next__") else made  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["plain", "coroutine", "generator", "async_generator"])
def test_methods_of_every_kind(store: Counting, clock: SteppedClock, kind: str) -> None:
    """They stay methods, and stay of their kind; what is made but not run has not waited."""
    function = getattr(Client, kind)
    paced = pace("10/s", store=store, key=lambda self: str(id(self)))(function)
    api = type("Api", (Client,), {"paced": paced})
    checks = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    assert [check(paced) for check in checks] == [check(function) for check in checks]
    assert (paced.__name__, inspect.signature(paced)) == (kind, inspect.signature(function))
    one, other = api(clock), api(clock)

    async def main() -> list[float]:
        return [await run_any(each.paced()) for each in (one, one, other, one)]

    assert clock.run(main()) == [0.0, 0.1, 0.1, 0.2]


def test_objects_that_are_called_like_functions(store: Counting, clock: SteppedClock) -> None:
    """With ``async`` or without, and partial functions."""

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
    with pytest.raises(ConfigurationError, match="no name"):
        pace("10/s")(Called())


def test_a_generator_is_passed_through(store: Counting) -> None:
    """What is sent and thrown into it reaches it, and what it returns comes out."""

    @pace("10/s", store=store)
    def echo() -> Any:
        got = yield "first"
        try:
            yield got
        except KeyError:
            yield "thrown"
        return "returned"

    made = echo()
    assert [next(made), made.send("sent"), made.throw(KeyError())] == ["first", "sent", "thrown"]
    with pytest.raises(StopIteration, match="returned"):
        next(made)


def test_an_async_generator_is_passed_through(store: Counting, clock: SteppedClock) -> None:
    """What is sent and thrown into it reaches it, and it is closed with the outer one."""
    closed: list[bool] = []

    @pace("10/s", store=store)
    async def echo() -> Any:
        try:
            got = yield "first"
            try:
                yield got
            except KeyError:
                yield "thrown"
        finally:
            closed.append(True)

    async def main() -> None:
        made = echo()
        assert await anext(made) == "first"
        assert await made.asend("sent") == "sent"
        assert await made.athrow(KeyError()) == "thrown"
        await made.aclose()
        assert closed == [True]
        assert [value async for value in echo()] == ["first", None]

    clock.run(main())


def test_context_managers(store: Counting, clock: SteppedClock) -> None:
    """``@pace`` below the decorator that makes them; an error inside reaches them as ever."""
    seen: list[object] = []

    @contextmanager
    @pace("10/s", store=store, name="api")
    def opened() -> Iterator[float]:
        try:
            yield clock.now
        except KeyError as error:
            seen.append(error.args[0])

    @asynccontextmanager
    @pace("10/s", store=store, name="api")
    async def async_opened() -> AsyncIterator[float]:
        try:
            yield clock.now
        except KeyError as error:
            seen.append(error.args[0])

    for start in (0.0, 0.1):
        with opened() as now:
            assert now == start
            raise KeyError("sync")

    async def main() -> None:
        async with async_opened() as now:
            assert now == 0.2
            raise KeyError("async")

    clock.run(main())
    assert seen == ["sync", "sync", "async"]


@contextmanager
def a_manager() -> Iterator[None]:
    yield


@asynccontextmanager
async def an_async_manager() -> AsyncIterator[None]:
    yield


@functools.wraps(Client.coroutine)
def a_maker() -> Awaitable[float]:
    return Client(SteppedClock()).coroutine()


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (a_manager, "next to the def"),
        (an_async_manager, "put @pace below the other decorator"),
        (a_maker, "only makes what will run later"),
        (staticmethod(a_maker), "below @staticmethod"),
        (classmethod(a_maker), "below @classmethod"),
        (property(a_maker), "below @property"),
        (Client, "goes on a function, not on <class"),
        ("call", "goes on a function, not on 'call'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_right_is_refused(function: Any, says: str) -> None:
    """It would not wait at all, or would block the event loop."""
    with pytest.raises(ConfigurationError, match=says):
        pace("10/s")(function)


def test_a_call_with_wrong_arguments_books_nothing_if_they_make_its_key(store: Counting) -> None:
    """It is Python's own error."""

    @pace("10/s", store=store, key=lambda guild: guild)
    def call(guild: str) -> None: ...

    with pytest.raises(TypeError, match="missing a required argument"):
        call()  # type: ignore[call-arg]
    assert store.asked == 0


def test_whoever_blocks_an_event_loop_is_told_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """A function without ``async`` that waits on the thread of a loop, but not one in a thread of its own."""
    steps._warn_of_the_loop.cache_clear()
    call = pace("1000/s")(lambda: None)

    async def main() -> None:
        for _ in range(5):
            await asyncio.to_thread(call)
        assert not caplog.messages
        for _ in range(5):
            call()

    asyncio.run(main())
    assert ["stands still" in message for message in caplog.messages] == [True]
