"""Plans: what a request is charged under the rules that match it, filled with its keys, and cached for no client."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.requests import HTTPConnection
from starlette.types import Scope

from asgi_ratelimit import Charge, MemoryStore, Penalty, RateLimitMiddleware, Rule, Take, TokenBucket, client_ip, limits
from asgi_ratelimit.inbound.plan import Plan
from asgi_ratelimit.inbound.rules import CompiledRule
from asgi_ratelimit.keys import header, state
from asgi_ratelimit.keys.base import UNREADABLE
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import ask, http, ok

pytestmark = pytest.mark.anyio

QUOTA = TokenBucket(10, 60)
HOURLY = TokenBucket(100, 3600)


def rule(name: str = "api", *quotas: TokenBucket, key: Any = None, **options: Any) -> CompiledRule:
    return CompiledRule(name, quotas or (QUOTA,), key or state("key"), **options)


def request(key: str | None = "alice", *headers: tuple[bytes, bytes]) -> Scope:
    return http(state={} if key is None else {"key": key}, headers=list(headers))


def by_header(connection: HTTPConnection) -> str | None:
    return connection.headers.get("x-key")


async def taken(plan: Plan, scope: Scope) -> Take:
    """The one take of a request."""
    (take,) = await takes_of(plan, scope)
    return take


async def takes_of(plan: Plan, scope: Scope) -> Sequence[Take]:
    """The takes of a request, whether its plan knows them at once or not."""
    planned = plan.evaluate(scope)
    takes, _ = planned if isinstance(planned, tuple) else await planned
    return takes


# Keys, quotas and costs


async def test_another_key_is_another_bucket() -> None:
    """Whether the key is read off the scope, or a function returns it, the same key has the same bucket."""
    for plan in (Plan([rule(key=header("x-key"))]), Plan([rule(key=by_header)])):
        takes = [await taken(plan, request(None, (b"x-key", name))) for name in (b"alice", b"alice", b"bob")]
        assert takes[0] == takes[1] != takes[2]
        assert takes[0].charges[0].bucket != takes[2].charges[0].bucket


async def test_each_bucket_is_charged_once() -> None:
    """Two rules of one name and key are one charge, at the cost of the first; two keys are two charges."""
    plan = Plan([rule(cost=2), rule(cost=3), rule(key=state("other"))])
    take = await taken(plan, http(state={"key": "alice", "other": "bob"}))
    assert [(charge.key, charge.cost) for charge in take.charges] == [("alice", 2), ("bob", 1)]
    take = await taken(plan, http(state={"key": "alice", "other": "alice"}))
    assert [(charge.key, charge.cost) for charge in take.charges] == [("alice", 2)]


async def test_the_strictest_rule_with_a_key_decides_without_the_store() -> None:
    """A rule that does not apply does not count."""
    plan = Plan([rule(on_error="allow"), rule("strict", key=state("other"), on_error="deny")])
    for other, expected in (("bob", "deny"), (None, "allow")):
        take = await taken(plan, http(state={"key": "alice", "other": other}))
        assert take.on_error == expected


async def test_a_key_that_fails_affects_no_other_rule(caplog: pytest.LogCaptureFixture) -> None:
    """The rules are evaluated one by one; the client's address stands for the key that failed."""
    plan = Plan([rule("broken", key=state("broken")), rule("api"), rule("more", HOURLY)])
    scope = http(state={"key": "alice", "broken": object()})
    take = await taken(plan, scope)
    assert take.charges == (
        Charge(QUOTA, "\x00192.0.2.1", 1, "broken"),  # which no key of the program is
        Charge(QUOTA, "alice", 1, "api"),
        Charge(HOURLY, "alice", 1, "more"),
    )
    assert "the key function of 'broken' failed" in caplog.text


@pytest.mark.parametrize("client", [5, (["192.0.2.1"], 1)], ids=["no pair", "no text"])
async def test_a_client_that_makes_no_sense_fails_like_any_key(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    """All such requests share one bucket, and the log says so."""
    take = await taken(Plan([rule(key=client_ip())]), {**http(), "client": client})
    assert take.charges == (Charge(QUOTA, f"\0{UNREADABLE}", 1, "api"),)
    assert "the key function of 'api' failed" in caplog.text


# No object for each client


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"key": header("x-client")},
        {"rules": [Rule("/", "20/minute", key=header("x-client"), name="keys")]},
        {"rules": [Rule("/", lambda connection: "20/minute", name="function")]},
        {"penalty": Penalty("1 hour", after=5)},
    ],
    ids=["address", "header", "rules", "function of the quota", "penalty"],
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
    assert await new_clients(20) - before[1] < 100


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
