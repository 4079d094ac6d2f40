"""Tickets: slots that one process books and another one uses, and how many are booked ahead."""

from __future__ import annotations

import contextlib
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import Limiter, PaceTimeout, RedisStore, SyncLimiter, Ticket
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import MemoryStore, Store
from asgi_ratelimit.testing import SteppedClock
from tests.support.histories import Ledger
from tests.support.strategies import quotas

pytestmark = pytest.mark.anyio

GUILD = FixedWindow(10, 10)
QUOTAS = pytest.mark.parametrize(
    "quota",
    [TokenBucket(10, 10, burst=1), TokenBucket(10, 10), GUILD, RollingWindow(10, 10, buckets=10)],
    ids=["even", "bucket", "fixed", "rolling"],
)


@QUOTAS
async def test_a_ticket_is_the_slot_that_pace_would_book(store: Store, clock: SteppedClock, quota: Quota) -> None:
    """It has the time of that slot, and redeeming it returns the time that is left."""
    booked = await Limiter(quota, store=store, name="other").pace("guild", 3)
    limiter = Limiter(quota, store=store, name="jobs")
    tickets = [await limiter.reserve("guild", 3) for _ in range(6)]
    assert (tickets[0].ready_at, tickets[0].delay) == (booked.ready_at, booked.delay)
    last = tickets[-1]
    assert last.ready_at == pytest.approx(clock.now + last.delay, abs=2e-6)
    assert last.delay > 1
    clock.advance(last.delay - 0.5)
    decision = await limiter.redeem(str(last))
    assert (decision.allowed, decision.granted, decision.ready_at) == (True, 3, last.ready_at)
    assert decision.delay == pytest.approx(0.5, abs=2e-6)


async def test_a_ticket_does_not_compete_again(store: Store, clock: SteppedClock) -> None:
    """Later callers are behind it, and redeeming it charges nothing."""
    limiter = Limiter(GUILD, store=store)
    tickets = [await limiter.reserve("guild") for _ in range(25)]
    assert [ticket.delay for ticket in tickets] == [0.0] * 10 + [10.0] * 10 + [20.0] * 5
    clock.advance(20)
    assert (await limiter.peek("guild")).remaining == 5
    assert [(await limiter.redeem(ticket)).delay for ticket in tickets[20:]] == [0.0] * 5
    assert (await limiter.peek("guild")).remaining == 5


@pytest.mark.parametrize(("late", "delay"), [(0.0, 0.0), (5.0, 0.0), (5.001, 5.0 - 5.001 + 2.0)])
async def test_a_late_ticket_books_again(store: Store, clock: SteppedClock, late: float, delay: float) -> None:
    """Beyond the tolerance, its slot is lost, and the new one is behind all that are booked."""
    limiter = Limiter("1/s burst 1", store=store)
    ticket = await limiter.reserve("guild")
    clock.advance(late)
    for _ in range(2 if late > 5 else 0):
        await limiter.pace("guild")
    decision = await limiter.redeem(ticket)
    assert decision.allowed
    assert decision.delay == pytest.approx(2.0 if late > 5 else delay)


async def test_tickets_of_an_outage_of_the_workers_do_not_all_go_at_once(clock: SteppedClock) -> None:
    """A thousand tickets are late: all of them book again, within the quota."""
    limiter, ledger = Limiter("10/s burst 1", store=MemoryStore(clock=clock)), Ledger(TokenBucket(10, burst=1))
    texts = [str(await limiter.reserve("guild")) for _ in range(1000)]
    clock.advance(600)
    for text in texts:
        ledger.admit(round((await limiter.redeem(text)).ready_at * 1e6), 1)
    ledger.require_ceiling()


async def test_the_tolerance_is_an_argument(store: Store, clock: SteppedClock) -> None:
    """It can be shorter or longer than the lateness."""
    limiter = Limiter("1/s burst 1", store=store)
    ticket = await limiter.reserve("guild")
    await limiter.pace("guild")
    clock.advance(1)
    assert (await limiter.redeem(ticket, late_tolerance=1)).delay == 0.0
    assert (await limiter.redeem(ticket, late_tolerance=0.5)).delay == 1.0


@QUOTAS
async def test_a_ticket_can_be_cancelled(store: Store, quota: Quota) -> None:
    """From its text alone, once, and the bucket is exactly as before."""
    limiter = Limiter(quota, store=store)
    await limiter.reserve("guild", 5)
    before = await limiter.waiting("guild"), (await limiter.pace("guild", 10)).delay
    await limiter.reset("guild")
    await limiter.reserve("guild", 5)
    ticket = Ticket.parse(str(await limiter.reserve("guild", 10)))
    await limiter.cancel(ticket)
    await limiter.cancel(ticket)
    assert (await limiter.waiting("guild"), (await limiter.pace("guild", 10)).delay) == before


