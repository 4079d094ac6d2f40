"""Costs by name, invalid costs and partial grants: on each store, for each kind of quota."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from asgi_ratelimit import Charge, ConfigurationError, Limiter, Store, Take
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from tests.support.giving_back import BUCKET, FIXED, KINDS, ROLLING, remaining_units

pytestmark = pytest.mark.anyio


NAMED = [FixedWindow(10, 60, name="requests"), TokenBucket(1000, 60, name="tokens")]


async def states(limiter: Limiter) -> list[int]:
    return [state.remaining for state in (await limiter.peek("key")).states]


async def test_costs_by_name_are_one_take(store: Store) -> None:
    """Each quota has its own, and where one refuses, none is charged."""
    limiter = Limiter(NAMED, store=store)
    assert (await limiter.rate_limit("key", {"requests": 1, "tokens": 600})).allowed
    refused = await limiter.rate_limit("key", {"requests": 1, "tokens": 600})
    assert (refused.allowed, refused.quota.name, refused.retry_after) == (False, "tokens", 12)
    assert await states(limiter) == [9, 400]


async def test_only_named_quotas_are_charged(store: Store) -> None:
    """The others stay as they are."""
    limiter = Limiter(NAMED, store=store)
    decision = await limiter.pace("key", {"tokens": 10})
    assert [state.quota.name for state in decision.states] == ["tokens"]
    assert await states(limiter) == [10, 990]


@pytest.mark.parametrize("cost", [{"tokns": 1}, {"requests": 1, "tokns": 1}, {}])
async def test_a_name_that_no_quota_has(store: Store, cost: dict[str, float]) -> None:
    """The error quotes it and the valid names, and nothing is charged."""
    limiter = Limiter(NAMED, store=store)
    wrong = [name for name in cost if name == "tokns"]
    for verb in (limiter.rate_limit, limiter.pace, limiter.peek):
        with pytest.raises(ValueError, match="but the quotas are 'requests', 'tokens'") as raised:
            await verb("key", cost)
        assert repr(wrong) in str(raised.value)
    assert await states(limiter) == [10, 1000]


async def test_a_refund_by_name(store: Store) -> None:
    """Quotas that are not named give nothing back."""
    limiter = Limiter(NAMED, store=store)
    decision = await limiter.rate_limit("key", {"requests": 1, "tokens": 600})
    await limiter.refund(decision, {"tokens": 500})
    assert await states(limiter) == [9, 900]


WRONG = [-1, -0.5, math.nan, math.inf, 2**53 + 1, "1", None]


@pytest.mark.parametrize("cost", WRONG, ids=repr)
async def test_invalid_actual_costs(store: Store, cost: Any) -> None:
    """An actual cost may be 0, but is otherwise restricted like a cost; a refund of ``None`` gives back all."""
    limiter = Limiter(FIXED, store=store)
    decision = await limiter.rate_limit("key", 6)
    for verb in (limiter.settle, *([limiter.refund] if cost is not None else [])):
        with pytest.raises(ValueError, match=r"^cost must be a finite number from 0 up"):
            await verb(decision, cost)
    assert await remaining_units(limiter) == 4


THREE = [replace(FIXED, name="ten"), TokenBucket(5, name="five"), RollingWindow(8, 60, name="eight")]


@pytest.mark.parametrize(("cost", "granted"), [(1, 1), (0.5, 0.5), (4, 4), (4.5, 4.5), (5, 5), (6, 5), (1e9, 5)])
async def test_a_best_effort_grants_what_every_quota_has(store: Store, cost: float, granted: float) -> None:
    """The least that remains, in whole units, is charged to each; ``granted`` is that amount."""
    limiter = Limiter(THREE, store=store)
    decision = await limiter.rate_limit("key", cost, best_effort=True)
    assert (decision.allowed, decision.granted) == (True, granted)
    assert await states(limiter) == [math.floor(most - granted) for most in (10, 5, 8)]


@pytest.mark.parametrize(
    ("quota", "used", "retry_after"), [(BUCKET, 10, 0.1), (BUCKET, 9.5, 0.05), (FIXED, 10, 10), (ROLLING, 9.5, 11)]
)
async def test_a_best_effort_below_one_is_refused(store: Store, quota: Quota, used: float, retry_after: float) -> None:
    """``retry_after`` is the time until one unit is available, not until the whole cost is."""
    limiter = Limiter(quota, store=store)
    await limiter.rate_limit("key", used)
    refused = await limiter.rate_limit("key", 8, best_effort=True)
    assert (refused.allowed, refused.granted, refused.retry_after) == (False, 0, retry_after)


@KINDS
@pytest.mark.parametrize(("given", "remaining"), [(None, 7), (2, 2)])
async def test_a_partial_grant_gives_back_what_was_granted(
    store: Store, quota: Quota, given: float | None, remaining: int
) -> None:
    """It does not give back the requested cost."""
    limiter = Limiter(quota, store=store)
    await limiter.rate_limit("key", 3)
    partial = await limiter.rate_limit("key", 50, best_effort=True)
    with pytest.raises(ValueError, match="more than was charged"):
        await limiter.refund(partial, 8)
    await limiter.refund(partial, given)
    assert await remaining_units(limiter) == remaining


async def test_a_best_effort_needs_one_cost_and_does_not_wait(store: Store) -> None:
    """Quotas of tokens and of requests have no amount in common that could be granted; it takes what is there now."""
    with pytest.raises(ConfigurationError, match="best_effort needs one cost for all charges"):
        await Limiter(NAMED, store=store).rate_limit("key", {"requests": 1, "tokens": 50}, best_effort=True)
    with pytest.raises(ConfigurationError, match=r"best_effort .* cannot wait"):
        Take((Charge(FIXED, "key"),), 0.001, best_effort=True)
