"""Limiters: the verbs that a program calls, in code with and without ``async``."""

from __future__ import annotations

import asyncio
import inspect
import math
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from asgi_ratelimit.decision import Charge, Decision
from asgi_ratelimit.errors import ConfigurationError, QuotaError
from asgi_ratelimit.limiter import Limiter, SyncLimiter, as_key
from asgi_ratelimit.quotas import TokenBucket
from asgi_ratelimit.stores import MemoryStore, RedisStore, Store
from asgi_ratelimit.testing import SteppedClock
from tests.support.server import ROOT

pytestmark = pytest.mark.anyio

EVEN = TokenBucket(10, burst=1)
HOURLY = TokenBucket(5, 3600)


@pytest.fixture
def store(clock: SteppedClock) -> MemoryStore:
    """What limiters do themselves is the same on any store."""
    return MemoryStore(clock=clock)


async def test_rate_limit_takes_now_or_not_at_all(store: Store, clock: SteppedClock) -> None:
    """It never has a delay; a refusal says when to come back."""
    limiter = Limiter(EVEN, store=store)
    first, second = await limiter.rate_limit("key"), await limiter.rate_limit("key")
    assert (first.allowed, second.allowed, first.delay, second.retry_after) == (True, False, 0.0, 0.1)
    clock.advance(second.retry_after)
    assert (await limiter.rate_limit("key")).allowed


async def test_pace_books_a_slot_and_does_not_sleep(store: Store, clock: SteppedClock) -> None:
    """The clock stands still, and the slots are there."""
    limiter = Limiter(EVEN, store=store)
    decisions = [await limiter.pace("key") for _ in range(3)]
    assert [decision.delay for decision in decisions] == [0.0, 0.1, 0.2]
    assert [decision.ready_at for decision in decisions] == [clock.now, clock.now + 0.1, clock.now + 0.2]


async def test_pace_books_nothing_beyond_max_delay(store: Store) -> None:
    """A slot that is too far away is left to others."""
    limiter = Limiter(EVEN, store=store)
    await limiter.pace("key")
    assert not (await limiter.pace("key", max_delay=0.05)).allowed
    assert (await limiter.pace("key", max_delay=0.1)).delay == 0.1


async def test_pace_with_no_patience_is_rate_limiting(store: Store) -> None:
    """``max_delay=0`` takes what is there now."""
    limiter = Limiter(EVEN, store=store)
    decisions = [await limiter.pace("key", max_delay=0) for _ in range(2)]
    assert [(decision.allowed, decision.retry_after) for decision in decisions] == [(True, 0.0), (False, 0.1)]


async def test_peek_takes_nothing(store: Store) -> None:
    """It says what ``rate_limit`` would."""
    limiter = Limiter(HOURLY, store=store)
    assert [(await limiter.peek("key")).remaining for _ in range(3)] == [5, 5, 5]
    assert not (await limiter.peek("key", 6)).allowed


async def test_reset_forgets_a_key(store: Store) -> None:
    """All its quotas; no other key."""
    limiter = Limiter([EVEN, HOURLY], store=store)
    for key in ("a", "b"):
        await limiter.rate_limit(key)
    await limiter.reset("a")
    assert [(await limiter.rate_limit(key)).allowed for key in ("a", "b")] == [True, False]


async def test_costs_are_units_of_every_quota(store: Store) -> None:
    """One cost for all."""
    decision = await Limiter("10/s; 100/hour", store=store).rate_limit("key", 3)
    assert [(state.quota.name, state.remaining) for state in decision.states] == [("per-second", 7), ("per-hour", 97)]
    assert decision.granted == 3


async def test_keys_do_not_share(store: Store) -> None:
    """Each has a bucket of its own."""
    limiter = Limiter(EVEN, store=store)
    assert [(await limiter.rate_limit(key)).allowed for key in ("a", "b", b"c", "")] == [True] * 4


async def test_names_keep_limiters_apart(store: Store) -> None:
    """Two of one name share their buckets, two names do not."""
    limiters = [Limiter(EVEN, store=store, name=name) for name in ("api", "api", "jobs")]
    assert [(await limiter.rate_limit("key")).allowed for limiter in limiters] == [True, False, True]


async def test_bytes_and_their_text_are_one_key(store: Store) -> None:
    """Where they are UTF-8."""
    limiter = Limiter(EVEN, store=store)
    assert (await limiter.rate_limit("ä")).allowed
    assert not (await limiter.rate_limit("ä".encode())).allowed


VERBS = [Limiter.rate_limit, Limiter.pace, Limiter.peek, Limiter.reset]


@pytest.mark.parametrize("key", [None, 5, 1.5, ("a",), bytearray(b"a")], ids=repr)
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
async def test_a_key_is_text_or_bytes(store: Store, verb: Callable[..., Any], key: Any) -> None:
    """Anything else is a mistake, and ``None`` is no key that many share."""
    with pytest.raises(TypeError, match="a key is a str or bytes") as raised:
        await verb(Limiter(EVEN, store=store), key)
    assert repr(key) in str(raised.value)


