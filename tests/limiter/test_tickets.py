"""Tickets: slots that one process books and another one uses, and how many are booked ahead."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import json
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import Charge, Limiter, MemoryStore, RedisStore, Store, SyncLimiter, Take, Ticket
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.testing import SteppedClock, SteppedLimiter
from tests.support.decisions import decided
from tests.support.strategies import quotas

pytestmark = pytest.mark.anyio

NOW = 1_800_000_000_123_456.0
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


@QUOTAS
async def test_a_ticket_can_be_cancelled(store: Store, quota: Quota) -> None:
    """From its text alone, once, and the bucket is exactly as before."""
    limiter = Limiter(quota, store=store)
    await limiter.reserve("guild", 5)
    before = await limiter.waiting("guild"), (await limiter.pace("guild", 10)).delay
    await limiter.reset("guild")
    await limiter.reserve("guild", 5)
    text = str(await limiter.reserve("guild", 10))
    await limiter.cancel(text)
    await limiter.cancel(Ticket.parse(text))
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
    await limiter.cancel(tickets[29])
    await limiter.cancel(tickets[28])
    assert await limiter.waiting("guild") == 28
    clock.move_to(tickets[27].ready_at)
    assert await limiter.waiting("guild") == 0


@given(name=st.text(min_size=1), key=st.text(), cost=st.floats(0.1, 100), quota=quotas("q"))
def test_a_ticket_is_its_text(name: str, key: str, cost: float, quota: Quota) -> None:
    """Parsing restores every ticket, and its text has only letters, digits, ``-`` and ``_``."""
    ticket = Ticket.of(decided(Take((Charge(quota, key, min(cost, quota.most), name),)), NOW))
    assert Ticket.parse(str(ticket)) == ticket
    assert re.fullmatch(r"[A-Za-z0-9_-]+", str(ticket))


def as_text(packed: bytes) -> str:
    """The text of a ticket that says this."""
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=30,
)
VALUES = JSON | st.sampled_from([10**400, -1, 2**60, 1e300, math.nan, math.inf, True, "9", "", "\ud800"])


TICKET = SyncLimiter(GUILD, store=MemoryStore(clock=SteppedClock()), name="jobs").reserve("guild", 2)
ITEMS = json.loads(base64.urlsafe_b64decode(str(TICKET) + "=="))
PLACES = st.lists(st.integers(0, 9), min_size=1, max_size=3)


@given(PLACES, VALUES, st.sampled_from(["replace", "insert", "delete"]), st.sampled_from([0.0, 3.0, 1e6]))
def test_a_ticket_that_was_tampered_with(places: list[int], value: Any, how: str, later: float) -> None:
    """It is refused with a ``ValueError``, or is a ticket that can be redeemed and cancelled without another error."""
    items = copy.deepcopy(ITEMS)
    inner = items
    while len(places) > 1 and isinstance(inner[places[0] % len(inner)], list) and inner[places[0] % len(inner)]:
        inner = inner[places.pop(0) % len(inner)]
    at = places[0] % len(inner)
    inner[at : at + (how != "insert")] = [] if how == "delete" else [value]
    clock = SteppedClock()
    limiter = SyncLimiter(GUILD, store=MemoryStore(clock=clock), name="jobs")
    clock.advance(later)
    with contextlib.suppress(ValueError):
        ticket = Ticket.parse(as_text(json.dumps(items).encode()))
        assert Ticket.parse(str(ticket)) == ticket
        limiter.redeem(ticket)
        limiter.cancel(ticket)
        assert 0 <= limiter.peek("guild").remaining <= 10


@pytest.mark.parametrize(
    "text",
    [
        as_text(b"[" * 6000),
        as_text(json.dumps([*ITEMS[:1], "n" * 9000, *ITEMS[2:]]).encode()),
        as_text(json.dumps([*ITEMS[:5], ITEMS[5] * 101, *ITEMS[6:]]).encode()),
        as_text(json.dumps([2, *ITEMS[1:]]).encode()),
        as_text(json.dumps(ITEMS).encode().replace(b"1800000000.0", b"NaN")),
        as_text(json.dumps(ITEMS).encode().replace(b"1800000000.0", b"1" * 5000)),
        "öl",
        "",
        None,
    ],
    ids=range(9),
)
async def test_what_no_ticket_says(text: Any) -> None:
    """Too deep, too long, too many charges, another version, no numbers, other letters, nothing: all are refused."""
    for use in (Ticket.parse, Limiter(GUILD, name="jobs").redeem):
        with pytest.raises(ValueError, match="is not a ticket"):
            await use(text)
    with pytest.raises(ValueError, match=r"Ticket\.of\(await limiter\.pace\(key\)\)"):
        Ticket.of(text)


async def test_a_key_that_is_too_long_for_a_ticket(store: Store) -> None:
    """It is refused, and nothing stays booked."""
    limiter = Limiter(GUILD, store=store)
    with pytest.raises(ValueError, match=r"a ticket has at most 8192 characters, not [0-9]+: use shorter keys"):
        await limiter.reserve("g" * 8000)
    assert (await limiter.peek("g" * 8000)).remaining == 10


async def test_a_ticket_is_redeemed_once(store: Store) -> None:
    """Of ten workers, one runs the job; the others get a decision that is refused, for ever."""
    limiter = Limiter("1/s burst 1", store=store)
    text = str(await limiter.reserve("guild"))
    decisions = await asyncio.gather(*[limiter.redeem(text) for _ in range(10)])
    assert [decision.allowed for decision in decisions].count(True) == 1
    assert {(d.granted, d.delay, d.retry_after) for d in decisions if not d} == {(0, 0.0, math.inf)}
    unawaited = limiter.redeem(text)
    with pytest.raises(TypeError, match="redeem lacks its await"):
        bool(unawaited)
    assert (await unawaited).reason == "refused: the ticket was redeemed or cancelled before"


async def test_a_job_that_is_put_back_has_a_new_ticket(store: Store, clock: SteppedClock) -> None:
    """It is redeemed once, too; cancelled, it gives nothing back: its units may have come back already."""
    clock.move_to(3600)
    limiter = Limiter([TokenBucket(5, 5, name="own"), TokenBucket(99, 3600, name="all")], store=store)
    keys = {"own": "guild", "all": "everybody"}
    reserved = [await limiter.reserve(keys) for _ in range(2)]
    await limiter.rate_limit(keys, 3)
    clock.advance(2.5)
    first, second = [await limiter.redeem(ticket) for ticket in reserved]
    ticket = str(Ticket.of(first))
    assert [(await limiter.redeem(ticket)).allowed for _ in range(2)] == [True, False]
    await limiter.cancel(Ticket.of(second))
    assert [state.remaining for state in (await limiter.peek(keys)).states] == [2, 94]


async def test_a_ticket_that_was_cancelled_does_not_run(store: Store) -> None:
    """Its slot was sold to somebody else."""
    limiter = Limiter("1/s burst 1", store=store)
    first, second = await limiter.reserve("guild"), await limiter.reserve("guild")
    await limiter.cancel(second)
    resold = await limiter.reserve("guild")
    assert resold.ready_at == second.ready_at
    assert [(await limiter.redeem(str(ticket))).allowed for ticket in (second, resold, first)] == [False, True, True]


@pytest.mark.parametrize(("later", "is_over"), [(7 * 86_400 - 1, False), (7 * 86_400, True), (30 * 86_400, True)])
async def test_a_ticket_is_over_after_a_week(store: Store, clock: SteppedClock, later: float, is_over: bool) -> None:
    """Until then, it is remembered whether it was redeemed; after that, it can be neither redeemed nor cancelled."""
    limiter = Limiter(FixedWindow(10, 60 * 86_400), store=store)
    ticket, unused = [await limiter.reserve("guild", 2) for _ in range(2)]
    assert await limiter.redeem(ticket)
    clock.advance(later)
    if is_over:
        with pytest.raises(ValueError, match=r"the slot of this ticket was \d+ s ago: tickets are good for a week"):
            await limiter.redeem(ticket)
    else:
        assert not await limiter.redeem(ticket)
    await limiter.cancel(ticket)
    assert (await limiter.peek("guild")).remaining == 6
    await limiter.cancel(unused)
    assert (await limiter.peek("guild")).remaining == (6 if is_over else 8)


@pytest.mark.parametrize("other", [{"name": "other"}, {"quota": TokenBucket(10, name="other")}], ids=repr)
async def test_a_ticket_of_another_limiter_is_refused(store: Store, other: dict[str, Any]) -> None:
    """It can be neither redeemed nor cancelled."""
    ticket = await Limiter(GUILD, store=store, name="jobs").reserve("guild")
    limiter = Limiter(**{"quota": GUILD, "store": store, "name": "jobs", **other})
    for verb in (limiter.redeem, limiter.cancel):
        with pytest.raises(ValueError, match=r"a ticket of the limiter 'jobs' for \['per-10-seconds'\] is not one of"):
            await verb(ticket)  # type: ignore[arg-type]


async def test_a_ticket_without_the_store_is_only_a_time() -> None:
    """It can be cancelled without effect."""
    limiter = Limiter(GUILD, store=RedisStore("redis://127.0.0.1:1", timeout=0.2, on_error="allow"))
    ticket = await limiter.reserve("guild")
    assert Ticket.parse(str(ticket)) == ticket
    assert ticket.delay == 0.0
    await limiter.cancel(ticket)
    await limiter.aclose()


@pytest.mark.parametrize("wrong", [-1, math.nan, "5", None])
async def test_a_tolerance_is_seconds(wrong: Any) -> None:
    """Anything else is refused before the ticket is used up."""
    limiter = SteppedLimiter("10/s")
    ticket = await limiter.reserve("key")
    with pytest.raises(ValueError, match=f"late_tolerance must be seconds from 0 up, not {wrong!r}: late_tolerance=5"):
        await limiter.redeem(ticket, late_tolerance=wrong)
    assert await limiter.redeem(ticket)
