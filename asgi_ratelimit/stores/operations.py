"""What a store remembers of operations and settlements: an answer by id, for a while, bounded in number."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from ..buckets import as_bytes, digest
from ..decision import Take
from ..errors import ConfigurationError
from ..quotas import SECOND_US

T = TypeVar("T")

OPERATION_TTL = 600.0
"""Seconds for which a store remembers an operation."""

EXAMINED = 2
"""How many of the oldest answers are examined for each new one; those that are over go."""


def checked_operation_ttl(seconds: float) -> float:
    """``operation_ttl`` in whole microseconds; ``ConfigurationError`` unless it is from 0.001 seconds to a year."""
    if isinstance(seconds, (int, float)) and 0.001 <= seconds <= 31_536_000:  # false for NaN, too
        return float(round(seconds * SECOND_US))
    raise ConfigurationError(f"operation_ttl must be seconds from 0.001 to a year, not {seconds!r}: operation_ttl=600")


def operation_text(take: Take) -> str:
    """The operation of a take that names one: equal for takes with the same id, buckets, costs and ``best_effort``.

    It begins with the first bucket, so that both are in one slot of a cluster.
    """
    charges = [f"{charge.bucket} {float(charge.cost)!r}" for charge in take.charges]
    text = "\n".join(["best effort" if take.best_effort else "take", *charges, str(take.operation)])
    return f"{take.charges[0].bucket}:{digest(as_bytes(text))}"


def settlement_text(bucket: str, identity: int) -> str:
    """What marks the charge of this bucket in the decision of this id as settled."""
    return f"{bucket}:{identity:x}"


class Remembered(Generic[T]):
    """The latest answers by text, at most ``most``, each until a time in microseconds. The oldest go first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[str, tuple[float, T]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._entries)

    def get(self, text: str, now: float) -> T | None:
        """The answer under a text; ``None`` if it is not remembered at the time ``now``."""
        until_us, answer = self._entries.get(text, (0.0, None))
        return answer if now < until_us else None

    def add(self, text: str, answer: T, now: float, until_us: float) -> None:
        """Remember an answer."""
        entries = self._entries
        entries.pop(text, None)
        for _ in range(EXAMINED):
            oldest = next(iter(entries), None)
            if oldest is None or (len(entries) < self._most and now < entries[oldest][0]):
                break
            del entries[oldest]
        entries[text] = until_us, answer

    def forget(self, text: str) -> None:
        """Forget the answer under a text."""
        self._entries.pop(text, None)
