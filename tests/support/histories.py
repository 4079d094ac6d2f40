"""Random histories: steps that callers and clocks take, carried out on a memory store and on a Redis at once.

A step is a value that knows how to be carried out on a ``History``, and what was admitted there, less what was given
back, stands in ``Ledger``s, in exact numbers. What must hold is a ``Promise``, which is told of every step.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import count, islice
from typing import Protocol, TypeAlias, TypeVar

import redis
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import State
from asgi_ratelimit.decision import Charge, Decision
from asgi_ratelimit.limiter import Cost, Limiter
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import MemoryStore, RedisStore
from asgi_ratelimit.testing import SteppedClock

T = TypeVar("T")
Bucket: TypeAlias = str

KEYS = ("a", "b")
ROUNDING = Fraction(1, 10**6)
"""Units by which doubles may be off, where limits and factors are no sums of powers of two."""


def ceiling(quota: Quota, first_us: int, last_us: int) -> Fraction | float:
    """The most units that a quota admits from one moment to another, both included; infinite where it says nothing."""
    period, span = round(quota.period_us), last_us - first_us
    if isinstance(quota, TokenBucket):
        return Fraction(quota.burst) + span * Fraction(quota.limit) / period
    if isinstance(quota, FixedWindow):
        return Fraction(quota.limit) if first_us // period == last_us // period else math.inf
    return Fraction(quota.limit) if span < period else math.inf


@dataclass
class Entry:
    """Units that were admitted at a moment, less those that were given back."""

    at_us: int
    units: Fraction


def without_generation(state: State | None) -> tuple[object, ...] | None:
    """A state but for its generations, which every store gives out on its own."""
    if state is None:
        return None
    core, last, _, gaps, lows, older = state
    at, size = {7: (24, 4), 8: (13, 8), 9: (15, 8)}[older[0]] if older else (0, 0)
    return core, last, gaps, lows, older[:at], older[at + size :]


def states_before(decision: Decision) -> list[object]:
    """The states that a decision has changed, but for their generations."""
    return list(map(without_generation, decision.before or ())) if decision.allowed else []


class Ledger:
    """What one bucket admitted; no longer ``bound`` by its quota after what no quota bounds."""

    def __init__(self, quota: Quota) -> None:
        self.quota = quota
        self.entries: list[Entry] = []
        self.bound = True

    def admit(self, at_us: int, units: float) -> Entry:
        """Note units at their slot. A cost above a burst, which only pacing admits, no interval has room for."""
        if units > self.quota.most:
            self.bound = False
        self.entries.append(Entry(at_us, Fraction(units)))
        return self.entries[-1]

    def require_ceiling(self) -> None:
        """No interval from one entry to another holds more than its ceiling."""
        entries = sorted(self.entries, key=lambda entry: entry.at_us)
        if isinstance(self.quota, TokenBucket):
            require_level(self.quota, entries)
            return
        for number, first in enumerate(entries):
            total = Fraction(0)
            for last in islice(entries, number, None):
                most = ceiling(self.quota, first.at_us, last.at_us)
                if most == math.inf:  # and so for all later ones
                    break
                total += last.units
                assert total <= most + ROUNDING, (self.quota, first, last, float(total), float(most))


def require_level(quota: TokenBucket, entries: list[Entry]) -> None:
    """The same in one pass: no interval holds more than the burst, less what drains meanwhile, if no level does."""
    level, last_us = Fraction(0), 0
    for entry in entries:
        drained = (entry.at_us - last_us) * Fraction(quota.limit) / round(quota.period_us)
        level, last_us = max(level - drained, Fraction(0)) + entry.units, entry.at_us
        assert level <= Fraction(quota.burst) + ROUNDING, (quota, entry, float(level))


class Writes:
    """What a memory store and the script have written since this was made, in a history that is watched for that."""

    def __init__(self, history: History) -> None:
        self._history = history
        if history.is_watched:
            self.states = history.states
            self._sets = history.stores.sets()

    def seen(self) -> tuple[set[Bucket], int]:
        """The buckets with a new state in memory, and the number of ``SET`` in Redis."""
        now = self._history.states
        changed = {bucket for bucket, (_, state) in now.items() if state != self.states[bucket][1]}
        return changed, self._history.stores.sets() - self._sets


@dataclass
class Answer:
    """What both stores, the memory store first, have said to a take or a peek, and what they wrote at that."""

    history: History
    decisions: list[Decision]
    writes: Writes


@dataclass
class Settled:
    """Decisions that both stores have settled at this cost of each charge."""

    history: History
    decisions: list[Decision]
    actual: float


class Promise:
    """What must hold in every history; it is told what has happened, and overrides what it has a say in."""

    watches_writes = False
    """Whether it asks what was written: to know that takes longer than all else."""

    async def asked(self, answer: Answer) -> None:
        """Both stores have decided a take."""

    async def looked(self, answer: Answer) -> None:
        """Both stores have answered a peek."""

    async def settled(self, settled: Settled) -> None:
        """Both stores have settled what they had allowed."""

    async def ended(self, history: History) -> None:
        """All steps are done."""


class Stores:
    """One connection for all histories, one event loop, and one clock."""

    def __init__(self, url: str) -> None:
        self.clock = SteppedClock()
        self.remote = RedisStore(url, clock=self.clock, timeout=30, on_error="deny")
        self.client = redis.Redis.from_url(url)
        self.runner = asyncio.Runner()
        self.names = map("history {}".format, count())  # so that none meets what a store knows of another one

    def run(self, plan: Plan, *promises: Promise) -> None:
        """Carry out a history from its start, in front of its promises."""
        self.client.flushdb()
        self.clock.move_to(plan.start)
        self.runner.run(History(plan.quotas, self, promises).run(plan.steps))

    def sets(self) -> int:
        """How many keys the script has written in its life."""
        return int(self.client.info("commandstats").get("cmdstat_set", {"calls": 0})["calls"])

    def close(self) -> None:
        """Let go of what was opened."""
        self.runner.run(self.remote.aclose())
        self.runner.close()
        self.client.close()


class History:
    """Two limiters of the same quotas, the open decisions of both, and a ledger for each bucket."""

    def __init__(self, quotas: list[Quota], stores: Stores, promises: tuple[Promise, ...]) -> None:
        self.quotas, self.stores, self.promises = quotas, stores, promises
        self.is_watched = any(promise.watches_writes for promise in promises)
        self.clock, self.memory = stores.clock, MemoryStore(clock=stores.clock)
        self.name = next(stores.names)
        self.limiters = [Limiter(quotas, store=store, name=self.name) for store in (self.memory, stores.remote)]
        self.ledgers = {(quota.name, key): Ledger(quota) for quota in quotas for key in KEYS}
        self.open: list[tuple[list[Decision], list[Entry]]] = []

    @property
    def states(self) -> dict[Bucket, tuple[Quota, State | None]]:
        """The states of all buckets in memory, by quota and key."""
        charges = [Charge(quota, key, 1, self.name) for quota in self.quotas for key in KEYS]
        return {charge.bucket: (charge.quota, self.memory.state_of(charge)) for charge in charges}

    async def run(self, steps: list[Step]) -> None:
        """Carry out all steps."""
        for step in steps:
            await step.carry_out(self)
        for promise in self.promises:
            await promise.ended(self)

    async def ask(self, verb: Callable[[Limiter], Awaitable[Decision]]) -> None:
        """Both limiters decide, and what they admit is noted."""
        writes = Writes(self)
        decisions = [await verb(limiter) for limiter in self.limiters]
        if decisions[0].allowed:
            self.open.append((decisions, self._entered(decisions[0])))
        for promise in self.promises:
            await promise.asked(Answer(self, decisions, writes))

    async def look(self, verb: Callable[[Limiter], Awaitable[Decision]]) -> None:
        """Both limiters say what they would decide."""
        writes = Writes(self)
        decisions = [await verb(limiter) for limiter in self.limiters]
        for promise in self.promises:
            await promise.looked(Answer(self, decisions, writes))

    async def settle(self, which: int, share: float) -> None:
        """Settle the latest open decision but ``which`` at a share of its first cost, be that more than another one."""
        if not self.open:
            return
        decisions, entries = self.open.pop(-1 - which % len(self.open))
        actual = share * charged_by(decisions[0])[0]
        for entry in entries:
            entry.units = min(entry.units, Fraction(actual))
        await self.carry_back(decisions, actual)
        for promise in self.promises:
            await promise.settled(Settled(self, decisions, actual))

    async def carry_back(self, decisions: list[Decision], actual: float) -> None:
        """Settle at both limiters, by the verb that says it best."""
        charged = charged_by(decisions[0])
        for limiter, decision in zip(self.limiters, decisions):
            if actual == 0:
                await limiter.cancel(decision)
            elif len(set(charged)) == 1 and actual < charged[0]:
                await limiter.refund(decision, charged[0] - actual)
            else:
                await limiter.settle(decision, actual)

    async def reset(self, key: str) -> None:
        """Forget a key, at a moment of its own, since the generation of a bucket is the time."""
        self.clock.advance(1e-6)
        for limiter in self.limiters:
            await limiter.reset(key)
        for quota in self.quotas:
            self.ledgers[quota.name, key].entries = []
        self.clock.advance(1e-6)

    def _entered(self, decision: Decision) -> list[Entry]:
        assert decision.take
        slot = round(decision.now_us) + round(decision.delay * 1e6)
        charges = zip(decision.take.charges, charged_by(decision))
        return [self.ledgers[charge.quota.name, charge.key].admit(slot, units) for charge, units in charges]


def charged_by(decision: Decision) -> list[float]:
    """The units of each charge that a decision took."""
    assert decision.take
    return [decision.granted if decision.take.best_effort else charge.cost for charge in decision.take.charges]


class Step(Protocol):
    """Something that a caller or a clock does."""

    async def carry_out(self, history: History) -> None:
        """Do it."""


@dataclass(frozen=True)
class Advance:
    """The clock moves on, or, below 0, is set back, after which what its times bound is anybody's guess."""

    us: int

    async def carry_out(self, history: History) -> None:
        history.clock.advance(self.us / 1e6)
        if self.us < 0:
            for ledger in history.ledgers.values():
                ledger.bound = False


