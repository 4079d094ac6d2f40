"""Requests that are charged more than one take may: their quotas, and what is left in their buckets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asgi_ratelimit import Charge, Quota, Rule, Take, TokenBucket
from asgi_ratelimit.stores import Store

ADDRESS = "192.0.2.1"
KEYS = ("ann", "bob", "dora")
"""The keys of three rules, whose buckets are each on another node of a ``RedisCluster``."""


def quotas(count: int, last: float = 100, start: str = "q") -> list[TokenBucket]:
    """Quotas of 100 an hour, and a last one of another limit."""
    numbers = [100.0] * (count - 1) + [last]
    return [TokenBucket(limit, 3600, name=f"{start}{number}") for number, limit in enumerate(numbers)]


def returning(*listed: Quota) -> Any:
    """A function of the request that returns these quotas, which nothing counts at start-up."""
    return lambda request: list(listed)


async def used(store: Store, name: str, *listed: TokenBucket, key: str = ADDRESS) -> list[float]:
    """How many units of each quota are used."""
    charges = tuple([Charge(quota, key, 1, name) for quota in listed])
    states = (await store.peek(Take(charges))).states
    return [quota.burst - state.remaining for quota, state in zip(listed, states)]


def keyed(number: int, *listed: Quota, **options: Any) -> Rule:
    """A rule with the name and the key of this number, whose function returns these quotas."""
    key = KEYS[number]
    return Rule("/", returning(*listed), key=lambda connection: key, **{"name": key, **options})


async def all_used(store: Store, listed: Sequence[Sequence[TokenBucket]]) -> list[set[float]]:
    """How many units of the quotas of each ``keyed`` rule are used: one number where it is the same of all."""
    return [set(await used(store, KEYS[at], *each, key=KEYS[at])) for at, each in enumerate(listed)]
