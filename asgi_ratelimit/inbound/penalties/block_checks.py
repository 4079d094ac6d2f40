"""The buckets of blocks, and the checks for a block within the takes of requests.

A key has three buckets beside those of its quotas, so processes share them and no store needs to know about them:

* ``penalty-block`` is checked in the same take as every request that may be blocked, at almost no cost. A block is one
  charge that is larger than the bucket: the level stays above the burst for as long as the block lasts.
* ``penalty-strikes`` counts refusals, and only those of a key that is not blocked, so their number is bounded.
* ``penalty-blocks`` counts earlier blocks if blocks grow, and forgets one of them a day.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...buckets import DEFAULT_NAME, bucket, bucket_prefix
from ...decision import Charge, Decision, QuotaState, Take
from ...quotas import RollingWindow, TokenBucket
from ...stores import Store
from .penalty import Penalty

RATE: Final = 1024.0
"""Units that a block drains in a second."""

BLOCK = TokenBucket(RATE, 1.0, burst=1, name="penalty-block")
"""Its level is above the burst while a key is blocked; it drains from full to empty in less than a millisecond."""

EARLIER_BLOCKS = TokenBucket(1, 86_400.0, burst=32, name="penalty-blocks")

CHECK_COST: Final = 1 / 16_384
"""Units that a check for a block takes: so few that thousands of checks at once do not fill the bucket."""

STRIKES = RollingWindow(1, 1, 1, name="penalty-strikes")
"""A bucket is identified by the name of its quota, so this one is enough to reset strikes."""

_SOON = 0.005
"""Seconds after which the bucket of a key is certainly empty if it is not blocked, and not empty if it is blocked."""


@dataclass(slots=True)
class Strike(Charge):
    """A charge for one refusal. Its bucket's text does not contain the penalty's period, so that ``lift`` finds it."""

    def __post_init__(self) -> None:
        self.bucket = bucket(bucket_prefix(self.name or DEFAULT_NAME, self.quota.name), self.key)


@dataclass(slots=True)
class BlockCheck(Charge):
    """A charge that checks, within a take, whether a key is blocked; ``penalty`` is that of its rule."""

    penalty: Penalty | None = None


def block_check(name: str, key: str, penalty: Penalty | None = None) -> BlockCheck:
    """The check whether a key is blocked under a name."""
    return BlockCheck(BLOCK, key, CHECK_COST, name, penalty)


def is_blocked(decision: Decision) -> bool:
    """Whether a block refused the take."""
    if decision.allowed or not isinstance(decision.charges[-1], BlockCheck):
        return False
    return any(not state.allowed for _, state in checks_in(decision))


async def block(store: Store, name: str | None, key: str, seconds: float) -> Decision:
    """Charge as much as takes ``seconds`` to drain, unless the level is already above the burst.

    The level is back at the burst a millisecond early, so any number of checks passes when the time is over.
    """
    return await take_once(store, (Charge(BLOCK, key, seconds * RATE, name),), _SOON)


async def take_once(store: Store, charges: tuple[Charge, ...], max_wait: float = 0.0) -> Decision:
    return (await store.take((Take(charges, max_wait),)))[0]


def charges_and_states(decision: Decision) -> list[tuple[Charge, QuotaState]]:
    return list(zip(decision.charges, decision.states))


def checks_in(decision: Decision) -> list[tuple[BlockCheck, QuotaState]]:
    return [(charge, state) for charge, state in charges_and_states(decision) if isinstance(charge, BlockCheck)]
