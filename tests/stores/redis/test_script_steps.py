"""The work of one script call, counted in steps: small on the fast path, and bounded for the largest inputs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TypeAlias

import pytest
import redis
from asgi_ratelimit.stores.redis.script_encoding import Action, Reset
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import MAX_LOWS, MAX_PIECES, State, decide, pack, unpack
from asgi_ratelimit.decision import Charge, SettledCharge, Settlement, Take
from asgi_ratelimit.quotas import MAX_CHARGES, FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import MemoryStore, RedisStore
from asgi_ratelimit.testing import SteppedClock
from tests.support.charges import on_bucket
from tests.support.direct_script import NOW_US, DirectScript, constant
from tests.support.examples import up_to
from tests.support.redis_server import RedisServer
from tests.support.strategies import WAITS, costs, token_buckets

NOW = float(NOW_US)
UNIT = 1e6  # the level of one unit, for a period of a second
MAX_STEPS, PLAIN_STEPS, CHARGE_STEPS = constant("MAX_STEPS"), constant("PLAIN_STEPS"), constant("CHARGE_STEPS")
RECORDED = ((NOW - 9, 4_000 * UNIT, 0.0), *[(NOW - 9 + number, number * UNIT) for number in range(1, MAX_LOWS + 1)])


@pytest.fixture(scope="module")
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_server.url) as made:
        yield made


@pytest.fixture
def script(client: redis.Redis) -> DirectScript:
    client.flushall()
    return DirectScript(client)


def bucket(number: int, factor: float = 1.0) -> TokenBucket:
    return TokenBucket(10, burst=20, burst_allowance_factor=factor, name=f"bucket {number}")


def even(number: int) -> TokenBucket:
    return TokenBucket(3, burst=1, name=f"even {number}")


def fixed(number: int) -> FixedWindow:
    return FixedWindow(10, 1 + number / 100, name=f"fixed {number}")


def rolling(number: int, parts: int) -> RollingWindow:
    return RollingWindow(10 * parts, parts, parts, name=f"rolling {number}")


# The fast path.


@pytest.mark.parametrize("factor", [1.0, 0.5])
@pytest.mark.parametrize("max_wait", [0.0, 10.0])
@pytest.mark.parametrize("level", [None, 0.0, 3 * UNIT, 20 * UNIT, 30 * UNIT])
@pytest.mark.parametrize("charges", [1, 2, 50])
def test_plain_token_buckets_take_the_fast_path(
    script: DirectScript, charges: int, level: float | None, max_wait: float, factor: float
) -> None:
    """Any number of charges, used or not, allowed or refused, with a wait or without."""
    take = Take(tuple(Charge(bucket(number, factor), "key") for number in range(charges)), max_wait)
    if level is not None:
        script.put_all([(charge, (level, NOW - 5, 7, (), (), b"")) for charge in take.charges])
    for _ in range(3):
        assert script.call([take]).steps == PLAIN_STEPS * charges == 4 * charges


def test_a_run_of_equal_charges_takes_the_fast_path(script: DirectScript) -> None:
    """On one key and on many."""
    quota = bucket(0)
    charges = [on_bucket(Charge(quota, f"key{number % 10}")) for number in range(300)]
    reply = script.call(charges)
    assert (reply.steps, reply.verdicts.count("1")) == (PLAIN_STEPS * 300, 200)


@pytest.mark.parametrize(
    ("quota", "state"),
    [
        (bucket(0), (5 * UNIT, NOW, 7, (), RECORDED, b"")),
        (bucket(0), (5 * UNIT, NOW, 7, ((UNIT, UNIT),), (), b"")),
        (bucket(0), (5 * UNIT, NOW, 7, (), (), pack(TokenBucket(7), (UNIT, NOW, 8, (), (), b"")))),
        (bucket(0), (5 * UNIT, NOW + 1_000_001, 7, (), (), b"")),
        (fixed(0), ((0.0, ((NOW // 1e6, NOW // 1e6 + 1, 3.0),)), NOW, 7, (), (), b"")),
        (rolling(0, 10), ((0.0, 0.0, ((NOW // 1e6, 3.0),)), NOW, 7, (), (), b"")),
    ],
    ids=["lows", "gaps", "another version", "from the future", "fixed window", "rolling window"],
)
def test_all_else_takes_the_general_path(script: DirectScript, quota: Quota, state: State) -> None:
    """A bucket that has anything but a level, and one that a clock left in the future."""
    script.put(Charge(quota, "key"), state)
    reply = script.call([Take((Charge(quota, "key"),))])
    assert (reply.verdicts, reply.steps >= CHARGE_STEPS >= 20) == ("1", True)


Level: TypeAlias = tuple[TokenBucket, float, int, float]


@st.composite
def levels(draw: st.DrawFn, name: str) -> Level:
    """A bucket, its level, the microseconds since it last changed, and a cost."""
    quota = draw(token_buckets(name))
    level = draw(st.sampled_from([0.0, quota.burst_level, quota.period_us]) | st.floats(0.0, 2 * quota.burst_level))
    unit, period = round(quota.period_us / quota.limit), round(quota.period_us)
    elapsed = draw(st.sampled_from([0, 1, unit]) | st.integers(-period, round(2 * quota.burst_level / quota.limit)))
    return quota, level, elapsed, draw(costs(1.5 * quota.burst))


@pytest.fixture(scope="module")
def both_paths(client: redis.Redis) -> tuple[DirectScript, DirectScript]:
    """The script over plain values, and over the same values with a gap each that nothing fits into."""
    return DirectScript(client, prefix=b"plain"), DirectScript(client, prefix=b"with a gap")


@given(cases=levels("a").map(lambda a: [a]) | st.tuples(levels("a"), levels("b")).map(list), max_wait=WAITS)
@up_to(300)
def test_both_paths_are_equal(
    both_paths: tuple[DirectScript, DirectScript], cases: list[Level], max_wait: float
) -> None:
    """The same verdict and, to the bit, the same level, time and generation."""
    take = Take(tuple(Charge(quota, "key", cost) for quota, _, _, cost in cases), max_wait)
    for script, is_plain in zip(both_paths, (True, False)):
        before = [
            (level, NOW - elapsed, 7, () if is_plain else ((level, 1e-9),), (), b"") for _, level, elapsed, _ in cases
        ]
        script.put_all(list(zip(take.charges, before)))
    fast, general = (script.call([take]) for script in both_paths)
    assert fast.verdicts == general.verdicts
    is_hidden = len(cases) > 1 and max_wait > 0  # a charge that goes later than its bucket asks
    assert fast.steps == PLAIN_STEPS * len(cases) or is_hidden
    assert general.steps >= CHARGE_STEPS * len(cases)
    for charge in take.charges:
        plain, with_gap = (script.state(charge) for script in both_paths)
        assert plain is not None
        assert with_gap is not None
        assert with_gap[:3] == plain[:3]


# The bound.


def gaps_at(first: float, step: float, size: float) -> tuple[tuple[float, float], ...]:
    return tuple((first + step * number, size) for number in range(MAX_PIECES))


def crowded_bucket(quota: Quota, number: int) -> State:
    """All gaps in use, at places that differ from charge to charge, so that no wait suits two of them."""
    level = 3_100 * quota.period_us
    return level, NOW, 7, gaps_at((21 + number % 7 * 0.37) * UNIT, 3 * UNIT, UNIT), RECORDED, b""


def disagreeing_bucket(quota: Quota, number: int) -> State:
    """All gaps in use, each at a place where no other of eight buckets has one."""
    return 400 * MAX_PIECES * UNIT, NOW, 7, gaps_at((21 + 40 * number) * UNIT, 320 * UNIT, UNIT), RECORDED, b""


def narrow_bucket(quota: Quota, number: int) -> State:
    """All gaps in use, each with exactly one unit, and none of them open at a whole microsecond."""
    return 3_100 * UNIT, NOW, 7, gaps_at((21 + number % 7 * 0.37) * UNIT + 0.5, 3 * UNIT, UNIT), RECORDED, b""


def crowded_fixed(quota: Quota, number: int) -> State:
    """All runs in use, free and full in turn."""
    first = NOW // quota.period_us
    runs = tuple((first + at, first + at + 1, 9.0 + (at + number) % 2) for at in range(MAX_PIECES))
    return (0.0, runs), NOW, 7, (), (), b""


def crowded_rolling(quota: Quota, number: int) -> State:
    """All parts in use, with room for half a unit in every window."""
    assert isinstance(quota, RollingWindow)
    first, count = NOW // quota.part_us, (quota.limit - 0.5) / (quota.buckets + 1)
    parts = tuple((first + at, round(count, 3)) for at in range(MAX_PIECES + quota.buckets))
    return (0.0, 0.0, parts), NOW, 7, (), (), b""


def with_debit(crowd: Callable[[Quota, int], State]) -> Callable[[Quota, int], State]:
    """Such a window with a debit that no room ahead is enough for."""

    def crowded_with_debit(quota: Quota, number: int) -> State:
        core, *rest = crowd(quota, number)
        return ((100.0 * quota.limit, core[1]) if len(core) == 2 else (0.0, 100.0 * quota.limit, core[2]), *rest)

    return crowded_with_debit


Crowded: TypeAlias = tuple[Charge, State]


def crowded(kind: str, key: str) -> list[Crowded]:
    """As many charges as a take may have, on buckets whose states are as large as they can be."""
    kinds: dict[str, Callable[[int], tuple[Quota, Callable[[Quota, int], State]]]] = {
        "token buckets": lambda number: (bucket(number), crowded_bucket),
        "fixed windows": lambda number: (fixed(number), crowded_fixed),
        "rolling windows of 60": lambda number: (rolling(number, 60), crowded_rolling),
        "rolling windows of 1000": lambda number: (rolling(number, 1000), crowded_rolling),
    }
    kinds["token buckets that close gaps"] = lambda number: (even(number), narrow_bucket)
    each_kind = list(kinds.values())
    kinds["a mix"] = lambda number: each_kind[number % len(each_kind)](number)
    kinds["fixed windows with a debit"] = lambda number: (fixed(number), with_debit(crowded_fixed))
    kinds["rolling windows with a debit"] = lambda number: (rolling(number, 60), with_debit(crowded_rolling))
    kinds["a rolling window of 1000 with a debit"] = lambda number: (rolling(number, 1000), with_debit(crowded_rolling))
    kinds["eight token buckets"] = lambda number: (bucket(number), disagreeing_bucket)
    made = [kinds[kind](number) for number in range(8 if kind.startswith("eight") else MAX_CHARGES)]
    weights = accumulate(quota.weight for quota, _ in made)
    fitting = [each for each, weight in zip(made, weights) if weight <= MAX_CHARGES]
    return [(Charge(quota, key), state(quota, number)) for number, (quota, state) in enumerate(fitting)]


KINDS = (
    "token buckets",
    "eight token buckets",
    "token buckets that close gaps",
    "fixed windows",
    "rolling windows of 60",
    "rolling windows of 1000",
    "a mix",
)

WITH_DEBITS = (
    "fixed windows with a debit",
    "rolling windows with a debit",
    "a rolling window of 1000 with a debit",
)

MOST_STEPS = 30_000
"""The most steps of one action, which takes about 0.3 microseconds for each: ten milliseconds in all."""


def take_now(crowd: Sequence[Crowded]) -> Action:
    return Take(tuple(charge for charge, _ in crowd))


def take_later(crowd: Sequence[Crowded]) -> Action:
    return Take(tuple(charge for charge, _ in crowd), 1e6)


def take_some(crowd: Sequence[Crowded]) -> Action:
    return Take(tuple(charge for charge, _ in crowd), best_effort=True)


def take_once(crowd: Sequence[Crowded]) -> Action:
    return Take(tuple(charge for charge, _ in crowd), 1e6, operation=f"for {crowd[0][0].key}")


def place(charge: Charge, state: State) -> float:
    """Somewhere in what a state has booked."""
    if isinstance(charge.quota, TokenBucket):
        return float(state[3][-1][0]) + 1.0
    return float(NOW // getattr(charge.quota, "part_us", charge.quota.period_us)) + 500.0


def settle_to(actual: float) -> Callable[[Sequence[Crowded]], Action]:
    def settle(crowd: Sequence[Crowded]) -> Action:
        settled = [SettledCharge(charge, NOW, 7, place(charge, state), NOW + 1e9, actual) for charge, state in crowd]
        return Settlement(99.0, tuple(settled))

    return settle


ACTIONS = {
    "take": take_now,
    "take with a wait": take_later,
    "take of an operation": take_once,
    "best effort": take_some,
    "refund": settle_to(0.5),
    "cancel": settle_to(0),
    "debit": settle_to(2),
}


def beside_another(charge: Charge, state: State) -> bytes:
    """The value of a bucket that another version with as large a state is still used of."""
    return pack(charge.quota, (*state[:5], pack(replace(charge.quota, limit=0.9 * charge.quota.limit), state)))


def within_another(charge: Charge, state: State) -> bytes:
    """The value that another version has left, which carries the state of this one."""
    return pack(replace(charge.quota, limit=0.9 * charge.quota.limit), (*state[:5], pack(charge.quota, state)))


def values_of(crowd: Sequence[Crowded]) -> Iterator[list[tuple[Charge, bytes]]]:
    """The largest values of buckets: alone, and with another version of their quotas."""
    yield [(charge, pack(charge.quota, state)) for charge, state in crowd]
    yield [(charge, beside_another(charge, state)) for charge, state in crowd]
    yield [(charge, within_another(charge, state)) for charge, state in crowd]


@pytest.mark.parametrize("verb", ACTIONS)
@pytest.mark.parametrize("kind", [*KINDS, *WITH_DEBITS])
def test_the_work_of_one_action_is_bounded(client: redis.Redis, kind: str, verb: str) -> None:
    """No loop goes uncounted: there are few calls for each step."""
    crowd, script, counting = crowded(kind, "key"), DirectScript(client), DirectScript(client, counts_calls=True)
    for values in values_of(crowd):
        client.flushall()
        script.put_values(values)
        steps = script.call([ACTIONS[verb](crowd)]).steps
        assert len(crowd) * CHARGE_STEPS <= steps <= MOST_STEPS
        client.flushall()
        script.put_values(values)
        assert counting.call([ACTIONS[verb](crowd)]).steps <= 2.5 * steps


def calls_of(work: Callable[[], object]) -> int:
    """How many functions are called, those in C included."""
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


MOST_CALLS = 32_000
"""The most calls of functions for one decision, which takes ten milliseconds at most."""


@pytest.mark.parametrize("verb", ["take", "take with a wait", "best effort"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_work_of_one_decision_is_bounded(kind: str, verb: str) -> None:
    """Values are unpacked and the largest take is decided in few calls of functions, so that the event loop goes on."""
    crowd = crowded(kind, "key")
    take = ACTIONS[verb](crowd)
    assert isinstance(take, Take)
    for values in values_of(crowd):

        def decision(values: Sequence[tuple[Charge, bytes]] = values) -> object:
            states = [unpack(charge.quota, value, len(values)) for charge, value in values]
            return decide(take, states, NOW)

        assert len(crowd) <= calls_of(decision) <= MOST_CALLS


@pytest.mark.parametrize("verb", ACTIONS)
@pytest.mark.parametrize("kind", [*KINDS, *WITH_DEBITS])
def test_the_work_of_one_call_is_bounded(client: redis.Redis, kind: str, verb: str) -> None:
    """A call stops once it has done MAX_STEPS: it never does more than these and those of its last action.

    The actions that are left over are carried out when they are sent again, each of them exactly once.
    """
    client.flushall()
    crowds = [crowded(kind, f"key {number}") for number in range(6)]
    actions = [ACTIONS[verb](crowd) for crowd in crowds]
    together, alone = DirectScript(client), DirectScript(client, prefix=b"alone")
    for crowd in crowds:
        together.put_all(crowd)
        alone.put_all(crowd)
    replies = [alone.call([action]) for action in actions]
    assert len(crowds[0]) * CHARGE_STEPS <= min(reply.steps for reply in replies)
    require_bounded(together, actions, [reply.steps for reply in replies], "".join(r.verdicts for r in replies))
    for crowd in crowds:
        assert [together.value(charge) for charge, _ in crowd] == [alone.value(charge) for charge, _ in crowd]


def require_bounded(script: DirectScript, actions: Sequence[Action], steps: Sequence[int], verdicts: str) -> None:
    """Send actions until all are answered; ``steps`` and ``verdicts`` are those of each action alone."""
    done, calls = 0, 0
    while done < len(actions):
        reply = script.call(actions[done:])
        here = steps[done : done + len(reply.verdicts)]
        assert len(here) == len(reply.verdicts) > 0
        assert abs(reply.steps - sum(here)) <= len(here)  # each one's steps are rounded
        assert reply.steps - here[-1] <= MAX_STEPS
        assert reply.steps >= MAX_STEPS or done + len(here) == len(actions)
        assert reply.verdicts == verdicts[done : done + len(here)]
        done, calls = done + len(here), calls + 1
    assert done == len(actions)
    assert calls >= sum(steps) // (MAX_STEPS + max(steps))


def test_plain_takes_are_bounded_too(script: DirectScript) -> None:
    """128 takes of 50 plain buckets, and thousands of single charges and of resets, need several calls."""
    takes = [Take(tuple(Charge(bucket(n), f"key {number}") for n in range(50))) for number in range(128)]
    require_bounded(script, takes, [50 * PLAIN_STEPS] * 128, "1" * 128)
    quota = bucket(0)
    charges = [on_bucket(Charge(quota, f"other{number}")) for number in range(2_000)]
    require_bounded(script, charges, [PLAIN_STEPS] * 2_000, "1" * 2_000)
    resets = [Reset(take.charges) for take in takes]
    require_bounded(script, resets, [50] * 128, "1" * 128)
    assert script.client.dbsize() == 2_000


MILLION = TokenBucket(1_000_000, burst=1_000_000, name="million")


@pytest.mark.parametrize(
    ("gaps", "granted"),
    [
        (((0.0, 100 * UNIT), (5_000 * UNIT, 10 * UNIT)), 100),
        (((0.0, 1_000 * UNIT), (5_000 * UNIT, 900_000 * UNIT)), 900_000),
        (((0.0, 999_999.5 * UNIT), (1_100_000 * UNIT, UNIT)), 999_999),
    ],
)
def test_a_best_effort_does_not_count_units(
    client: redis.Redis, gaps: tuple[tuple[float, float], ...], granted: int
) -> None:
    """From a million units with two gaps, it makes as few calls as from a hundred, and takes the most that fits."""
    client.flushall()
    script, charge = DirectScript(client, counts_calls=True), Charge(MILLION, "key", 1e6)
    before: State = (1.2e6 * UNIT, NOW, 7, gaps, (), b"")
    script.put(charge, before)
    reply = script.call([Take((charge,), best_effort=True)])
    taken = sum(size for _, size in gaps) - sum(size for _, size in (script.state(charge) or before)[3])
    assert (reply.verdicts, taken) == ("1", granted * UNIT)
    assert 10 <= reply.steps <= 200


@pytest.mark.anyio
async def test_a_store_gets_all_decisions_of_a_batch_above_the_bound(redis_url: str, clock: SteppedClock) -> None:
    """What one call leaves over is sent again: each take is decided and charged once, as in memory."""
    store, memory = RedisStore(redis_url, clock=clock, timeout=30, on_error="deny"), MemoryStore(clock=clock)
    takes = [Take(tuple(Charge(bucket(n), f"key {number % 20}", 8) for n in range(50))) for number in range(64)]
    decisions = await store.take(takes)
    assert decisions == await memory.take(takes)
    assert sum(decision.allowed for decision in decisions) == 40
    await store.aclose()
