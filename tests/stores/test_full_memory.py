"""A memory store that is full: who may go, and how many requests it takes to be rid of a used-up bucket."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.decision import Charge, Take
from asgi_ratelimit.inbound import RateLimitMiddleware
from asgi_ratelimit.inbound.penalties.blocks import Blocks
from asgi_ratelimit.quota_text import parse_quotas
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import MemoryStore
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import ask, http, ok
from tests.support.examples import up_to

SHORT = TokenBucket(5, 60)
LONG = TokenBucket(3, 86_400)


class Flooded:
    """A store of few buckets, into which somebody sends requests under new keys."""

    def __init__(self, max_keys: int) -> None:
        self.store = MemoryStore(max_keys=max_keys, clock=SteppedClock(1_800_000_000))
        self.requests = 0

    def take(self, *charges: Charge) -> bool:
        self.requests += 1
        return self.store.submit(Take(charges)).allowed

    def use_up(self, quota: Quota, key: str) -> None:
        while self.take(Charge(quota, key, 1, "victim")):
            pass

    def flood(self, quota: Quota, each: int, least: int) -> None:
        """So many requests under each of new keys, until there have been at least so many in all."""
        start, number = self.requests, 0
        while self.requests - start < least:
            for _ in range(each):
                self.take(Charge(quota, f"flood {start} {number}", 1, "flood"))
            number += 1


def quotas(name: str) -> st.SearchStrategy[Quota]:
    """Quotas of all kinds, with short and with long periods."""
    limits, periods = st.integers(1, 6), st.sampled_from([1.0, 60.0, 3600.0, 86_400.0])
    return st.one_of(
        st.builds(TokenBucket, limits, periods, st.none(), st.sampled_from([1.0, 0.5]), st.just(name)),
        st.builds(FixedWindow, limits, periods, st.just(name)),
        st.builds(RollingWindow, limits, periods, st.sampled_from([5, 50]), st.just(name)),
    )


MAX_KEYS = st.sampled_from([16, 64, 200])


@given(short=quotas("victim"), long=quotas("flood"), each=st.integers(1, 7), max_keys=MAX_KEYS, first=st.booleans())
@up_to(300)
def test_a_used_up_bucket_never_goes_before_max_keys_requests(
    short: Quota, long: Quota, each: int, max_keys: int, first: bool
) -> None:
    """Whatever the two quotas, whoever comes first, and however often each key of the flood is used."""
    flooded = Flooded(max_keys)
    if not first:
        flooded.flood(long, each, max_keys)
    flooded.use_up(short, "victim")
    flooded.flood(long, each, max_keys - 1 - each)
    assert not flooded.take(Charge(short, "victim", 1, "victim"))


@pytest.mark.parametrize("quota", ["3600/hour", "100000/day", "1000000/day", "5/minute burst 2.5"])
def test_none_that_refuses_goes_among_others_with_room(quota: str) -> None:
    """Not the first of many that were used up before them, whatever their burst."""
    flooded, wide = Flooded(2_000), TokenBucket(100, 86_400)
    used_up = parse_quotas(quota)[0]
    victims = [Charge(used_up, f"victim {number}", used_up.most) for number in range(300)]
    assert all(flooded.take(victim) for victim in victims)
    flooded.flood(wide, 1, 4_000)
    assert None not in [flooded.store.state_of(victim) for victim in victims]


@pytest.mark.parametrize("each", [1, 2])
def test_a_flood_that_does_not_refuse_never_removes_one_that_does(each: int) -> None:
    """However long it lasts: three times the size of the store, with buckets that have units left."""
    flooded = Flooded(500)
    flooded.use_up(SHORT, "victim")
    flooded.flood(LONG, each, 3 * 500 * each)
    assert not flooded.take(Charge(SHORT, "victim", 1, "victim"))


def test_a_store_that_is_full_of_long_quotas_limits_short_ones() -> None:
    """A rule for what clients choose has filled the store, and each request takes from a new bucket of it."""
    flooded = Flooded(2_000)
    flooded.flood(LONG, 1, 2_000)
    passed = [flooded.take(Charge(SHORT, "victim"), Charge(LONG, f"new {number}")) for number in range(60)]
    assert passed.count(True) == 5


@pytest.mark.anyio
async def test_a_block_stays() -> None:
    """A client that is blocked by hand stays blocked while others fill the store."""
    flooded = Flooded(300)
    blocks = Blocks(store=flooded.store)
    await blocks.block("bad", "10 minutes")
    flooded.flood(LONG, 1, 299)
    flooded.flood(LONG, 2, 3_000)
    assert await blocks.blocked_for("bad") > 0.0


def test_full_buckets_go_first() -> None:
    """Buckets that are full again hold no information, and the others stay."""
    clock = SteppedClock(1_800_000_000)
    store = MemoryStore(max_keys=20, clock=clock)
    for number in range(10):
        store.submit(Take((Charge(TokenBucket(10, 1), f"full soon {number}"),)))
        store.submit(Take((Charge(LONG, f"used {number}", 2),)))
    clock.advance(2)
    for number in range(10):
        store.submit(Take((Charge(LONG, f"new {number}", 2),)))
    left = [store.state_of(Charge(LONG, f"{which} {number}")) for which in ("used", "new") for number in range(10)]
    assert None not in left


def test_a_bucket_that_refuses_no_more_can_go() -> None:
    """What was set aside, and has drained since, makes room for what refuses."""
    clock = SteppedClock(1_800_000_000)
    store = MemoryStore(max_keys=10, clock=clock)
    for number in range(10):
        store.submit(Take((Charge(SHORT, f"old {number}", 5),)))
    store.submit(Take((Charge(LONG, "kept", 3),)))
    clock.advance(3600)
    for number in range(9):
        store.submit(Take((Charge(LONG, f"new {number}", 3),)))
    kept = [store.state_of(Charge(LONG, key)) for key in ["kept", *[f"new {number}" for number in range(9)]]]
    assert len(store) == 10
    assert None not in kept


@pytest.mark.parametrize("kind", [TokenBucket, FixedWindow])
def test_one_that_refuses_no_more_is_found_among_many_that_do(kind: type[TokenBucket | FixedWindow]) -> None:
    """In the middle of them, too, where nearly all refuse: none that still does goes before it."""
    clock = SteppedClock(1_800_000_000)
    store, long, short = MemoryStore(max_keys=4_000, clock=clock), kind(1, 86_400), kind(1, 60)
    for number in range(3_400):
        quota = short if 1_200 <= number < 2_200 else long
        store.submit(Take((Charge(quota, f"old {number}"),)))
    for number in range(900):  # they take the room of the others, and then all that refuse are set aside
        store.submit(Take((Charge(LONG, f"other {number}"),)))
    clock.advance(120)
    for number in range(900):
        store.submit(Take((Charge(long, f"new {number}"),)))
    kept = [Charge(long, f"old {number}") for number in range(3_400) if not 1_200 <= number < 2_200]
    kept += [Charge(long, f"new {number}") for number in range(900)]
    assert len(store) == 4_000
    assert None not in [store.state_of(charge) for charge in kept]


def test_a_store_in_which_all_refuse_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """With what to do about it."""
    flooded = Flooded(50)
    with caplog.at_level(logging.WARNING, "asgi_ratelimit"):
        flooded.flood(TokenBucket(1, 86_400), 1, 200)
    assert [record.getMessage() for record in caplog.records if "MemoryStore(max_keys=500)" in record.getMessage()]
    assert len(caplog.records) == 1


@pytest.mark.parametrize(("quota", "each"), [(LONG, 1), (LONG, 3), (TokenBucket(1, 86_400), 1)], ids=str)
@pytest.mark.parametrize("between", [1, 20, 100])
def test_a_bucket_that_is_never_used_up_stays(quota: Quota, each: int, between: int) -> None:
    """Its units count, with requests under new keys between them, in a store that others have filled."""
    flooded = Flooded(2_000)
    flooded.flood(quota, each, 2_000 * each)
    passed = 0
    for _ in range(20):
        passed += flooded.take(Charge(SHORT, "victim"))
        flooded.flood(quota, each, between)
    assert passed == 5


async def spray(addresses: int, max_keys: int) -> list[int]:
    """The statuses of a client over its limit, after each tenth of a spray of other addresses."""
    clock = SteppedClock(1_800_000_000)
    store = MemoryStore(max_keys=max_keys, clock=clock)
    app = RateLimitMiddleware(ok, "5/minute", store=store)
    known = http(client=("203.0.113.9", 50_000))
    for _ in range(5):
        await ask(app, dict(known))
    statuses = []
    for number in range(addresses):
        await ask(app, http(client=(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 50_000)))
        if (number + 1) % (addresses // 10) == 0:
            statuses.append((await ask(app, dict(known))).status)
            assert len(store) <= max_keys
    return statuses


@pytest.mark.anyio
async def test_addresses_that_are_sprayed() -> None:
    """A client that is over its limit stays so, and there are never more buckets than max_keys."""
    assert await spray(20_000, 2_000) == [429] * 10


@pytest.mark.long
@pytest.mark.anyio
async def test_a_million_addresses_that_are_sprayed() -> None:
    """The same with the usual size of a store."""
    assert await spray(1_000_000, 100_000) == [429] * 10
