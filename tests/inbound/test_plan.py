"""Plans: what a request is charged under the rules that match it, filled with its keys, and cached for no client."""

from __future__ import annotations

import gc
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import HTTPConnection
from starlette.types import Scope

from asgi_ratelimit import Charge, MemoryStore, Penalty, RateLimitMiddleware, Rule, Take, TokenBucket, client_ip, limits
from asgi_ratelimit.inbound.plan import Plan
from asgi_ratelimit.inbound.rules import CompiledRule
from asgi_ratelimit.keys import header, state
from asgi_ratelimit.keys.base import UNREADABLE
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import ask, http, ok
from tests.support.names import named

pytestmark = pytest.mark.anyio

QUOTA = TokenBucket(10, 60)
HOURLY = TokenBucket(100, 3600)


def rule(name: str = "api", *quotas: TokenBucket, key: Any = None, **options: Any) -> CompiledRule:
    return CompiledRule(name, quotas or (QUOTA,), key or state("key"), **options)


def request(key: str | None = "alice", *headers: tuple[bytes, bytes]) -> Scope:
    return http(state={} if key is None else {"key": key}, headers=list(headers))


def by_header(connection: HTTPConnection) -> str | None:
    return connection.headers.get("x-key")


def general(plan: Plan, scope: Scope) -> Take | None:
    """What the path that serves every plan makes of a request."""
    coroutine = plan.evaluate(scope)
    try:
        coroutine.send(None)
    except StopIteration as done:
        return None if done.value is None else done.value.takes[0]
    raise AssertionError("it waits")


def by_tier(connection: HTTPConnection) -> str:
    return connection.headers.get("x-tier", "10/minute")


def by_cost(connection: HTTPConnection) -> float:
    return float(connection.headers.get("x-cost", 1))


# The fast path, and the general one


KEYS = st.none() | st.text(max_size=200)

ON_ERRORS = st.sampled_from([None, "local", "allow", "deny"])
SPECIFIED = st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 5), ON_ERRORS)


@given(st.lists(SPECIFIED, min_size=1, max_size=25), KEYS, KEYS)  # 50 charges: more are taken in several takes
def test_both_paths_make_the_same_take(specified: Any, one: str | None, other: str | None) -> None:
    """Whatever buckets the rules share, with or without keys, and for keys of any content."""
    keys = [state("one"), state("other"), state("one")]
    rules = [
        rule(f"rule {name}", QUOTA, HOURLY, key=keys[key], cost=cost, on_error=on_error)
        for name, key, cost, on_error in specified
    ]
    plan = Plan(rules)
    scope = http(state={"one": one, "other": other})
    assert plan.is_single
    take = plan.take(scope)
    assert take == general(plan, scope)
    if take is not None:
        assert [charge.bucket for charge in take.charges] == [replace(charge).bucket for charge in take.charges]
        assert replace(take).max_wait_us == take.max_wait_us


@given(KEYS, st.integers(1, 5))
def test_a_single_charge_is_that_of_the_take(key: str | None, cost: int) -> None:
    """The fastest path makes the one charge of the take, on the same bucket, unless the key has to be escaped."""
    plan, scope = Plan([rule(cost=cost)]), http(state={"key": key})
    assert plan.charge is not None
    bucket, take = plan.charge.bucket(scope), plan.take(scope)
    assert (take is None) == (key is None)
    if bucket is not None and take is not None:
        assert take.charges == (plan.charge.template.charge(bucket),)
        assert take.charges[0].bucket == bucket == replace(take.charges[0]).bucket
    else:
        assert key is None or not re.fullmatch(r"[A-Za-z0-9._~@/+=,:-]{1,32}", key)


@pytest.mark.parametrize(
    "rules",
    [[rule(), rule("other", HOURLY)], [rule("two", QUOTA, HOURLY)], [rule(on_error="deny")], [rule(shadow=True)]],
    ids=["two rules", "two quotas", "on_error", "shadow"],
)
def test_more_than_a_charge_is_no_single_charge(rules: list[CompiledRule]) -> None:
    """Two charges, or options of the take, need the take itself."""
    assert Plan(rules).charge is None


