"""A key that is refused again and again is blocked for a while, by buckets like any others."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from asgi_ratelimit import Blocks, Penalty, Store, Take
from asgi_ratelimit.inbound.penalties import add_strike, block_check, is_blocked
from asgi_ratelimit.testing import SteppedClock
from tests.inbound.penalties.striking import A_MOMENT, KEY, blocked_for, check_of, decide, seconds_of_strike, strike

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("after", [1, 2, 5])
async def test_a_key_is_blocked_after_so_many_strikes(store: Store, after: int) -> None:
    """By exactly the last of them, not before; another key is not touched."""
    assert await strike(store, Penalty("10 minutes", after=after), after) == [0.0] * (after - 1) + [600.0]
    assert await blocked_for(store) == pytest.approx(600.0, abs=A_MOMENT)
    assert await blocked_for(store, "192.0.2.2") == 0.0


@pytest.mark.parametrize("block_for", ["10 minutes", 0.1, 1.5, "1 hour", "400 days"])
async def test_a_block_lasts_exactly_as_long(store: Store, clock: SteppedClock, block_for: Any) -> None:
    """Refused just before its end, allowed at it: ``retry_after`` is exact to the microsecond."""
    assert await Blocks(store=store, name="login").block(KEY, block_for)
    refused = await decide(store)
    assert is_blocked(refused)
    seconds = {"10 minutes": 600, "1 hour": 3600, "400 days": 400 * 86_400}.get(block_for, block_for)
    assert refused.retry_after == pytest.approx(seconds, abs=A_MOMENT)
    clock.advance(refused.retry_after - 1e-6)
    assert not (await decide(store)).allowed
    clock.advance(1e-6)
    assert (await decide(store)).allowed
    assert refused.retry_after <= seconds


async def test_after_a_block_all_requests_pass(store: Store, clock: SteppedClock) -> None:
    """Thousands of them at the very moment of its end."""
    await Blocks(store=store, name="login").block(KEY, "10 minutes")
    clock.advance(600)
    for _ in range(2_000):
        (decision,) = await store.take((Take((block_check("login", KEY),)),))
        assert decision.allowed


async def test_after_a_block_the_next_one_may_follow_at_once(store: Store, clock: SteppedClock) -> None:
    """After the same number of strikes, and for the same time."""
    penalty = Penalty(60, after=3)
    for _ in range(3):
        assert await strike(store, penalty, 3) == [0.0, 0.0, 60.0]
        clock.advance(60)


async def test_blocks_grow_with_growth(store: Store, clock: SteppedClock) -> None:
    """Twice as long each time, up to the longest; one a day is forgotten."""
    penalty, seen = Penalty("1 hour", growth=2, longest="5 hours"), []
    for _ in range(4):
        seen += await strike(store, penalty, 1)
        clock.advance(seen[-1])
    assert seen == [3600, 7200, 14_400, 18_000]
    clock.advance(20 * 86_400)
    assert await strike(store, penalty, 1) == [3600]


async def test_strikes_are_forgotten_in_time(store: Store, clock: SteppedClock) -> None:
    """Those further apart than ``within`` do not add up."""
    penalty = Penalty("1 hour", after=2, within="1 minute")
    for _ in range(5):
        assert await strike(store, penalty, 1) == [0.0]
        clock.advance(62)
    assert await strike(store, penalty, 2) == [0.0, 3600.0]


async def test_a_blocked_key_gets_no_strikes(store: Store) -> None:
    """A refusal by another process that does not know of the block yet does not extend it."""
    penalty = Penalty(60, after=2, growth=2)
    assert await strike(store, penalty, 10) == [0.0, 60.0, *[0.0] * 8]
    assert await blocked_for(store) == pytest.approx(60.0, abs=A_MOMENT)


async def test_many_strikes_at_once_are_one_block(store: Store) -> None:
    """Of many requests that are refused together one imposes the block, which lasts as long as one."""
    penalty = Penalty(60, after=3)
    seconds = await asyncio.gather(*[seconds_of_strike(store, penalty) for _ in range(50)])
    assert sorted(seconds) == [0.0] * 49 + [60.0]
    assert await blocked_for(store) == pytest.approx(60.0, abs=A_MOMENT)


async def test_a_block_is_logged(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """Once, with the rule and the key, whose control characters are escaped."""
    await add_strike(store, check_of("a\nb", Penalty(60)))
    await add_strike(store, check_of("a\nb", Penalty(60)))
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, "the key 'a\\nb' is blocked by the rule 'login' for 60 s")
    ]
