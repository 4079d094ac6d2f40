"""Blocks: a key that is refused again and again is blocked for a while, by buckets like any others.

Three buckets of a key stand beside those of its quotas, so processes share them and no store needs to know of them:

* ``penalty-block`` is checked in the same take as every request that may be blocked, at almost no cost. A block is one
  charge that is larger than the bucket: the level stays above the burst for as long as the block lasts.
* ``penalty-strikes`` counts refusals, and only those of a key that is not blocked, so their number is bounded.
* ``penalty-blocks`` counts earlier blocks where blocks grow, and forgets one of them a day.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from ...arguments import shows_use
from ...buckets import DEFAULT_NAME, as_key, bucket, bucket_prefix
from ...decision import Charge, Decision, QuotaState, Take
from ...errors import StoreError, StoreUnavailable
from ...limiter import as_store, checked_name
from ...quotas import RollingWindow, TokenBucket
from ...stores import Store
from .penalty import Penalty, seconds_of

RATE: Final = 1024.0
"""Units that a block drains in a second."""

BLOCK = TokenBucket(RATE, 1.0, burst=1, name="penalty-block")
"""Its level is above the burst while a key is blocked; it drains from full to empty in less than a millisecond."""

EARLIER_BLOCKS = TokenBucket(1, 86_400.0, burst=32, name="penalty-blocks")

CHECK_COST: Final = 1 / 16_384
"""Units that a check for a block takes: so few that thousands of checks at once fill nothing."""

_SOON = 0.005
"""Seconds after which the bucket of a key that is not blocked is certainly empty, and that of a blocked one is not."""

logger = logging.getLogger("asgi_ratelimit")


class Blocks:
    """The blocks under the name of a rule or middleware: to see them, to lift them, and to block by hand.

    ``store`` is its store or URL, and ``name`` its name. Keys are what its key function returns: an address, or the
    key of a header, ``header("x-api-key").of(scope)``. Every method may raise ``StoreError``.
    """

    @shows_use('Blocks(store=store, name="login")')
    def __init__(self, *, store: Store | str | None = None, name: str = DEFAULT_NAME) -> None:
        self._store = as_store(store)
        self._name = checked_name(name)

    async def blocked_for(self, key: str | bytes) -> float:
        """The seconds for which ``key`` is still blocked; 0.0 if it is not."""
        return (await self._store.peek(Take((block_check(self._name, as_key(key)),)))).retry_after

    async def block(self, key: str | bytes, block_for: str | float) -> bool:
        """Block ``key`` for a duration such as ``"1 day"``, or seconds; false if it already was blocked."""
        seconds = seconds_of("block_for", block_for)
        decision = await _block(self._store, self._name, as_key(key), seconds)
        if decision.degraded:
            raise StoreUnavailable(f"the store does not answer, so {key!r} is not blocked")
        return decision.allowed

    async def lift(self, key: str | bytes) -> None:
        """Let ``key`` pass again, and forget its refusals and earlier blocks. Its quotas stay as they are."""
        text, name = as_key(key), self._name
        earlier = Charge(EARLIER_BLOCKS, text, 1, name)
        await self._store.reset([block_check(name, text), Strike(_STRIKES, text, 1, name), earlier])

    async def aclose(self) -> None:
        """Close the store."""
        await self._store.aclose()


@dataclass(slots=True)
class Strike(Charge):
    """A charge for one refusal. Its bucket's text does not tell the penalty's period, so that ``lift`` finds it."""

    def __post_init__(self) -> None:
        self.bucket = bucket(bucket_prefix(self.name or DEFAULT_NAME, self.quota.name), self.key)


@dataclass(slots=True)
class BlockCheck(Charge):
    """A charge that checks, within a take, whether a key is blocked; ``penalty`` is that of the rule it is for."""

    penalty: Penalty | None = None


def block_check(name: str, key: str, penalty: Penalty | None = None) -> BlockCheck:
    """The check whether a key is blocked under a name."""
    return BlockCheck(BLOCK, key, CHECK_COST, name, penalty)


def is_blocked(decision: Decision) -> bool:
    """Whether it was a block that refused."""
    take = decision.take
    if decision.allowed or take is None or not isinstance(take.charges[-1], BlockCheck):
        return False
    return any(not state.allowed for _, state in _checks(decision))


async def apply_penalties(store: Store, decision: Decision) -> Decision:
    """A decision after its penalties: a refusal counts as a strike, and may become a refusal by a block.

    All other decisions lose their checks for blocks. A refusal that the store cannot count goes unpunished, and so
    does one that was decided without the store.
    """
    if decision.allowed:
        return without_checks(decision)
    if is_blocked(decision):
        return replace(decision, quota=BLOCK)
    refusing = {charge.name for charge, state in _pairs(decision) if not state.allowed}
    for check, state in [] if decision.degraded else _checks(decision):
        seconds = 0.0
        with suppress(StoreError):
            seconds = await add_strike(store, check) if check.name in refusing else 0.0
        if seconds:
            return _as_blocked(decision, state, seconds)
    return without_checks(decision)


async def add_strike(store: Store, check: BlockCheck) -> float:
    """Count a refusal of a key that is not blocked; the seconds for which it is blocked now, 0.0 if it is not."""
    penalty, key, name = check.penalty, check.key, check.name
    if penalty is None or not await _is_last_strike(store, check, penalty):
        return 0.0
    earlier = Charge(EARLIER_BLOCKS, key, 1, name)
    seconds = penalty.seconds(await _used(store, earlier) if penalty.growth > 1 else 0)
    if not (await _block(store, name, key, seconds)).allowed:
        return 0.0
    logger.warning("the key %r is blocked by the rule %r for %g s", key, name, seconds)
    if penalty.growth > 1:
        await _take(store, (earlier,))
    await store.reset([Strike(_STRIKES, key, 1, name)])
    return seconds


async def _is_last_strike(store: Store, check: BlockCheck, penalty: Penalty) -> bool:
    """Whether this refusal is one more than goes unpunished."""
    if penalty.strikes is None:
        return True
    decision = await _take(store, (Strike(penalty.strikes, check.key, 1, check.name), check))
    return not decision.allowed and not is_blocked(decision)


def without_checks(decision: Decision) -> Decision:
    """A decision as it would have been without checks for blocks: that is reported to clients, and settled.

    Checks are the last charges of their take.
    """
    take = decision.take
    if take is None or not isinstance(take.charges[-1], BlockCheck):
        return decision
    charges = tuple([charge for charge in take.charges if not isinstance(charge, BlockCheck)])
    count = len(charges)
    states = decision.states[:count]
    binding = min(states, key=_order)
    return replace(
        decision,
        retry_after=binding.retry_after,
        remaining=binding.remaining,
        reset_after=binding.reset_after,
        quota=binding.quota,
        states=states,
        take=replace(take, charges=charges),
        before=decision.before and decision.before[:count],
        times_us=decision.times_us and decision.times_us[:count],
    )


def _order(state: QuotaState) -> tuple[bool, float, int]:
    """The binding quota first: of the refusing ones that with the longest wait, else the one with the least left."""
    return state.allowed, -state.retry_after, state.remaining


def _as_blocked(decision: Decision, check: QuotaState, seconds: float) -> Decision:
    """A refusal by quotas as one by the block that it has led to; it passes after the longest of these waits."""
    blocked = replace(check, allowed=False, remaining=0, retry_after=seconds, reset_after=seconds, more_after=seconds)
    states = tuple([blocked if state is check else state for state in decision.states])
    wait = max(seconds, decision.retry_after)
    return replace(decision, quota=BLOCK, retry_after=wait, remaining=0, reset_after=seconds, states=states)


def _pairs(decision: Decision) -> list[tuple[Charge, QuotaState]]:
    return list(zip(decision.take.charges, decision.states)) if decision.take else []


def _checks(decision: Decision) -> list[tuple[BlockCheck, QuotaState]]:
    return [(charge, state) for charge, state in _pairs(decision) if isinstance(charge, BlockCheck)]


_STRIKES = RollingWindow(1, 1, 1, name="penalty-strikes")
"""A bucket is identified by the name of its quota, so this one is enough to reset strikes."""


async def _block(store: Store, name: str | None, key: str, seconds: float) -> Decision:
    """Charge what takes so long to drain, unless the level is above the burst already.

    The level is back at the burst a millisecond early, so any number of checks passes when the time is over.
    """
    return await _take(store, (Charge(BLOCK, key, seconds * RATE, name),), _SOON)


async def _used(store: Store, charge: Charge) -> int:
    """How many units of a charge's quota are used."""
    state = (await store.peek(Take((charge,)))).states[0]
    return round(charge.quota.most) - state.remaining


async def _take(store: Store, charges: tuple[Charge, ...], max_wait: float = 0.0) -> Decision:
    return (await store.take((Take(charges, max_wait),)))[0]
