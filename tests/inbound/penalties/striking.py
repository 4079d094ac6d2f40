"""A key whose requests are decided under a quota and a check for blocks, and which gets strikes."""

from __future__ import annotations

from asgi_ratelimit import Blocks, Charge, Decision, Penalty, Store, Take, TokenBucket
from asgi_ratelimit.inbound.penalties import BlockCheck, add_strike, block_check

A_MOMENT = 1 / 1024
"""Seconds by which a block may be shorter."""
QUOTA = TokenBucket(2, 60, name="own")
KEY = "192.0.2.1"


def check_of(key: str, penalty: Penalty) -> BlockCheck:
    """The check of a key that is under this penalty."""
    return block_check("login", key, penalty)


async def decide(store: Store, key: str = KEY) -> Decision:
    """The decision on a request of this key, under a quota and a check for blocks."""
    (decision,) = await store.take((Take((Charge(QUOTA, key, 1, "login"), block_check("login", key))),))
    return decision


async def blocked_for(store: Store, key: str = KEY) -> float:
    return await Blocks(store=store, name="login").blocked_for(key)


async def strike(store: Store, penalty: Penalty, times: int) -> list[float]:
    """The seconds of a block after each of so many strikes in a row."""
    return [await seconds_of_strike(store, penalty) for _ in range(times)]


async def seconds_of_strike(store: Store, penalty: Penalty) -> float:
    """The seconds of the block that a strike has caused, or 0.0."""
    return await add_strike(store, check_of(KEY, penalty))