@dataclass(frozen=True)
class RateLimit:
    """A caller who goes away when refused, or takes what there is."""

    key: str
    cost: Cost
    best_effort: bool = False

    async def carry_out(self, history: History) -> None:
        await history.ask(lambda limiter: limiter.rate_limit(self.key, self.cost, best_effort=self.best_effort))


@dataclass(frozen=True)
class Pace:
    """A caller who waits for at most ``max_delay`` seconds."""

    key: str
    cost: Cost
    max_delay: float | None

    async def carry_out(self, history: History) -> None:
        await history.ask(lambda limiter: limiter.pace(self.key, self.cost, max_delay=self.max_delay))


@dataclass(frozen=True)
class TakeAll:
    """A caller who takes from all the quotas of all the keys at once."""

    costs: tuple[float, float]
    max_wait: float

    async def carry_out(self, history: History) -> None:
        charges = [Charge(quota, key, cost) for quota in history.quotas for key, cost in zip(KEYS, self.costs)]
        await history.ask(lambda limiter: limiter.take(charges, self.max_wait))


@dataclass(frozen=True)
class Peek:
    """A caller who only looks."""

    key: str
    cost: float

    async def carry_out(self, history: History) -> None:
        await history.look(lambda limiter: limiter.peek(self.key, self.cost))


