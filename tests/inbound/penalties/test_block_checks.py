"""Checks for a block within the takes of requests."""

from __future__ import annotations

import pytest

from asgi_ratelimit import Blocks, Penalty, Store, Take
from asgi_ratelimit.decision import without
from asgi_ratelimit.inbound.penalties import BLOCK, BlockCheck, block_check, is_blocked
from tests.inbound.penalties.striking import A_MOMENT, KEY, QUOTA, blocked_for, decide, strike

pytestmark = pytest.mark.anyio


async def test_a_block_refuses_what_the_quota_would_allow(store: Store) -> None:
    """A blocked request takes nothing from the quota, however often it comes."""
    await Blocks(store=store, name="login").block(KEY, 60)
    for _ in range(10):
        decision = await decide(store)
        assert is_blocked(decision)
        assert [state.allowed for state in decision.states] == [True, False]
    await Blocks(store=store, name="login").lift(KEY)
    assert (await decide(store)).states[0].remaining == 1


async def test_checks_cost_next_to_nothing(store: Store) -> None:
    """Thousands of them at one moment neither fill the bucket nor shorten a block."""
    for _ in range(2_000):
        await store.take((Take((block_check("login", KEY),)),))
    assert await blocked_for(store) == 0.0
    assert await strike(store, Penalty(60), 1) == [60.0]
    assert await blocked_for(store) == pytest.approx(60.0, abs=A_MOMENT)


async def test_a_decision_without_its_checks_is_that_of_its_quotas(store: Store) -> None:
    """Only quotas are reported to clients and settled, whether allowed or refused."""
    for expected in ((True, 1, 0.0), (True, 0, 0.0), (False, 0, 30.0)):
        decision = without(await decide(store), BlockCheck)
        assert (decision.allowed, decision.remaining, decision.retry_after) == expected
        assert [state.quota for state in decision.states] == [QUOTA]
        assert decision.quota is QUOTA
        assert [charge.quota for charge in decision.charges] == [QUOTA]
        assert len(decision.stored) == 1


def test_a_bucket_of_blocks_drains_within_a_millisecond() -> None:
    """So a block that is over does not shorten the next one."""
    assert BLOCK.burst / BLOCK.limit < 0.001
