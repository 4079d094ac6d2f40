"""What the model asks of a bucket, whoever knows its limit: answers of the server, or a search.

Times are microseconds. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from ....quotas import SECOND_US
from .bucket_refills import Rate

RETRY_US = 1 * SECOND_US
"""After how long a bucket is tried again if no answer says when there is more of it."""


@dataclass(eq=False, repr=False)
class Bucket(ABC):
    """Something that requests wait for. A request goes when all buckets that it needs are ready; each one counts it.

    1. ``ready_at`` says when the next request may go.
    2. ``admit`` counts a request that may go, and ``send`` that it does so; ``withdraw`` says that it does not.
    3. ``end`` says that it has its answer, or that none will come.

    ``admit`` and ``send`` return a number that the bucket needs to recognise the request: the one of ``admit`` goes to
    ``holds_up`` and ``withdraw``, the one of ``send`` to ``end``.
    """

    name: str
    waiting: OrderedDict[Any, None] = field(default_factory=OrderedDict)
    """The routes that wait for this bucket, in turn."""
    unsent: int = 0
    """The number of requests that are admitted and not yet sent."""
    under_way: int = 0
    """The number of requests that are sent and have no answer."""

    @property
    @abstractmethod
    def limit(self) -> float:
        """The limit as far as it is known, or infinity."""

    @property
    def remaining(self) -> float | None:
        """The units that may still be used, or ``None`` if that is not known, or not limited."""
        return None

    def paused_us(self, _now_us: float) -> float:
        """How long a pause still lasts."""
        return 0.0

    @abstractmethod
    def ready_at(self, now_us: float) -> float:
        """When the next request may go: ``now_us``, or a later time. It is always finite, so nobody waits forever."""

    @abstractmethod
    def not_before(self, now_us: float) -> float:
        """A time before which no request may go, whatever answers come."""

    def holds_up(self, _number: int, _now_us: float) -> bool:
        """Whether an admitted request may no longer go, because a pause has begun."""
        return False

    def admit(self, _now_us: float) -> int:
        """Count a request that may go now."""
        self.unsent += 1
        return 0

    def withdraw(self, _number: int) -> None:
        """Note that an admitted request is not sent."""
        self.unsent -= 1

    def send(self, _now_us: float) -> int:
        """Note that an admitted request is sent now."""
        self.unsent -= 1
        self.under_way += 1
        return 0

    def end(self, _number: int, _now_us: float) -> None:
        """Note that a request has an answer, or that none will come. The server may have counted it or not."""
        self.under_way -= 1


def known(units: float) -> float | None:
    """A number of units, or ``None`` if it is infinite: not known, or not limited."""
    return None if math.isinf(units) else units


@dataclass(slots=True, eq=False, repr=False)
class StoredBucket:
    """A bucket in the store that processes share. ``rate`` and ``left`` come from there; the rest is to be told there.

    Without such a store, nobody reads it.
    """

    rate: Rate | None = None
    """The rate by which all processes charge the bucket."""
    left: float = math.inf
    """The units that the store had left when it last decided on a request; they bound how many ask it at once."""
    reported: float = math.inf
    """The units that were left according to the latest answer."""
    is_spent: bool = False
    """Whether nothing was left according to the latest answer, unless the store knows that already."""
    has_renewed: bool = False
    """Whether a window that an answer has reported has ended, unless the store knows that already."""
