"""Penalties over requests: what a blocked client receives, and that nobody else is affected."""

from __future__ import annotations

import math
from itertools import count
from typing import Any
from unittest import mock

import pytest
from fastapi import Depends, FastAPI
from fastapi.responses import PlainTextResponse
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import Blocks, Penalty, RateLimit, RateLimited, RateLimitMiddleware, RedisStore, Rule, TokenBucket
from asgi_ratelimit.errors import ConfigurationError, StoreError
from asgi_ratelimit.hooks import Event
from asgi_ratelimit.stores import MemoryStore, Store
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import ask, http, ok
from tests.support.redis_cluster import script_calls
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.anyio

CLIENT = "192.0.2.1"
OTHER = http(client=("192.0.2.2", 50_000))
PENALTY = Penalty("10 minutes", after=3)
LOGIN = Rule("/login", "2/minute fixed", penalty=PENALTY, name="login")


def guarded(store: Store, quota: Any = "2/minute fixed", **options: Any) -> RateLimitMiddleware:
    """An app that blocks a client for ten minutes after three refusals."""
    return RateLimitMiddleware(ok, quota, store=store, **{"penalty": PENALTY, **options})


async def statuses(app: Any, times: int, scope: Any = None) -> list[int]:
    return [(await ask(app, scope)).status for _ in range(times)]


def kind(problem: dict[str, Any]) -> str:
    """The type of problem details, without the URL of its registry."""
    text: str = problem["type"]
    return text.partition("#")[2]


async def test_a_request_that_costs_nothing_is_not_blocked(store: Store) -> None:
    rule = Rule("/{any:path}", "2/minute fixed", cost=lambda request: len(request.url.path) - 1, penalty=PENALTY)
    app = guarded(store, "99/minute", penalty=None, rules=[rule])
    assert await statuses(app, 6, http("/a")) == [200] * 2 + [429] * 4
    assert await statuses(app, 1, http("/")) == [200]


async def test_a_client_that_is_refused_again_and_again_is_blocked(store: Store) -> None:
    """Two requests pass, two are over the limit, and the third refusal and all later ones are by the block."""
    app = guarded(store)
    peers = [await ask(app) for _ in range(7)]
    assert [peer.status for peer in peers] == [200] * 2 + [429] * 5
    assert [kind(peer.problem) for peer in peers[2:]] == ["quota-exceeded"] * 2 + ["abnormal-usage-detected"] * 3
    assert [peer.headers["retry-after"] for peer in peers[4:]] == ["600"] * 3
    assert not any("ratelimit" in name for peer in peers[4:] for name in peer.headers)


async def test_the_wait_for_a_new_block_is_all_of_it(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """Also where requests may wait for a slot. The log says once a minute that a rule blocks, and names no key."""
    options = {"penalty": Penalty("10 minutes"), "max_delay": 20.0, "key": lambda each: each["client"][0].encode()}
    app = guarded(store, "1/minute", name=f"on {store}", **options)
    for client in ("ann@shop", "bob@shop"):
        *_, refused = [await ask(app, http(client=(client, 1))) for _ in range(2)]
        assert (kind(refused.problem), refused.headers["retry-after"]) == ("abnormal-usage-detected", "600")
    assert [each.partition(" by ")[0] for each in caplog.messages] == ["a key is blocked"]


async def test_a_quota_may_take_longer_than_the_block(store: Store, clock: SteppedClock) -> None:
    """Then Retry-After is the time of the quota, from the refusal on that blocks: the same request passes after it."""
    seen: list[Event] = []
    app = guarded(store, "2/hour", penalty=Penalty("10 minutes"), hooks=[seen.append])
    peers = [await ask(app) for _ in range(5)]
    assert [peer.status for peer in peers] == [200, 200, 429, 429, 429]
    assert [peer.headers["retry-after"] for peer in peers[2:]] == ["1800"] * 3
    assert [kind(peer.problem) for peer in peers[2:]] == ["abnormal-usage-detected"] * 3
    assert [event.decision.quota.name for event in seen[2:]] == ["penalty-block"] * 3
    clock.advance(1799)
    assert (await ask(app)).status == 429
    clock.advance(600)
    assert (await ask(app)).status == 200


@pytest.mark.parametrize("period", [60, 0.8])
async def test_a_block_may_be_over_before_its_answer(period: float) -> None:
    """As where a process is held up: the quota has refused, even if it would not now, and nothing else is reported."""
    clock = mock.Mock(**{"now_us.side_effect": count(10**15, 150_000)})
    app = guarded(MemoryStore(clock=clock), TokenBucket(1, period, name="own"), penalty=Penalty(0.1))
    seen = [(each.status, each.headers["ratelimit-policy"][:5]) for each in [await ask(app) for _ in range(2)]]
    assert seen == [(200, '"own"'), (429, '"own"')]


async def test_nobody_else_is_blocked(store: Store) -> None:
    """Other clients pass, and so does the same client under other rules."""
    app = RateLimitMiddleware(ok, "100/minute", rules=[LOGIN], store=store)
    assert await statuses(app, 6, http("/login")) == [200] * 2 + [429] * 4
    assert await statuses(app, 2) == [200] * 2
    assert await statuses(app, 2, http("/login", client=OTHER["client"])) == [200] * 2


@pytest.mark.usefixtures("unpublished", "unwatched")
async def test_a_request_is_one_call_to_redis_and_none_for_a_blocked_client(
    redis_url: str, redis_server: RedisServer
) -> None:
    """The check for a block is part of the same take, and the denial cache holds blocks."""
    clock = SteppedClock()
    store = RedisStore(redis_url, clock=clock, timeout=30)
    app = guarded(store, rules=[Rule("/{rest:path}", "100/s", penalty=PENALTY, name="rule")])
    await ask(app)
    before = script_calls(redis_server)
    await ask(app)
    assert script_calls(redis_server) == before + 1
    await statuses(app, 4)
    clock.advance(0.001)
    await ask(app)
    before = script_calls(redis_server)
    assert await statuses(app, 50) == [429] * 50
    assert script_calls(redis_server) == before
    await store.aclose()


STEPS = st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.5, 1.0, 3.0, 9.9, 10.0]), max_size=60)


