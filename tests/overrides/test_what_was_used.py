"""What was used stays used, when an override begins and when it ends."""

from __future__ import annotations

import pytest

from asgi_ratelimit import Limiter, Overrides
from asgi_ratelimit.stores import Store
from tests.support.overriding import until

pytestmark = pytest.mark.anyio

KINDS = ["hour", "week fixed", "hour rolling"]


async def test_what_is_used_under_an_override_counts_when_it_ends(shared: tuple[Store, Overrides]) -> None:
    """Under a higher one and under a lower one, for each kind of quota."""
    store, overrides = shared
    higher, lower = ([Limiter(f"5/{kind}", store=store, name=f"{kind} {way}") for kind in KINDS] for way in "hl")
    limiters = [*higher, *lower]
    assert [(await limiter.rate_limit("key", 2)).remaining for limiter in limiters] == [3] * 6
    for limit, limiters_of_way in [(8, higher), (4, lower)]:
        for limiter, kind in zip(limiters_of_way, KINDS):
            await overrides.set(limiter.name, f"{limit}/{kind}")
    await until(lambda: [limiter.quotas[0].limit for limiter in limiters] == [8] * 3 + [4] * 3)
    assert [(await limiter.rate_limit("key", 5)).remaining for limiter in higher] == [1] * 3
    assert [(await limiter.rate_limit("key", 2)).remaining for limiter in lower] == [0] * 3
    assert [(await limiter.rate_limit("new", 4)).remaining for limiter in limiters] == [4] * 3 + [0] * 3
    for limiter in limiters:
        await overrides.unset(limiter.name)
    await until(lambda: [limiter.quotas[0].limit for limiter in limiters] == [5] * 6)
    assert [(await limiter.rate_limit("key")).allowed for limiter in limiters] == [False] * 3 + [True] * 3
    assert [(await limiter.peek("key")).remaining for limiter in limiters] == [0] * 6
    assert [(await limiter.peek("new")).remaining for limiter in limiters] == [1] * 6
