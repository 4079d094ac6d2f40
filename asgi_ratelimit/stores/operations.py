"""Operations: actions with an id, which are carried out once, however often they are sent.

The text of an operation starts with the text of its first bucket, so that both are in one slot of a cluster.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from random import getrandbits
from typing import Generic, TypeAlias, TypeVar

from ..algorithms import decide, settlement_of
from ..algorithms.quota_kinds import States
from ..buckets import as_bytes, digest
from ..decision import Decision, Redemption, Settlement, Take
from ..errors import ConfigurationError
from ..quotas import SECOND_US, Quota

T = TypeVar("T")

TakenBefore: TypeAlias = tuple[float, int, list[bytes | None], list[Quota]]
"""The record of a take: its time, its first birth, the earlier values of its buckets, and their quotas."""

OPERATION_TTL = 600.0
"""Seconds for which a store remembers an operation."""


def checked_operation_ttl(seconds: float) -> float:
    """``operation_ttl`` in whole microseconds; ``ConfigurationError`` unless it is from 0.001 seconds to a year."""
    if isinstance(seconds, (int, float)) and 0.001 <= seconds <= 31_536_000:  # false for NaN, too
        return float(round(seconds * SECOND_US))
    raise ConfigurationError(f"operation_ttl must be seconds from 0.001 to a year, not {seconds!r}: operation_ttl=600")


def take_text(take: Take) -> str:
    """The operation of a take that names one: equal for takes with the same id, buckets, costs and ``best_effort``."""
    charges = [f"{charge.bucket} {float(charge.cost)!r}" for charge in take.charges]
    kind = "best effort" if take.best_effort else "take"
    return _text(take.charges[0].bucket, "\n".join([kind, *charges, str(take.operation)]))


def settlement_text(settled: Settlement | Redemption) -> str:
    """The operation of a settlement, or of the redemption of the same ticket."""
    return _text(settled.charges[0].bucket, f"settle\n{float(settled.id)!r}")


def repayment_text(bucket: str) -> str:
    """A new operation, for the charge on a bucket after an outage."""
    return _text(bucket, f"repay\n{getrandbits(128)}")


def _text(bucket: str, operation: str) -> str:
    return f"{bucket}:{digest(as_bytes(operation))}"


def settled_as(decision: Decision, actual: Sequence[float]) -> Settlement | None:
    """How to settle a decision at the ``actual`` cost of each charge; ``None`` if there is nothing to settle.

    If everything is given back, the operation of the take is forgotten. A cost that is as charged is settled as well,
    so that no copy of the decision is settled differently later.
    """
    settlement = settlement_of(decision, actual)
    take = decision.take
    if settlement is None or take is None or take.operation is None:
        return settlement
    return replace(settlement, taken=take, undone=None if any(actual) else take)


def full_refund(decision: Decision) -> Settlement | None:
    """How to give back all of a decision."""
    return settled_as(decision, [0.0] * len(decision.states))


def of_quotas(take: Take, quotas: Sequence[Quota]) -> Take:
    """A take as it was first sent, with the quotas of that time, under which it is settled."""
    charges = zip(take.charges, quotas)
    return replace(take, charges=tuple([replace(charge, quota=quota) for charge, quota in charges]))


def decided_again(take: Take, states: States, then: float, birth: int, now: float) -> Decision:
    """The decision of a take that was allowed at the time ``then`` over these states, repeated at the time ``now``.

    Its slot is the one that was booked, even for a caller that would not have waited so long.
    """
    patient = take if take.best_effort else replace(take, max_wait=math.inf)
    decided, _ = decide(patient, states, then, birth)
    decision = replace(decided, take=take, repeated_us=now)
    return decision if decision.allowed else as_allowed(decision)


def as_allowed(decision: Decision) -> Decision:
    """A refusal, turned into the decision of a take that was allowed nevertheless; it cannot be settled."""
    cost = decision.take.charges[0].cost if decision.take is not None else decision.granted
    return replace(decision, allowed=True, granted=cost, delay=0.0, retry_after=0.0, before=None)


def redeemed(foreseen: Decision, is_first: bool) -> Decision:
    """The answer to a redemption over the states of ``foreseen``."""
    if is_first:
        return as_allowed(foreseen)
    return replace(foreseen, allowed=False, granted=0, delay=0.0, retry_after=math.inf, before=None)


EXAMINED = 2
"""How many of the oldest operations are examined for each new one; expired ones are forgotten."""


MOST_SHARDS = 1 << 12
"""The most dictionaries: enough for four million operations."""


class Operations(Generic[T]):
    """The latest operations, about ``most`` and no more, and the outcome of each. The oldest go first."""

    def __init__(self, most: int) -> None:
        count = min(1 << max((most // 1024).bit_length() - 1, 0), MOST_SHARDS)
        self._most = most // count
        # Several dictionaries, so that none takes long to grow.
        self._shards: tuple[OrderedDict[str, tuple[float, T]], ...] = tuple([OrderedDict() for _ in range(count)])

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    def find(self, text: str, now: float) -> T | None:
        """The outcome of an operation; ``None`` if it is not remembered at the time ``now``."""
        until_us, outcome = self._entries(text).get(text, (0.0, None))
        return outcome if now < until_us else None

    def forget(self, text: str) -> None:
        """Forget an operation."""
        self._entries(text).pop(text, None)

    def add(self, text: str, outcome: T, now: float, until_us: float) -> None:
        """Remember an operation, until a time in microseconds."""
        entries = self._entries(text)
        entries.pop(text, None)
        for _ in range(EXAMINED):
            if entries and (len(entries) >= self._most or next(iter(entries.values()))[0] <= now):
                entries.popitem(last=False)
        entries[text] = (until_us, outcome)

    def _entries(self, text: str) -> OrderedDict[str, tuple[float, T]]:
        return self._shards[hash(text) & (len(self._shards) - 1)]