async def test_requests_of_one_charge_need_no_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are allowed and those that are refused, without any other path."""

    def other_path(plan: Plan, scope: Scope) -> None:
        raise AssertionError("another path was entered")

    monkeypatch.setattr(Plan, "take", other_path)
    monkeypatch.setattr(Plan, "evaluate", other_path)
    app = RateLimitMiddleware(ok, "2/minute", store=MemoryStore(clock=SteppedClock()))
    answers = [await ask(app) for _ in range(3)]
    assert [peer.status for peer in answers] == [200, 200, 429]
    assert [peer.headers["ratelimit"] for peer in answers] == [
        '"per-minute";r=1;t=30',
        '"per-minute";r=0;t=30',
        '"per-minute";r=0;t=30',
    ]


@pytest.mark.parametrize(
    ("options", "is_single"),
    [
        ({}, True),
        ({"cost": 5, "on_error": "deny"}, True),
        ({"key": by_header}, False),
        ({"cost": lambda connection: 2}, False),
        ({"quota": lambda connection: "1/s"}, False),
        ({"shadow": True}, False),
        ({"penalty": Penalty("1 hour")}, False),
        ({"settle": lambda status, headers: 0}, False),
        ({"messages": (QUOTA,)}, False),
    ],
    ids=named,
)
def test_what_the_fast_path_serves(options: dict[str, Any], is_single: bool) -> None:
    """Constant quotas and costs, keys that are read off the scope, and nothing but charges that are enforced."""
    options = {"quota": (QUOTA,), "key": state("key"), **options}
    plain = rule("plain")
    assert Plan([CompiledRule("rule", **options)]).is_single is is_single
    assert Plan([plain, CompiledRule("rule", **options)]).is_single is is_single


async def test_most_requests_take_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """With rules and without, with hooks and lists, no request for which it is enough needs the other one."""

    async def general_path(plan: Plan, scope: Scope) -> None:
        raise AssertionError("the general path was entered")

    monkeypatch.setattr(Plan, "evaluate", general_path)
    rules = [Rule("/", "20/minute", name="rule"), Rule("/", "30/minute", key=header("x-key"), name="by key")]
    lists = {"allow": lambda connection: False, "deny": lambda connection: False}
    for options in ({}, {"rules": rules}, {"hooks": [str]}, lists):
        app = RateLimitMiddleware(ok, "10/minute", store=MemoryStore(), **options)  # type: ignore[arg-type]
        assert (await ask(app, http(headers=[(b"x-key", b"ann")]))).headers["ratelimit"].startswith('"per-minute";r=9')


# Keys, quotas and costs


async def test_another_key_is_another_bucket() -> None:
    """Whether the key is read off the scope, or a function returns it, the same key has the same bucket."""
    for plan in (Plan([rule(key=header("x-key"))]), Plan([rule(key=by_header)])):
        takes = []
        for name in (b"alice", b"alice", b"bob"):
            planned = await plan.evaluate(request(None, (b"x-key", name)))
            assert planned is not None
            takes.append(planned.takes[0])
        assert takes[0] == takes[1] != takes[2]
        assert takes[0].charges[0].bucket != takes[2].charges[0].bucket


async def test_functions_decide_for_each_request() -> None:
    """Quota and cost are those of this request, not those of the one before."""
    plan = Plan([CompiledRule("api", by_tier, by_header, by_cost)])
    seen = []
    for more in ([(b"x-tier", b"20/minute")], [(b"x-cost", b"3")], []):
        planned = await plan.evaluate(request(None, (b"x-key", b"alice"), *more))
        assert planned is not None
        (charge,) = planned.takes[0].charges
        seen.append((charge.quota.limit, charge.cost))
    assert seen == [(20, 1), (10, 3), (10, 1)]


async def test_without_a_key_nothing_is_taken() -> None:
    """Each time."""
    plan = Plan([rule(), rule("other", HOURLY)])
    assert [plan.take(request(None)) for _ in range(2)] == [None, None]
    assert await plan.evaluate(request(None)) is None


def test_each_bucket_is_charged_once() -> None:
    """Two rules of one name and key are one charge, at the cost of the first; two keys are two charges."""
    plan = Plan([rule(cost=2), rule(cost=3), rule(key=state("other"))])
    take = plan.take(http(state={"key": "alice", "other": "bob"}))
    assert take is not None
    assert [(charge.key, charge.cost) for charge in take.charges] == [("alice", 2), ("bob", 1)]
    take = plan.take(http(state={"key": "alice", "other": "alice"}))
    assert take is not None
    assert [(charge.key, charge.cost) for charge in take.charges] == [("alice", 2)]


def test_the_strictest_rule_with_a_key_decides_without_the_store() -> None:
    """A rule that does not apply does not count."""
    plan = Plan([rule(on_error="allow"), rule("strict", key=state("other"), on_error="deny")])
    for other, expected in (("bob", "deny"), (None, "allow")):
        take = plan.take(http(state={"key": "alice", "other": other}))
        assert take is not None
        assert take.on_error == expected


def test_a_key_that_fails_affects_no_other_rule(caplog: pytest.LogCaptureFixture) -> None:
    """The rules are evaluated one by one; the client's address stands for the key that failed."""
    plan = Plan([rule("broken", key=state("broken")), rule("api"), rule("more", HOURLY)])
    scope = http(state={"key": "alice", "broken": object()})
    take = plan.take(scope)
    assert take is not None
    assert take.charges == (
        Charge(QUOTA, "192.0.2.1", 1, "broken"),
        Charge(QUOTA, "alice", 1, "api"),
        Charge(HOURLY, "alice", 1, "more"),
    )
    assert "the key function of 'broken' failed" in caplog.text