@dataclass(frozen=True)
class Settle:
    """A caller who gives back, cancels, or turns out to have used more."""

    which: int
    share: float

    async def carry_out(self, history: History) -> None:
        await history.settle(self.which, self.share)


@dataclass(frozen=True)
class Reset:
    """Somebody lets a key off."""

    key: str

    async def carry_out(self, history: History) -> None:
        await history.reset(self.key)


@dataclass(frozen=True)
class Plan:
    """When a history starts, of which quotas, and what happens then."""

    start: float
    quotas: list[Quota]
    steps: list[Step]


PERIODS = st.sampled_from([1.0, 0.1, 3.0, 10.0])
BUCKETS = st.builds(
    TokenBucket,
    st.sampled_from([1, 2, 3, 5, 10, 7, 0.5, 2.5, 1 / 3]),
    PERIODS,
    st.sampled_from([1, None, 2, 3, 5.5, 10]),
    st.just(1.0) | st.sampled_from([0.5, 0.3]) | st.floats(0.05, 1.0),
)
WINDOW_LIMITS = st.sampled_from([1, 2, 3, 5, 10, 2.5])
FIXED = st.builds(FixedWindow, WINDOW_LIMITS, PERIODS)
ROLLING = st.builds(RollingWindow, WINDOW_LIMITS, PERIODS, st.sampled_from([1, 2, 5, 10]))


