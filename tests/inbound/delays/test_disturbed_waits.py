"""Waits during which the request is cancelled again and again, or the event loop stalls."""

from __future__ import annotations

import asyncio

import pytest

from asgi_ratelimit import Rule
from tests.support.visitors import Site, Visitor


@pytest.mark.parametrize("other", [None, "9/minute"])
@pytest.mark.parametrize("steps", range(8))
@pytest.mark.parametrize("cancels", [1, 2, 3])
@pytest.mark.parametrize("at", [0.0, 10.0])
def test_a_request_that_is_cancelled_again_and_again_gives_its_slot_back(
    at: float, cancels: int, steps: int, other: str | None
) -> None:
    """At any step of the loop after it has begun to wait or its slot has come, each time one step later."""
    site = Site("1/10s burst 1", rules=[Rule("/", other)] if other else (), max_delay=15.0)

    async def cancel() -> list[float | None]:
        await site.visit(Visitor())
        visitor = Visitor(at=site.now)
        task = asyncio.ensure_future(site.visit(visitor))
        await asyncio.sleep(at)
        for _ in range(steps):
            await asyncio.sleep(0)
        for _ in range(cancels if visitor.entered is None else 0):
            task.cancel()
            await asyncio.sleep(0)
        await asyncio.wait((task,))
        return [visitor.entered, *await site.visit(Visitor(at=11.0))]

    entered, later = site.clock.run(cancel())
    assert later == (11.0 if entered is None else 20.0)


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