@pytest.mark.parametrize("client", [5, (["192.0.2.1"], 1)], ids=["no pair", "no text"])
async def test_a_client_that_makes_no_sense_fails_like_any_key(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    """All such requests share one bucket, and the log says so."""
    take = Plan([rule(key=client_ip())]).take({**http(), "client": client})
    assert take is not None
    assert take.charges == (Charge(QUOTA, UNREADABLE, 1, "api"),)
    assert "the key function of 'api' failed" in caplog.text


# No object for each client


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"key": header("x-client")},
        {"key": by_header},
        {"rules": [Rule("/", "20/minute", key=header("x-client"), name="keys")]},
        {"rules": [Rule("/", lambda connection: "20/minute", name="function")]},
        {"penalty": Penalty("1 hour", after=5)},
    ],
    ids=["address", "header", "function of the key", "rules", "function of the quota", "penalty"],
)
async def test_no_object_stays_for_a_client(options: dict[str, Any]) -> None:
    """The number of objects that the garbage collector walks does not grow with the clients."""
    app = RateLimitMiddleware(ok, "10/minute", store=MemoryStore(max_keys=10, clock=SteppedClock()), **options)

    async def new_clients(block: int) -> int:
        for number in range(300):
            name = b"%d %d" % (block, number)
            scope = http(client=(f"198.{block}.{number // 256}.{number % 256}", 1))
            await ask(app, {**scope, "headers": [(b"x-client", name), (b"x-key", name)]})
        gc.collect()
        return len(gc.get_objects())

    before = [await new_clients(block) for block in (18, 19)]
    assert abs(await new_clients(20) - before[1]) < 100


async def test_no_long_key_stays_in_memory() -> None:
    """A client that sends long keys cannot fill the memory with them."""
    app = RateLimitMiddleware(ok, "10/minute", store=MemoryStore(clock=SteppedClock()), key=by_header)
    peers = [await ask(app, http(headers=[(b"x-key", b"k" * 8192)])) for _ in range(2)]
    assert peers[1].headers["ratelimit"] == '"per-minute";r=8;t=6'
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each) is Charge and len(each.key) > 8000]


async def test_decisions_are_equal_on_all_paths() -> None:
    """What the app reads, a hook gets and ``legacy`` headers report is the same, whichever path has decided."""
    seen: list[Any] = []

    async def app(scope: Scope, receive: Any, send: Any) -> None:
        (decision,) = limits(HTTPConnection(scope)).decisions
        seen.append(decision)
        await ok(scope, receive, send)

    events: list[Any] = []
    plain: dict[str, Any] = {"headers": "both"}
    for options in (plain, {**plain, "hooks": [events.append]}, {**plain, "rules": [Rule("/", "1/s", shadow=True)]}):
        middleware = RateLimitMiddleware(app, "10/minute", store=MemoryStore(clock=SteppedClock()), **options)
        answers = [(await ask(middleware)).headers for _ in range(2)]
        seen.append(answers)
    assert seen[0].take is not None
    assert seen[:3] == seen[3:6] == seen[6:]
    assert [event.decision for event in events] == seen[:2]


@pytest.mark.parametrize("shadow", [False, True])
def test_only_what_a_rule_settles_may_be_settled(shadow: bool) -> None:
    """The store keeps what it takes to give back exactly, where a rule asks for it and nowhere else."""
    settling = rule("settling", settle=lambda status, headers: 0, shadow=shadow)
    plain, shadowed = rule("plain"), rule("shadow", shadow=True)
    assert takes_of(settling, plain, shadowed) == ([False, True, False] if shadow else [True, False])
    assert takes_of(plain, shadowed) == [False, False]
    assert takes_of(plain) == [False]


def takes_of(*rules: CompiledRule) -> list[bool]:
    """Whether each take of a request under these rules may be settled."""
    coroutine = Plan(rules).evaluate(request())
    try:
        coroutine.send(None)
    except StopIteration as done:
        return [take.may_settle for take in done.value.takes]
    raise AssertionError("it waits")