def test_bytes_that_are_no_text_stay_what_they_are() -> None:
    """They come out as they went in."""
    assert as_key(b"\xff\x00a").encode("utf-8", "surrogateescape") == b"\xff\x00a"


@pytest.mark.parametrize("cost", [0, -1, math.nan, math.inf, 2**53 + 1, "1", None], ids=repr)
@pytest.mark.parametrize("verb", [Limiter.rate_limit, Limiter.pace, Limiter.peek], ids=lambda verb: verb.__name__)
async def test_a_wrong_cost_touches_nothing(store: Store, verb: Callable[..., Any], cost: Any) -> None:
    """It is the caller's error."""
    limiter = Limiter(HOURLY, store=store)
    with pytest.raises(ValueError, match="cost must be"):
        await verb(limiter, "key", cost)
    assert (await limiter.peek("key")).remaining == 5


@pytest.mark.parametrize("max_delay", [-1, math.nan], ids=repr)
async def test_a_wrong_delay_touches_nothing(store: Store, max_delay: float) -> None:
    """It is the caller's error."""
    limiter = Limiter(HOURLY, store=store)
    with pytest.raises(ValueError, match="max_wait must be"):
        await limiter.pace("key", max_delay=max_delay)
    assert (await limiter.peek("key")).remaining == 5


@pytest.mark.parametrize("kind", [Limiter, SyncLimiter])
@pytest.mark.parametrize("name", ["", None, 5], ids=repr)
def test_a_name_is_a_text(kind: type, name: Any) -> None:
    """... and not empty; the error shows a right one."""
    with pytest.raises(ConfigurationError, match='name="api"'):
        kind("10/s", name=name)


@pytest.mark.parametrize("kind", [Limiter, SyncLimiter])
def test_quotas_are_checked_when_a_limiter_is_built(kind: type) -> None:
    """Not at the first request."""
    with pytest.raises(QuotaError):
        kind("10/fortnight")
    with pytest.raises(ConfigurationError, match="named 'per-second'"):
        kind("10/s; 20/s")
    with pytest.raises(ConfigurationError, match="no store is known"):
        kind("10/s", store="nowhere://")


def test_a_store_is_memory_unless_it_is_said() -> None:
    """Each limiter has one of its own then; a URL makes a store, and a store is used as it is."""
    store = MemoryStore()
    assert Limiter("10/s", store=store).store is store
    assert isinstance(Limiter("10/s").store, MemoryStore)
    assert Limiter("10/s").store is not Limiter("10/s").store
    assert isinstance(Limiter("10/s", store="redis://localhost").store, RedisStore)


async def test_take_charges_what_it_is_told(store: Store) -> None:
    """Any quotas, keys and costs, as one; a charge without a name is this limiter's."""
    limiter = Limiter(EVEN, store=store, name="api")
    other = TokenBucket(3, 3600, name="other")
    decision = await limiter.take([Charge(EVEN, "a"), Charge(other, "b", 2), Charge(EVEN, "a", name="jobs")])
    assert [state.remaining for state in decision.states] == [0, 1, 0]
    assert not (await limiter.rate_limit("a")).allowed
    assert not (await Limiter(EVEN, store=store, name="jobs").rate_limit("a")).allowed
    assert (await Limiter(EVEN, store=store).rate_limit("a")).allowed


async def test_take_is_all_or_nothing(store: Store) -> None:
    """One refusal leaves all as it was."""
    limiter = Limiter(HOURLY, store=store)
    assert not (await limiter.take([Charge(HOURLY, "a"), Charge(EVEN, "a", 2)])).allowed
    assert (await limiter.peek("a")).remaining == 5


async def test_take_may_wait(store: Store) -> None:
    """As long as it says."""
    limiter = Limiter(EVEN, store=store)
    delays = [(await limiter.take([Charge(EVEN, "key")], max_wait=math.inf)).delay for _ in range(3)]
    assert delays == [0.0, 0.1, 0.2]


async def test_take_needs_a_charge(store: Store) -> None:
    """An empty bill is a mistake."""
    with pytest.raises(ConfigurationError, match="at least one charge"):
        await Limiter(EVEN, store=store).take([])


class Closable(MemoryStore):
    """A store that says whether it was closed."""

    closed = 0

    async def aclose(self) -> None:
        self.closed += 1


async def test_a_limiter_is_a_context() -> None:
    """It closes its store at the end, once, and when something was raised inside, too."""
    store = Closable()
    async with Limiter(EVEN, store=store) as limiter:
        assert (await limiter.rate_limit("key")).allowed
    with pytest.raises(KeyError):
        async with limiter:
            raise KeyError
    assert store.closed == 2


def test_a_sync_limiter_is_a_context() -> None:
    """The same."""
    store = Closable()
    with SyncLimiter(EVEN, store=store) as limiter:
        assert limiter.rate_limit("key").allowed
    with pytest.raises(KeyError), limiter:
        raise KeyError
    assert store.closed == 2


