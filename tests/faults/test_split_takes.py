"""An outage that begins or ends between two parts of a take: the request is still charged all or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import RateLimitMiddleware, RedisStore, Rule, TokenBucket
from asgi_ratelimit.decision import OnError
from asgi_ratelimit.hooks import Event, StoreCall
from asgi_ratelimit.stores.redis.outage import breaker, repayer
from tests.support.asgi import ask, ok
from tests.support.examples import up_to
from tests.support.proxy import Proxy
from tests.support.redis_server import RedisServer
from tests.support.split_takes import returning, used

pytestmark = pytest.mark.anyio

COUNT, FIRST = 45, 50
"""The quotas of each rule, and how many charges the first part of a request has."""


@pytest.fixture(autouse=True)
def _untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that was out is tried again by the next call, and one that closes is charged with all of the ledger."""
    monkeypatch.setattr(breaker, "PROBE_INTERVAL_US", 0.0)
    monkeypatch.setattr(repayer, "CLOSE_WITHIN", 30.0)


def quotas(small: Collection[int | None], limit: float = 5) -> list[list[TokenBucket]]:
    """The quotas of two rules, 100 a year each, but for those at these places. A request costs 5."""
    limits = [limit if at in small else 100 for at in range(2 * COUNT)]
    listed = [TokenBucket(limit, 86_400 * 365, name=f"q{at}") for at, limit in enumerate(limits)]
    return [listed[:COUNT], listed[COUNT:]]


class Line:
    """An app behind a line to Redis. ``then`` is called after each call of the store, and may cut or mend the line."""

    def __init__(
        self,
        line: Proxy,
        server: RedisServer,
        listed: list[list[TokenBucket]],
        on_error: OnError = "local",
        of_rules: bool = False,
        **options: Any,
    ) -> None:
        self._line, self._server, self._quotas = line, server, listed
        self.then: Callable[[], None] = bool
        self.events: list[Event] = []
        self._store = RedisStore(line.url, on_error="local" if of_rules else on_error)
        self._store.observe(self)
        options["on_error"] = on_error if of_rules else None
        rules = [Rule("/", returning(*each), name=f"r{at}", cost=5, **options) for at, each in enumerate(self._quotas)]
        self._app = RateLimitMiddleware(ok, rules=rules, store=self._store, hooks=[self.events.append])

    async def requests(self, count: int = 1) -> list[int]:
        """The statuses of so many requests at once."""
        return [peer.status for peer in await asyncio.gather(*[ask(self._app) for _ in range(count)])]

    async def request(self, then: Callable[[], None] = bool) -> int:
        """The status of a request, after whose first call of the store this happens."""

        def once() -> None:
            self.then = bool
            then()

        self.then = once
        (status,) = await self.requests()
        return status

    def store_called(self, _: StoreCall) -> None:
        self.then()

    def cut(self) -> None:
        """Nothing gets through any more."""
        self._line.target = 1
        self._line.disconnect()

    def mend(self) -> None:
        """Everything gets through."""
        self._line.target = self._server.port

    @property
    def degraded(self) -> list[bool]:
        """Of each request, whether it was decided without the store."""
        return [event.decision.degraded for event in self.events]

    async def used(self) -> list[float]:
        """How many units of each quota are used in Redis, when it has been charged with the ledger."""
        self.then = bool
        self.mend()
        await self._store.aclose()
        store = RedisStore(self._server.url)
        units = [each for at, listed in enumerate(self._quotas) for each in await used(store, f"r{at}", *listed)]
        await store.aclose()
        return units


def in_parts(first: float, second: float) -> list[float]:
    return [first] * FIRST + [second] * (2 * COUNT - FIRST)


BEGINS = [
    ("local", None, 200, [False, True], in_parts(10, 10)),
    ("local", FIRST, 429, [False, True], in_parts(5, 5)),
    ("local", FIRST - 1, 429, [False, False], in_parts(5, 5)),
    ("allow", None, 200, [False, True], in_parts(10, 5)),
    ("allow", FIRST, 200, [False, True], in_parts(10, 5)),
    ("deny", None, 503, [False, True], in_parts(5, 5)),
]


@pytest.mark.parametrize("of_rules", [False, True])
@pytest.mark.parametrize(("on_error", "full", "status", "degraded", "left"), BEGINS)
async def test_an_outage_that_begins_between_two_parts(
    line: Proxy,
    server: RedisServer,
    on_error: OnError,
    full: int | None,
    status: int,
    degraded: list[bool],
    left: list[float],
    of_rules: bool,
) -> None:
    """What Redis has taken is given back there when it is back, if the second part is refused without it."""
    site = Line(line, server, quotas({full}), on_error, of_rules)
    assert await site.request() == 200
    assert await site.request(site.cut) == status
    assert site.degraded == degraded
    assert await site.used() == left


ENDS = [
    ("local", None, 200, [False, True], in_parts(10, 10)),
    ("local", FIRST, 429, [False, False], in_parts(5, 5)),
    ("local", FIRST - 1, 429, [False, True], in_parts(5, 5)),
    ("allow", None, 200, [False, True], in_parts(5, 10)),
    ("allow", FIRST, 429, [False, False], in_parts(5, 5)),
    ("allow", FIRST - 1, 200, [False, True], in_parts(5, 10)),
    ("deny", None, 503, [False, True], in_parts(5, 5)),
]


@pytest.mark.parametrize("of_rules", [False, True])
@pytest.mark.parametrize(("on_error", "full", "status", "degraded", "left"), ENDS)
async def test_an_outage_that_ends_between_two_parts(
    line: Proxy,
    server: RedisServer,
    on_error: OnError,
    full: int | None,
    status: int,
    degraded: list[bool],
    left: list[float],
    of_rules: bool,
) -> None:
    """What this process has taken is charged there, or given back here, as the second part is allowed or refused."""
    site = Line(line, server, quotas({full}), on_error, of_rules)
    assert await site.request() == 200
    site.cut()
    assert await site.request(site.mend) == status
    assert site.degraded == degraded
    assert await site.used() == left


@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize("actual", [0, 2, 7])
async def test_what_is_settled_later_is_settled_where_it_was_taken(
    line: Proxy, server: RedisServer, begins: bool, actual: float
) -> None:
    """One part in Redis, the other in the outage: both come to what the answer says."""
    site = Line(line, server, quotas(()), settle=lambda status, headers: actual)
    assert await site.request() == 200
    if not begins:
        site.cut()
    assert await site.request(site.cut if begins else site.mend) == 200
    assert site.degraded == [False, True]
    assert await site.used() == in_parts(2 * actual, 2 * actual)


@given(
    line_states=st.lists(st.booleans(), max_size=30),
    small=st.sets(st.integers(0, 2 * COUNT - 1), max_size=2),
    at_once=st.integers(1, 3),
)
@up_to(80)
async def test_outages_that_begin_and_end_anywhere(
    server: RedisServer, line_states: list[bool], small: set[int], at_once: int
) -> None:
    """Each bucket is charged for the requests that passed, once each, and for no other."""
    server.flush()
    async with Proxy(server.port) as line:
        site, states = Line(line, server, quotas(small, 15)), iter(line_states)

        def then() -> None:
            site.mend() if next(states, True) else site.cut()

        site.then = then
        statuses = [status for _ in range(6) for status in await site.requests(at_once)]
        assert set(statuses) <= {200, 429}
        assert await site.used() == [5 * statuses.count(200)] * (2 * COUNT)
