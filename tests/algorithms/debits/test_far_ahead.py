"""What lies so far ahead that it is never, and values that no take leaves: nothing loops, in Python and in Redis."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from asgi_ratelimit.algorithms import ALGORITHMS, NEVER_US, State, pack, settle, unpack
from asgi_ratelimit.algorithms import token_bucket_level as levels
from asgi_ratelimit.algorithms.giving_back import gaps
from asgi_ratelimit.decision import Charge, SettledCharge, Settlement, Take
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import Store
from tests.support.direct_script import NOW_US, DirectScript
from tests.support.redis_server import RedisServer

NOW = float(NOW_US)
BUCKET = TokenBucket(10, 1, burst=10)
FIXED, ROLLING = FixedWindow(3, 60), RollingWindow(3, 60, 60)
WINDOW, PART = NOW // FIXED.period_us, NOW // ROLLING.part_us


@pytest.fixture(scope="module")
def _script(redis_server: RedisServer) -> Iterator[DirectScript]:
    with redis.Redis.from_url(redis_server.url) as client:
        yield DirectScript(client, counts_calls=True)


@pytest.fixture
def script(_script: DirectScript) -> DirectScript:
    """The script on an empty Redis. It fails where it would loop for ever."""
    _script.client.flushdb()
    return _script


def limited_calls(function: Any) -> Any:
    """A function that may be called a thousand times."""
    left = iter(range(1000))

    def called(*arguments: Any) -> Any:
        assert next(left, None) is not None, "a loop that never ends"
        return function(*arguments)

    return called


def windows_of(quota: Quota, debit: float, *places: tuple[float, ...], last: float = NOW) -> State:
    """The state of a window with runs or parts, and a debit."""
    core = (debit, places) if isinstance(quota, FixedWindow) else (0.0, debit, places)
    return (core, last, 5, (), (), b"")


def test_a_gap_from_which_on_a_microsecond_is_nothing(script: DirectScript, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never open, and a take that looks at it ends."""
    start = 2.0**54 * BUCKET.limit
    state: State = (2 * start, NOW, 5, ((start, 1e15),), (), b"")
    monkeypatch.setattr(gaps, "_fits", limited_calls(gaps._fits))
    assert ALGORITHMS[TokenBucket].wait(BUCKET, state, NOW, 1.0) == math.inf
    script.put(Charge(BUCKET, "key"), state)
    assert script.call([Take((Charge(BUCKET, "key"),), math.inf)]).verdicts == "0"


@pytest.mark.parametrize("quota", [FIXED, ROLLING], ids=["fixed", "rolling"])
@pytest.mark.parametrize("exponent", [48, 53])
def test_a_window_over_142_years_ahead_is_never(script: DirectScript, quota: Quota, exponent: int) -> None:
    """Nothing is booked behind a debit so large, and how long it takes is finite in the headers."""
    state, charge = windows_of(quota, 2.0**exponent), Charge(quota, "key")
    assert ALGORITHMS[type(quota)].wait(quota, state, NOW, 1.0) == math.inf
    assert ALGORITHMS[type(quota)].outlook(quota, state, NOW)[1] == NEVER_US
    script.put(charge, state)
    assert script.call([Take((charge,), math.inf)]).verdicts == "0"
    assert script.state(charge) == state


@pytest.mark.parametrize("quota", [FixedWindow(1, 1e-6), RollingWindow(1, 1e-6, 1)], ids=["fixed", "rolling"])
def test_a_window_whose_number_is_too_large_is_never(script: DirectScript, quota: Quota) -> None:
    """A value that has it would mean nothing, and the limit would be off."""
    state, charge = windows_of(quota, NEVER_US - NOW), Charge(quota, "key")
    assert ALGORITHMS[type(quota)].wait(quota, state, NOW, 1.0) == math.inf
    script.put(charge, state)
    assert script.call([Take((charge,), math.inf)]).verdicts == "0"


@pytest.mark.parametrize("quota", [FIXED, ROLLING], ids=["fixed", "rolling"])
def test_debits_add_up_to_what_a_value_can_hold(script: DirectScript, quota: Quota) -> None:
    """However often units are debited, the value still means something."""
    state, charge = windows_of(quota, 2.0**63 - 2.0**11), Charge(quota, "key")
    settlement = Settlement(1.0, (SettledCharge(charge, NOW, 5, -math.inf, NOW, 2.0**53),))
    (after,) = settle(settlement, [state], NOW)
    assert after is not None
    assert unpack(quota, pack(quota, after)) == after
    script.put(charge, state)
    script.call([settlement])
    assert script.state(charge) == after