@st.composite
def plans(draw: st.DrawFn, *, back: bool = False) -> Plan:
    """One to three quotas of any kind, and up to forty steps, in every mix of verbs.

    In one of five histories the clock may be set ``back``, or in all of them.
    """
    chosen = draw(st.lists(BUCKETS | FIXED | ROLLING, min_size=1, max_size=3))
    quotas = [replace(quota, name=f"quota {number}") for number, quota in enumerate(chosen)]
    fraction = draw(st.integers(0, 999_999))
    steps = st.lists(draw(kinds_of_steps(quotas, back)), min_size=draw(st.integers(1, 40)), max_size=40)
    return Plan(1_800_000_000 + fraction / 1e6, quotas, draw(steps))


@st.composite
def bills(draw: st.DrawFn) -> Plan:
    """One to three token buckets, and callers who are rate limited by all of them, some of whom give back."""
    chosen = draw(st.lists(BUCKETS, min_size=1, max_size=3))
    quotas = [replace(quota, name=f"quota {number}") for number, quota in enumerate(chosen)]
    unit = round(max(quota.period_us / quota.limit for quota in quotas))
    asking = st.builds(RateLimit, st.sampled_from(KEYS), st.sampled_from([1, 1, 0.5, 2]))
    moving = st.builds(Advance, st.sampled_from([1, unit // 3, unit, 3 * unit, unit, -1, -unit // 2, -(10**8)]))
    settling = st.builds(Settle, st.integers(0, 2), st.sampled_from([0.0, 0.5, 1.5]))
    kinds = draw(st.sampled_from([(asking, moving), (asking, asking, moving, settling)]))
    return Plan(1_800_000_000, [*quotas], draw(st.lists(evenly(*kinds), min_size=2, max_size=40)))


@st.composite
def kinds_of_steps(draw: st.DrawFn, quotas: list[Quota], back: bool) -> st.SearchStrategy[Step]:
    """Steps on the scale of the quotas' units and periods; a history has its own kinds of costs and of clocks."""
    unit = round(min(quota.period_us / quota.limit for quota in quotas))
    period = round(max(quota.period_us for quota in quotas))
    keys = st.sampled_from(KEYS[: draw(st.integers(1, 2))])
    costs = draw(st.sampled_from([st.just(1), st.sampled_from([1, 1, 1, 2, 3, 0.5, 2.5])]))
    patience = st.sampled_from([unit / 1e6, 5 * unit / 1e6, period / 1e6])
    bills = costs | st.dictionaries(st.sampled_from([quota.name for quota in quotas]), costs, min_size=1)
    asking = (
        st.builds(RateLimit, keys, bills)
        | st.builds(RateLimit, keys, costs, st.just(True))
        | st.builds(Pace, keys, bills, st.none() | patience)
        | st.builds(Pace, keys, bills, st.none())
        | st.builds(TakeAll, st.tuples(costs, costs), st.just(0.0) | patience)
    )
    settling = st.builds(Settle, st.integers(0, 5), st.sampled_from([0.0, 0.0, 0.0, 0.5, 0.25, 1.0, 1.5, 4.0]))
    seldom = st.builds(Peek, keys, costs) | st.builds(Reset, keys)
    ahead = st.sampled_from([1, unit // 3, unit, unit, unit * 5 // 2, period, 50 * unit]) | st.integers(1, 4 * unit)
    behind = st.sampled_from([-1, -(unit // 2), -3 * unit, -period, -period - 1, -3 * period, -(10**8)])
    moving = st.builds(Advance, evenly(ahead, behind) if back or draw(st.integers(0, 4)) == 4 else ahead)
    return evenly(asking, asking, moving, settling, asking, moving, settling, seldom)


def evenly(*kinds: st.SearchStrategy[T]) -> st.SearchStrategy[T]:
    """One of these kinds, each as likely as the next; ``|`` would go by how many kinds each is made up of."""
    return st.sampled_from(kinds).flatmap(lambda kind: kind)