@QUOTAS
async def test_waiting_counts_the_units_booked_ahead(store: Store, clock: SteppedClock, quota: Quota) -> None:
    """It goes down as the slots come, and cancelled slots do not count."""
    limiter = Limiter(quota, store=store)
    assert await limiter.waiting("guild") == 0
    now = math.floor(quota.most)
    for _ in range(now):
        await limiter.reserve("guild")
    assert await limiter.waiting("guild") == 0
    tickets = [await limiter.reserve("guild") for _ in range(30)]
    assert await limiter.waiting("guild") == 30
    assert await limiter.waiting("other") == 0
    await limiter.cancel(tickets[3])
    await limiter.cancel(tickets[29])
    assert await limiter.waiting("guild") == 28
    clock.move_to(tickets[28].ready_at)
    assert await limiter.waiting("guild") == 0


async def test_waiting_is_that_of_the_quota_that_the_others_wait_for(store: Store) -> None:
    """The quick quota is booked for the same times, but its number is not the answer."""
    limiter = Limiter([TokenBucket(1, burst=1, name="slow"), TokenBucket(10, burst=10, name="quick")], store=store)
    for _ in range(4):
        await limiter.reserve("guild")
    assert await limiter.waiting("guild") == 3


async def test_guilds_in_one_queue(clock: SteppedClock) -> None:
    """Ten calls in ten seconds for each guild, and no call overtakes an earlier one of its guild."""
    limiter = Limiter(GUILD, store=MemoryStore(clock=clock))
    tickets: dict[str, list[Ticket]] = {"a": [], "b": [], "c": []}
    for number in range(90):
        guild = "a" if number % 2 else "bc"[number % 4 // 2]
        tickets[guild].append(await limiter.reserve(guild))
        clock.advance(0.05)
    for booked in tickets.values():
        times = [ticket.ready_at for ticket in booked]
        assert times == sorted(times)
        assert all(sum(t // 10 == time // 10 for t in times) <= 10 for time in times)


@given(name=st.text(min_size=1), key=st.text(), cost=st.floats(0.1, 100), quota=quotas("q"))
def test_a_ticket_is_its_text(name: str, key: str, cost: float, quota: Quota) -> None:
    """Parsing restores every ticket, and its text has only letters, digits, ``-`` and ``_``."""
    limiter = SyncLimiter(quota, store=MemoryStore(clock=SteppedClock()), name=name)
    ticket = limiter.reserve(key, min(cost, quota.most))
    assert Ticket.parse(str(ticket)) == ticket
    assert re.fullmatch(r"[A-Za-z0-9_-]+", str(ticket))


@pytest.mark.parametrize("text", ["", "x", "öl", "W10", "bnVsbA", "WzIsImEiLDEsMSwxLFtdXQ", "W10=" * 5, "a b"])
def test_other_texts_are_not_tickets(text: str) -> None:
    """The error quotes it."""
    with pytest.raises(ValueError, match="is not a ticket: pass on str") as raised:
        Ticket.parse(text)
    assert repr(text) in str(raised.value)


@given(st.text() | st.binary().map(lambda data: data.hex()))
def test_any_text_is_a_ticket_or_a_value_error(text: str) -> None:
    """Parsing raises nothing else."""
    with contextlib.suppress(ValueError):
        assert isinstance(Ticket.parse(text), Ticket)


@pytest.mark.parametrize("other", [{"name": "other"}, {"quota": TokenBucket(10, name="other")}], ids=repr)
async def test_a_ticket_of_another_limiter_is_refused(store: Store, other: dict[str, Any]) -> None:
    """It can be neither redeemed nor cancelled."""
    ticket = await Limiter(GUILD, store=store, name="jobs").reserve("guild")
    limiter = Limiter(**{"quota": GUILD, "store": store, "name": "jobs", **other})
    for verb in (limiter.redeem, limiter.cancel):
        with pytest.raises(ValueError, match=r"a ticket of the limiter 'jobs' for \['per-10-seconds'\] is not one of"):
            await verb(ticket)  # type: ignore[arg-type]


async def test_without_a_slot_there_is_no_ticket(store: Store) -> None:
    """The cost is above the limit of the window."""
    with pytest.raises(PaceTimeout) as raised:
        await Limiter(GUILD, store=store).reserve("guild", 11)
    assert not raised.value.decision.allowed


async def test_a_ticket_without_the_store_is_only_a_time() -> None:
    """It can be cancelled without effect."""
    limiter = Limiter(GUILD, store=RedisStore("redis://127.0.0.1:1", timeout=0.2, on_error="allow"))
    ticket = await limiter.reserve("guild")
    assert Ticket.parse(str(ticket)) == ticket
    assert ticket.delay == 0.0
    await limiter.cancel(ticket)
    await limiter.aclose()


def test_without_async_it_is_the_same(clock: SteppedClock) -> None:
    """The methods have the same names."""
    limiter = SyncLimiter("1/s burst 1", store=MemoryStore(clock=clock))
    first, second = limiter.reserve("guild"), limiter.reserve("guild")
    assert limiter.waiting("guild") == 1
    assert limiter.redeem(second).delay == 1.0
    limiter.cancel(second)
    assert (limiter.waiting("guild"), first.delay) == (0, 0.0)