@given(STEPS, st.integers(1, 4))
async def test_a_block_holds_for_any_history(steps: list[float], after: int) -> None:
    """No request passes before the reported end, none is blocked after it, and each last strike causes a block."""
    clock = SteppedClock()
    app = guarded(MemoryStore(clock=clock), "2/s fixed", penalty=Penalty(10, after=after, within="1 day"))
    blocked_until, refusals = 0.0, 0
    for step in steps:
        clock.advance(step)
        peer = await ask(app)
        is_block = peer.status == 429 and kind(peer.problem) == "abnormal-usage-detected"
        if clock.now < blocked_until:
            assert is_block
            assert int(peer.headers["retry-after"]) == math.ceil(blocked_until - clock.now)
            continue
        refusals += peer.status == 429
        assert is_block == (refusals == after)
        if is_block:
            blocked_until, refusals = clock.now + 10, 0


async def test_only_the_refusing_rule_counts_a_strike(store: Store) -> None:
    """One with enough left does not, although it is in the same take, nor one in shadow, which refuses nobody."""
    roomy = Rule("/", "100/minute", penalty=Penalty("1 day"), name="roomy")
    shadow = Rule("/", "1/minute", shadow=True, penalty=Penalty("10 minutes"), name="shadow")
    app = RateLimitMiddleware(ok, "2/minute", rules=[roomy, shadow], store=store)
    assert await statuses(app, 5) == [200] * 2 + [429] * 3
    assert [await Blocks(store=store, name=name).blocked_for(CLIENT) for name in ("roomy", "shadow")] == [0.0, 0.0]


async def test_a_dependency_may_have_a_penalty(store: Store) -> None:
    """Also in an app with its own answer for refusals: with a block, it reports no quota, which would end earlier."""
    app = FastAPI(exception_handlers={RateLimited: lambda request, error: PlainTextResponse("no", 418, error.headers)})
    limit = RateLimit("1/minute", penalty=Penalty("1 hour", after=2), store=store, name="dependency")
    app.add_api_route("/", lambda: "fine", dependencies=[Depends(limit)])
    answers = [await ask(app) for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 418, 418, 418]
    assert ["ratelimit" in answer.headers for answer in answers] == [True, True, False, False]
    assert await Blocks(store=store, name="dependency").blocked_for(CLIENT) == pytest.approx(3600, abs=0.001)


@pytest.mark.parametrize(("on_error", "expected"), [("deny", 503), ("allow", 200), ("local", 429)])
async def test_an_outage_blocks_nobody(server: RedisServer, on_error: Any, expected: int) -> None:
    """Refusals without the store, or by this process alone, count no strikes."""
    store = RedisStore(server.url, on_error=on_error, timeout=30)
    app = guarded(store, "1/hour", penalty=Penalty("1 hour"))
    server.stop()
    assert (await statuses(app, 5))[-1] == expected
    peer = await ask(app)
    assert expected == 200 or kind(peer.problem) != "abnormal-usage-detected"
    await store.aclose()


async def test_blocks_raise_while_the_store_is_out(server: RedisServer) -> None:
    """A program that blocks a key must see that this failed, whatever requests get meanwhile."""
    blocks = Blocks(store=RedisStore(server.url, timeout=30))
    server.stop()
    for call in (blocks.block(CLIENT, 60), blocks.blocked_for(CLIENT), blocks.lift(CLIENT)):
        with pytest.raises(StoreError):
            await call
    await blocks.aclose()


def test_a_penalty_without_a_quota_is_refused() -> None:
    """It would never count anything: it is refused at start-up."""
    for build in (
        lambda: guarded(MemoryStore(), None),
        lambda: RateLimitMiddleware(ok, rules=[Rule("/", None, penalty=PENALTY)]),
        lambda: RateLimitMiddleware(ok, rules=[Rule("/", None, messages="1/s", penalty=PENALTY)]),
    ):
        with pytest.raises(ConfigurationError, match=r"Penalty\(.*has no quota"):
            build()
