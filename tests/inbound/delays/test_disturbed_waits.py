"""Waits during which the request is cancelled again and again, or the event loop stalls."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.visitors import Site, Visitor


@pytest.mark.parametrize("stall", [0.15, 0.4, 1.1])
def test_a_stall_of_the_event_loop_makes_nobody_wait_for_longer(stall: float) -> None:
    """Who has missed its slot gets another one within what is left of its max_delay, or is refused."""
    site = Site("5/s burst 1", max_delay=1.0)
    waiting = [Visitor() for _ in range(6)]

    async def stalling() -> None:
        visits = asyncio.ensure_future(site.visit(*waiting))
        await asyncio.sleep(0.05)
        for _ in range(4):
            site.clock.advance(stall)
            await asyncio.sleep(0.01)
        await visits

    site.clock.run(stalling())
    assert any(visitor.status == 429 for visitor in waiting)
    assert max(visitor.answered for visitor in waiting if visitor.answered is not None) <= 1.0 + stall
    assert all(1 <= int(visitor.headers["retry-after"]) <= 2 for visitor in waiting if visitor.status == 429)