def test_a_clock_set_back_is_not_counted_by_microseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A level that is low enough already is waited for no time, also a minute before it was written."""
    quota = TokenBucket(1e9, 86400)
    monkeypatch.setattr(levels, "drained", limited_calls(levels.drained))
    assert levels.drain_wait(quota, 997 * quota.period_us, -60e6, 997 * quota.period_us) == 0.0


DAMAGED = {
    "runs out of order": (FIXED, windows_of(FIXED, 0.0, (WINDOW, WINDOW + 5, 3.0), (WINDOW + 2, WINDOW + 3, 1.0))),
    "an empty run": (FIXED, windows_of(FIXED, 0.0, (WINDOW, WINDOW, 3.0), (WINDOW, WINDOW + 1, 3.0))),
    "a fraction of a window": (FIXED, windows_of(FIXED, 0.0, (WINDOW, WINDOW + 1.5, 3.0))),
    "a run below 0": (FIXED, windows_of(FIXED, 0.0, (WINDOW, WINDOW + 1, -3.0))),
    "a debit of runs below 0": (FIXED, windows_of(FIXED, -1.0, (WINDOW, WINDOW + 1, 3.0))),
    "a time too far away": (FIXED, windows_of(FIXED, 0.0, (WINDOW, WINDOW + 1, 3.0), last=-1e300)),
    "parts out of order": (ROLLING, windows_of(ROLLING, 0.0, (PART, 3.0), (PART - 1, 1.0))),
    "a part twice": (ROLLING, windows_of(ROLLING, 0.0, (PART, 3.0), (PART, 1.0))),
    "a fraction of a part": (ROLLING, windows_of(ROLLING, 0.0, (PART, 3.0), (PART + 0.5, 1.0))),
    "a part below 0": (ROLLING, windows_of(ROLLING, 0.0, (PART, -3.0))),
    "a debit of parts below 0": (ROLLING, windows_of(ROLLING, -1.0, (PART, 3.0))),
}


@pytest.mark.parametrize(("quota", "state"), DAMAGED.values(), ids=DAMAGED)
def test_a_value_that_no_take_leaves_counts_as_never_used(script: DirectScript, quota: Quota, state: State) -> None:
    """So no loop meets it."""
    assert unpack(quota, pack(quota, state)) is None
    used, unused = Charge(quota, "key"), Charge(quota, "other")
    script.put(used, state)
    assert script.call([Take((used,)), Take((unused,))]).verdicts == "11"
    after, fresh = script.state(used), script.state(unused)
    assert after is not None
    assert fresh is not None
    assert after[:2] == fresh[:2]


def test_a_take_ends_on_parts_out_of_order_with_a_debit(script: DirectScript) -> None:
    """It did not, and held the server."""
    script.put(Charge(ROLLING, "key"), windows_of(ROLLING, 25.0, (PART, 3.0), (PART + 183, 2.0), (PART - 62, 1.0)))
    assert script.call([Take((Charge(ROLLING, "key"),))]).verdicts == "1"


def test_parts_of_two_versions_are_counted_as_this_one_counts(script: DirectScript) -> None:
    """Two limits share a stamp, and one counts whole units: in Redis as in Python."""
    limits = [(1073741823, 1073741823, 0.0), (1073741823, 0.3, math.inf), (5, 1, math.inf), (1073741824.5, 1, math.inf)]
    for step, (limit, cost, max_wait) in enumerate(limits, 1):
        charge = Charge(RollingWindow(limit, 60, 6, name="quota"), "key", cost)
        assert script.call([Take((charge,), max_wait)], NOW_US + step).verdicts == "1"
    after = script.state(charge)
    assert after is not None
    assert after[0][2] == ((180_000_000.0, 1073741824.0), (180_000_007.0, 1.0))


@pytest.mark.anyio
async def test_a_slot_that_a_bucket_finds_and_a_window_has_no_place_for_is_never(store: Store) -> None:
    """Within 142 years, but in a window whose number is too large: nothing is taken from either."""
    quotas = TokenBucket(1, 1, name="slow"), FixedWindow(1, 1e-6, name="tiny")
    async with Limiter(quotas, store=store) as limiter:
        assert (await limiter.pace("key", {"slow": 3.2e9})).allowed
        refusal = await limiter.pace("key")
        assert (refusal.allowed, refusal.retry_after) == (False, math.inf)
        alone = await limiter.pace("key", {"tiny": 1})
        assert (alone.allowed, alone.delay) == (True, 0.0)
