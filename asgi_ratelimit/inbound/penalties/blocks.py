"""Blocks: who is refused again and again is blocked for a while, by buckets like any others.

Three buckets of a key are kept beside those of its quotas, so that processes share them and no store knows of them:

* ``penalty-block`` is asked along with every request that may be blocked, in the same take, at next to no cost. A
  block is one booking that is larger than the bucket: it stands over the rim for as long as the block lasts.
* ``penalty-strikes`` counts refusals, and only those of a key that is not blocked: their number is bounded.
* ``penalty-blocks`` counts earlier blocks where they grow, and forgets one of them a day.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from ...buckets import DEFAULT_NAME
from ...decision import Charge, Decision, QuotaState, Take
from ...errors import StoreError, StoreUnavailable
from ...limiter import as_key, as_store, checked_name
from ...quotas import RollingWindow, TokenBucket
from ...stores import Store
from .penalty import Penalty, seconds_of

RATE: Final = 1024.0
"""Units that a block drains in a second."""

BLOCKED = TokenBucket(RATE, 1.0, burst=1, name="penalty-block")
"""Is over its rim while a key is blocked; from full to empty it takes less than a millisecond."""

EARLIER = TokenBucket(1, 86_400.0, burst=32, name="penalty-blocks")
"""Earlier blocks."""

LOOK: Final = 1 / 16_384
"""What it costs to look whether a key is blocked: so little that thousands of looks at once fill nothing."""

_SOON = 0.005
"""Seconds in which an unblocked bucket is certainly empty, and a blocked one certainly not."""

logger = logging.getLogger("asgi_ratelimit")


class Blocks:
    """Who is blocked, under the name of a rule or middleware: to see, to lift, and to block by hand.

    ``store`` is its store or URL, and ``name`` its name. Keys are what its key function returns: an address, or the
    key of a header, ``header("x-api-key").of(scope)``. Every verb may raise ``StoreError``.
    """

    def __init__(self, *, store: Store | str | None = None, name: str = DEFAULT_NAME) -> None:
        self._store = as_store(store)
        self._name = checked_name(name)

    async def blocked_for(self, key: str | bytes) -> float:
        """The seconds for which ``key`` is still blocked; 0.0: it is not."""
        return (await self._store.peek(Take((look(self._name, as_key(key)),)))).retry_after

    async def block(self, key: str | bytes, block_for: str | float) -> bool:
        """Block ``key`` for a duration such as ``"1 day"``, or seconds; false: it was blocked before, and still is."""
        seconds = seconds_of("block_for", block_for)
        decision = await _block(self._store, look(self._name, as_key(key)), seconds)
        if decision.degraded:
            raise StoreUnavailable(f"the store does not answer, so that {key!r} is not blocked")
        return decision.allowed

    async def lift(self, key: str | bytes) -> None:
        """Let ``key`` pass again, and forget its refusals and earlier blocks. Its quotas are what they were."""
        await self._store.reset([Charge(quota, as_key(key), 1, self._name) for quota in (BLOCKED, _STRIKES, EARLIER)])

    async def aclose(self) -> None:
        """Close the store."""
        await self._store.aclose()


@dataclass(slots=True)
class Look(Charge):
    """What asks, within a take, whether a key is blocked, and knows the penalty that hangs over it."""

    penalty: Penalty | None = None
    bare: Take | None = field(init=False, repr=False, compare=False, default=None)
    """The take of which this is the last charge, without any looks, once that was asked for."""

    async def strike(self, store: Store) -> float:
        """Count a refusal of a key that is not blocked; the seconds for which it is blocked now, 0.0 for not yet."""
        if self.penalty is None or not await self._is_last(self.penalty, store):
            return 0.0
        earlier = Charge(EARLIER, self.key, 1, self.name)
        seconds = self.penalty.seconds(await _taken(store, earlier) if self.penalty.growth > 1 else 0)
        if not (await _block(store, self, seconds)).allowed:
            return 0.0
        logger.warning("the key %r is blocked by the rule %r for %g s", self.key, self.name, seconds)
        if self.penalty.growth > 1:
            await _one(store, (earlier,))
        await store.reset([Charge(_STRIKES, self.key, 1, self.name)])
        return seconds

    async def _is_last(self, penalty: Penalty, store: Store) -> bool:
        """Whether this refusal is one more than goes unpunished."""
        if penalty.strikes is None:
            return True
        decision = await _one(store, (Charge(penalty.strikes, self.key, 1, self.name), self))
        return not decision.allowed and not is_blocked(decision)


def look(name: str, key: str, penalty: Penalty | None = None) -> Look:
    """What asks, within a take, whether a key is blocked under a name."""
    return Look(BLOCKED, key, LOOK, name, penalty)


def is_blocked(decision: Decision) -> bool:
    """Whether it was a block that refused."""
    if decision.allowed or decision.take is None:
        return False
    charges = decision.take.charges
    if len(charges) == 1:
        return isinstance(charges[0], Look) and not decision.states[0].allowed
    return any(isinstance(charge, Look) and not state.allowed for charge, state in zip(charges, decision.states))


async def penalized(store: Store, decision: Decision) -> Decision:
    """A decision after its penalties: a refusal is counted, and may now be one by a block.

    All others are freed of their looks. What the store cannot count now goes unpunished, and so does what was decided
    without it.
    """
    if decision.allowed:
        return without_looks(decision)
    if is_blocked(decision):
        return decision
    refused = {charge.name for charge, state in _lines(decision) if not state.allowed}
    for look, state in [] if decision.degraded else _looks(decision):
        seconds = 0.0
        with suppress(StoreError):
            seconds = await look.strike(store) if look.name in refused else 0.0
        if seconds:
            return _now_blocked(decision, state, seconds)
    return without_looks(decision)


def without_looks(decision: Decision) -> Decision:
    """A decision as it would have been without asking for blocks: what clients are told, and what is settled.

    Looks are the last charges of their take.
    """
    bare = _bare(decision.take)
    if bare is None:
        return decision
    count = len(bare.charges)
    states = decision.states[:count]
    binding = states[0] if count == 1 else min(states, key=_how_much_is_left)
    return Decision(  # by position, which is a good deal faster
        decision.allowed,
        decision.granted,
        decision.delay,
        binding.retry_after,
        binding.remaining,
        binding.reset_after,
        decision.ready_at,
        binding.quota,
        states,
        decision.degraded,
        decision.shadow,
        bare,
        decision.before and decision.before[:count],
        decision.now_us,
        decision.settled,
        decision.times_us and decision.times_us[:count],
    )


def _bare(take: Take | None) -> Take | None:
    """A take without its looks, the same object each time; ``None`` where it has none."""
    last = take.charges[-1] if take else None
    if take is None or not isinstance(last, Look):
        return None
    if last.bare is None:
        last.bare = replace(take, charges=tuple([charge for charge in take.charges if not isinstance(charge, Look)]))
    return last.bare


def _how_much_is_left(state: QuotaState) -> tuple[bool, float, int]:
    """Refusals before the rest, the longest of them first, then what has the least left."""
    return state.allowed, -state.retry_after, state.remaining


def _now_blocked(decision: Decision, look: QuotaState, seconds: float) -> Decision:
    """A refusal by quotas as one by the block that it has led to."""
    blocked = replace(look, allowed=False, remaining=0, retry_after=seconds, reset_after=seconds, more_after=seconds)
    states = tuple([blocked if state is look else state for state in decision.states])
    return replace(decision, quota=blocked.quota, retry_after=seconds, remaining=0, reset_after=seconds, states=states)


def _lines(decision: Decision) -> list[tuple[Charge, QuotaState]]:
    return list(zip(decision.take.charges, decision.states)) if decision.take else []


def _looks(decision: Decision) -> list[tuple[Look, QuotaState]]:
    return [(charge, state) for charge, state in _lines(decision) if isinstance(charge, Look)]


_STRIKES = RollingWindow(1, 1, 1, name="penalty-strikes")
"""A bucket is told by the name of its quota: this one will do to forget strikes."""


async def _block(store: Store, look: Charge, seconds: float) -> Decision:
    """Book what has drained altogether after so long, unless something else stands over the rim.

    It is back at the rim a millisecond earlier, so that when the time is over there is room for any number of looks.
    """
    return await _one(store, (Charge(BLOCKED, look.key, seconds * RATE, look.name),), _SOON)


async def _taken(store: Store, charge: Charge) -> int:
    """How many units of a charge's quota are taken."""
    state = (await store.peek(Take((charge,)))).states[0]
    return round(charge.quota.most) - state.remaining


async def _one(store: Store, charges: tuple[Charge, ...], max_wait: float = 0.0) -> Decision:
    return (await store.take((Take(charges, max_wait),)))[0]
