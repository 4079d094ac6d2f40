"""Penalties and blocks: how long blocks last, what leads to them, and those by hand; by buckets like any others."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import Blocks, Charge, ConfigurationError, Decision, MemoryStore, Penalty, Store, Take, TokenBucket
from asgi_ratelimit.inbound.penalties import BLOCK, CHECK_COST, BlockCheck, add_strike, is_blocked
from asgi_ratelimit.testing import SteppedClock

pytestmark = pytest.mark.anyio

# Seconds by which a block may be shorter.
A_MOMENT = 1 / 1024
QUOTA = TokenBucket(2, 60, name="own")
KEY = "192.0.2.1"


def check(key: str, penalty: Penalty) -> BlockCheck:
    return BlockCheck(BLOCK, key, CHECK_COST, "login", penalty=penalty)


async def decide(store: Store, key: str = KEY) -> Decision:
    """The decision on a request of this key, under a quota and a check for blocks."""
    (decision,) = await store.take((Take((Charge(QUOTA, key, 1, "login"), check(key, Penalty(60)))),))
    return decision


async def blocked_for(store: Store, key: str = KEY) -> float:
    return await Blocks(store=store, name="login").blocked_for(key)


async def strike(store: Store, penalty: Penalty, times: int, key: str = KEY) -> list[float]:
    """The seconds of a block after each of so many strikes in a row."""
    return [await add_strike(store, check(key, penalty)) for _ in range(times)]


@given(st.floats(0.1, 1e6), st.floats(1, 1000), st.floats(0.1, 34_000_000), st.integers(0, 40), st.integers(1, 2))
def test_a_block_lasts_between_the_shortest_and_the_longest(
    shortest: float, growth: float, longest: float, earlier: int, more: int
) -> None:
    """Blocks never get shorter, and at most as long as ``longest``."""
    shortest, longest = sorted([shortest, longest])
    penalty = Penalty(shortest, growth=growth, longest=longest)
    seconds = penalty.seconds(earlier)
    assert shortest <= seconds <= longest
    assert penalty.seconds(earlier + more) >= seconds
    assert math.isfinite(seconds)


@pytest.mark.parametrize(
    "wrong",
    [{"block_for": each} for each in ("ten minutes", "10 fortnights", "", 0, -1, math.nan, math.inf, None, True)]
    + [{"after": each} for each in (0, 1.5, "5", 2**60)]
    + [{"growth": each} for each in (0.5, math.nan, 1001)]
    + [{"within": "soon"}, {"longest": 0}, {"longest": "1 s"}],
    ids=repr,
)
def test_invalid_penalties_are_refused(wrong: dict[str, Any]) -> None:
    """When they are built; the error quotes the argument and shows a right one."""
    ((name, value),) = wrong.items()
    with pytest.raises(ConfigurationError, match=f"{name}.*(10 minutes|after=5|growth=2)") as refused:
        Penalty(**{"block_for": "1 minute", **wrong})
    assert repr(value) in str(refused.value)


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


async def test_many_strikes_at_once_are_one_block(store: Store) -> None:
    """Of many requests that are refused together one imposes the block, which lasts as long as one."""
    penalty = Penalty(60, after=3)
    seconds = await asyncio.gather(*[strike(store, penalty, 1) for _ in range(50)])
    assert sorted(seconds) == [[0.0]] * 49 + [[60.0]]
    assert await blocked_for(store) == pytest.approx(60.0, abs=A_MOMENT)


async def test_a_block_can_be_lifted(store: Store) -> None:
    """With all that led to it: the next refusal counts as the first one, and the next block is the shortest."""
    penalty, blocks = Penalty(60, after=2, growth=10), Blocks(store=store, name="login")
    await strike(store, penalty, 2)
    await blocks.lift(KEY)
    assert await blocks.blocked_for(KEY) == 0.0
    assert (await decide(store)).allowed
    assert await strike(store, penalty, 2) == [0.0, 60.0]


async def test_a_key_can_be_blocked_by_hand(store: Store) -> None:
    """Once: a second block neither adds to the first nor replaces it."""
    blocks = Blocks(store=store, name="login")
    assert await blocks.block(KEY.encode(), "1 day")
    assert not await blocks.block(KEY, "2 days")
    assert await blocks.blocked_for(KEY) == pytest.approx(86_400, abs=A_MOMENT)


@pytest.mark.parametrize("client", [f"2001:db8:7::{end}" for end in ("/64", "/56", "/48", "1/128", "1")])
async def test_an_ipv6_address_means_its_networks_too(store: Store, client: str) -> None:
    """A client of ``client_ip()`` is a network of 64 bits or fewer; a key function may return the address."""
    blocks = Blocks(store=store, name="login")
    assert await blocks.block("2001:db8:7::1", 60)
    assert (is_blocked(await decide(store, client)), await blocks.blocked_for("2001:db8:7::1") > 0) == (True, True)
    assert not await blocks.block("2001:db8:7::1", 600)
    await blocks.lift("2001:db8:7::1")
    assert not is_blocked(await decide(store, client))


async def test_blocks_by_hand_that_cannot_be_are_refused() -> None:
    """The error quotes the duration, and nobody is blocked."""
    blocks = Blocks(store=MemoryStore())
    with pytest.raises(ConfigurationError, match="'for ever'"):
        await blocks.block(KEY, "for ever")
    assert await blocks.blocked_for(KEY) == 0.0