async def test_limiters_show_what_they_are() -> None:
    """For logs."""
    for limiter in (Limiter(EVEN, name="api"), SyncLimiter(EVEN, name="api")):
        assert repr(EVEN) in repr(limiter)
        assert "name='api'" in repr(limiter)


# Without async

SYNC_VERBS = [name for name, _ in inspect.getmembers(Limiter, inspect.iscoroutinefunction) if not name.startswith("_")]


@pytest.mark.parametrize("verb", SYNC_VERBS)
def test_every_verb_has_a_twin(verb: str) -> None:
    """Of the same name, with the same parameters."""
    twin = getattr(SyncLimiter, verb)
    assert not inspect.iscoroutinefunction(twin)
    assert inspect.signature(twin).parameters == inspect.signature(getattr(Limiter, verb)).parameters


STEPS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("rate_limit", ("key",), {}),
    ("rate_limit", ("key", 3), {}),
    ("rate_limit", ("key", 3), {}),
    ("peek", ("key",), {}),
    ("pace", ("key", 4), {}),
    ("pace", ("key",), {"max_delay": 1.0}),
    ("take", ([Charge(HOURLY, "key", 0.5), Charge(HOURLY, "other", 0.5)], 1e9), {}),
    ("reset", ("key",), {}),
    ("rate_limit", (b"key", 5), {}),
]


@pytest.fixture(params=["memory", "redis"])
def make_store(request: pytest.FixtureRequest) -> Callable[[], Store]:
    """A maker of stores of each kind, all with the time standing still."""
    if request.param == "memory":
        return lambda: MemoryStore(clock=SteppedClock())
    url = request.getfixturevalue("redis_url")
    return lambda: RedisStore(url, clock=SteppedClock(), timeout=30, on_error="deny")


def test_it_decides_as_its_twin_does(make_store: Callable[[], Store]) -> None:
    """Step by step, on either store."""
    with SyncLimiter(HOURLY, store=make_store(), name="sync") as limiter:
        ours = [getattr(limiter, verb)(*args, **options) for verb, args, options in STEPS]
    assert list(map(summary, ours)) == list(map(summary, asyncio.run(steps_of_the_twin(make_store()))))


async def steps_of_the_twin(store: Store) -> list[Decision | None]:
    async with Limiter(HOURLY, store=store, name="async") as limiter:
        return [await getattr(limiter, verb)(*args, **options) for verb, args, options in STEPS]


def summary(decision: Decision | None) -> object:
    return decision and (decision.allowed, decision.granted, decision.delay, decision.retry_after, decision.states)


async def test_it_works_inside_a_running_event_loop(make_store: Callable[[], Store]) -> None:
    """It blocks that loop, as all synchronous code does, and is no deadlock."""
    with SyncLimiter(HOURLY, store=make_store()) as limiter:
        assert [limiter.rate_limit("key", 3).allowed for _ in range(2)] == [True, False]


def test_threads_share_it(make_store: Callable[[], Store]) -> None:
    """Of many that ask at once, exactly as many pass as the quota has."""
    with SyncLimiter(TokenBucket(30, 3600), store=make_store()) as limiter, ThreadPoolExecutor(16) as threads:
        decisions = list(threads.map(lambda _: limiter.rate_limit("key"), range(100)))
    assert sum(decision.allowed for decision in decisions) == 30


def test_errors_reach_the_caller(make_store: Callable[[], Store]) -> None:
    """As they are."""
    with SyncLimiter(HOURLY, store=make_store()) as limiter:
        with pytest.raises(ValueError, match="cost must be"):
            limiter.rate_limit("key", -1)
        with pytest.raises(TypeError, match="a key is"):
            limiter.peek(None)  # type: ignore[arg-type]


FORKING = """
import os, sys
from asgi_ratelimit import SyncLimiter, open_store

store = open_store(sys.argv[1], **({} if sys.argv[1] == "memory://" else {"timeout": 30, "on_error": "deny"}))
limiter = SyncLimiter("5/hour", store=store)

def ask():
    os.write(1, b"%d\\n" % limiter.rate_limit("key").remaining)

ask()
child = os.fork()
ask()
if child == 0:
    limiter.aclose()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
ask()
limiter.aclose()
"""


@pytest.mark.parametrize(("url", "remaining"), [("memory://", [2, 3, 3, 4]), (None, [1, 2, 3, 4])])
def test_a_forked_child_goes_on(redis_url: str, url: str | None, remaining: list[int]) -> None:
    """In Redis, parent and child share what is left; in memory, each has its own from then on."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING, url or redis_url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(map(int, done.stdout.split())) == remaining


async def test_a_decision_is_settled_once(store: Store) -> None:
    """Even at the very cost that it was charged, which leaves no mark in the store."""
    limiter = Limiter("100/hour", store=store)
    decision = await limiter.rate_limit("key", 5)
    await limiter.settle(decision, 5)
    await limiter.settle(decision, 50)
    await limiter.refund(decision)
    assert (await limiter.peek("key")).remaining == 95
