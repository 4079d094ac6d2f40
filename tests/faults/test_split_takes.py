"""An outage that begins or ends between two parts of a take: the request is still charged all or nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from asgi_ratelimit import RateLimitMiddleware, RedisStore, Rule, TokenBucket
from asgi_ratelimit.decision import OnError
from asgi_ratelimit.hooks import Event, StoreCall
from asgi_ratelimit.stores.redis.outage import breaker
from tests.support.asgi import Peer, ask, ok
from tests.support.proxy import Proxy
from tests.support.redis_server import RedisServer
from tests.support.split_takes import returning, used

pytestmark = pytest.mark.anyio

COUNT, FIRST = 45, 50
"""The quotas of each rule, and how many charges the first part of a request has."""


@pytest.fixture(autouse=True)
def _probed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that was out is tried again by the next call."""
    monkeypatch.setattr(breaker, "PROBE_INTERVAL_US", 0.0)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A Redis for this module."""
    with RedisServer() as own:
        yield own


@pytest.fixture
async def line(server: RedisServer) -> AsyncIterator[Proxy]:
    """A line to that Redis, which has no keys."""
    server.flush()
    async with Proxy(server.port) as own:
        yield own


def quotas(full: int | None) -> list[list[TokenBucket]]:
    """The quotas of two rules, 100 a year each; that at the place ``full`` is used up by a single request of cost 5."""
    limits = [5 if at == full else 100 for at in range(2 * COUNT)]
    listed = [TokenBucket(limit, 86_400 * 365, name=f"q{at}") for at, limit in enumerate(limits)]
    return [listed[:COUNT], listed[COUNT:]]


class Line:
    """An app behind a line to Redis, which is cut or mended after the next call."""

    def __init__(
        self,
        line: Proxy,
        server: RedisServer,
        full: int | None = None,
        on_error: OnError = "local",
        of_rules: bool = False,
        **options: Any,
    ) -> None:
        self._line, self._server, self._quotas = line, server, quotas(full)
        self._then: Callable[[], None] = bool
        self.events: list[Event] = []
        self._store = RedisStore(line.url, on_error="local" if of_rules else on_error)
        self._store.observe(self)
        options["on_error"] = on_error if of_rules else None
        rules = [Rule("/", returning(*each), name=f"r{at}", cost=5, **options) for at, each in enumerate(self._quotas)]
        self._app = RateLimitMiddleware(ok, rules=rules, store=self._store, hooks=[self.events.append])

    async def request(self, then: Callable[[], None] = bool) -> Peer:
        """Send a request, in which this happens after the first call of the store."""
        self._then = then
        return await ask(self._app)

    def store_called(self, _: StoreCall) -> None:
        then, self._then = self._then, bool
        then()

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
    site = Line(line, server, full, on_error, of_rules)
    assert (await site.request()).status == 200
    assert (await site.request(site.cut)).status == status
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
    site = Line(line, server, full, on_error, of_rules)
    assert (await site.request()).status == 200
    site.cut()
    assert (await site.request(site.mend)).status == status
    assert site.degraded == degraded
    assert await site.used() == left


@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize("actual", [0, 2, 7])
async def test_what_is_settled_later_is_settled_where_it_was_taken(
    line: Proxy, server: RedisServer, begins: bool, actual: float
) -> None:
    """One part in Redis, the other in the outage: both come to what the answer says."""
    site = Line(line, server, settle=lambda status, headers: actual)
    assert (await site.request()).status == 200
    if not begins:
        site.cut()
    assert (await site.request(site.cut if begins else site.mend)).status == 200
    assert site.degraded == [False, True]
    assert await site.used() == in_parts(2 * actual, 2 * actual)
