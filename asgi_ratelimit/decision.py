"""What is asked of a store, and what it answers: values only.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from .buckets import DEFAULT_NAME, short_key
from .errors import ConfigurationError
from .quotas import MAX_UNITS, SECOND_US, Quota

Bucket: TypeAlias = tuple[str, str, str]
"""What tells a bucket from all others: the limiter, the quota, and the key, long ones hashed."""

OnError: TypeAlias = Literal["local", "allow", "deny"]
"""Who decides while the store cannot: a limiter in this process, everybody may pass, or nobody may."""


def checked_on_error(on_error: OnError) -> OnError:
    """``on_error`` if it is one of its three words; ``ConfigurationError`` otherwise."""
    if on_error in ("local", "allow", "deny"):
        return on_error
    raise ConfigurationError(f'on_error must be "local", "allow" or "deny", not {on_error!r}')


def checked_cost(cost: float) -> float:
    """``cost`` in units if it is a finite number above 0, at most 2**53; ``ValueError`` otherwise."""
    try:
        if 0 < cost <= MAX_UNITS:  # false for NaN, too
            return cost
    except TypeError:
        pass
    raise ValueError(f"cost must be a finite number above 0, at most 2**53, not {cost!r}: cost=1")


class _StateNotes:
    """What is kept with a state, and is none of its fields."""

    __slots__ = ("rendered",)


@dataclass(slots=True)
class QuotaState(_StateNotes):
    """What a decision says of one charge: times in seconds, ``remaining`` in whole units.

    ``retry_after`` is 0.0 where this charge alone would have passed, ``reset_after`` the time until its bucket is
    as good as new, ``more_after`` the time until one more unit than ``remaining`` is available (0.0: all are).
    Never changed after it is built, because decisions share it.
    """

    quota: Quota
    allowed: bool
    remaining: int
    retry_after: float
    reset_after: float
    more_after: float = 0.0

    if TYPE_CHECKING:
        rendered: tuple[tuple[bytes, bytes], ...] | None = field(init=False)
        """The headers that tell it by itself, once they are known; before that it may be missing."""


class _ChargeNotes:
    """What is kept with a charge, which may come again, and is none of its fields."""

    __slots__ = ("kept", "stored_under", "told_when_full")


@dataclass(slots=True)
class Charge(_ChargeNotes):
    """One line of a request's bill: ``cost`` units of ``quota``, from the bucket of ``key``.

    ``name`` is the limiter whose bucket it is; ``None`` means the one that takes the charge. Never changed after it is
    built: use ``dataclasses.replace``. Raises ``ValueError`` for a cost that is not a finite number above 0.
    """

    quota: Quota
    key: str
    cost: float = 1
    name: str | None = None
    bucket: Bucket = field(init=False, repr=False, compare=False)

    if TYPE_CHECKING:
        kept: Any = field(init=False)
        """What a memory store keeps of its bucket: those that come again are found fast."""
        stored_under: tuple[bytes, bytes] | None = field(init=False)
        """A prefix and the key in Redis that goes with it, once that is known."""
        told_when_full: tuple[QuotaState] | None = field(init=False)
        """What a decision says of it where its bucket was full, once that is known."""

    def __post_init__(self) -> None:
        checked_cost(self.cost)
        self.bucket = (self.name or DEFAULT_NAME, self.quota.name, short_key(self.key))
        self.kept = self.stored_under = self.told_when_full = None


class _TakeNotes:
    """What is kept with a take, and is none of its fields."""

    __slots__ = ("only",)


@dataclass(slots=True)
class Take(_TakeNotes):
    """The charges of one request, decided as one, by a caller who waits at most ``max_wait`` seconds.

    0 is rate limiting, more is pacing, ``math.inf`` is to wait as long as it takes. With ``best_effort``, for rate
    limiting only, as many whole units are granted as every charge can give, at least 1; all costs must be equal.
    ``on_error`` says what to do without the store: ``None`` leaves that to the store.
    Raises ``ValueError`` for a wait that is negative or no number, ``ConfigurationError`` for no charges, for
    two on one bucket, which must be one charge of their sum, or for a best effort that cannot be.
    """

    charges: tuple[Charge, ...]
    max_wait: float = 0.0
    best_effort: bool = False
    on_error: OnError | None = None
    max_wait_us: float = field(init=False, repr=False, compare=False, default=0.0)
    """The longest wait in whole microseconds, rounded down."""
    soonest_us: float = field(init=False, repr=False, compare=False, default=0.0)
    """The least wait in whole microseconds: a part of a take waits for the other parts."""

    if TYPE_CHECKING:
        only: Charge | None = field(init=False)
        """Its charge, if that is the only one and there is nothing more to it."""

    def __post_init__(self) -> None:
        self.only = self.charges[0] if len(self.charges) == 1 and not self.best_effort else None
        if self.max_wait != 0:
            self.max_wait_us = _patience_us(self.max_wait)
        if len(self.charges) != 1:
            self._require_distinct_buckets()
        if self.best_effort:
            self._require_one_cost()

    def _require_distinct_buckets(self) -> None:
        if not self.charges:
            raise ConfigurationError("a take needs at least one charge: Take((Charge(quota, key),))")
        buckets = set()
        for charge in self.charges:
            if charge.bucket in buckets:
                raise ConfigurationError(f"two charges are on the bucket {charge.bucket}: add their costs up")
            buckets.add(charge.bucket)

    def _require_one_cost(self) -> None:
        if self.max_wait:
            raise ConfigurationError("best_effort grants what is there now, so it cannot wait: leave max_wait at 0")
        if len({charge.cost for charge in self.charges}) > 1:
            raise ConfigurationError("best_effort needs one cost for all charges: cost=50")


def _patience_us(max_wait: float) -> float:
    try:
        scaled = max_wait * SECOND_US
        if scaled >= 0:  # false for NaN, too
            return float(math.floor(round(scaled, 1))) if scaled < math.inf else math.inf  # but for a float's noise
    except TypeError:
        pass
    raise ValueError(f"max_wait must be seconds from 0 up, not {max_wait!r}: max_wait=2.5")


@dataclass(slots=True)
class Decision:
    """The answer to a take: complete, and never changed after it is built (not frozen, for speed alone).

    * ``allowed``, and ``granted`` units (0 when refused);
    * ``delay``: seconds to sleep before going ahead, ``ready_at`` the Unix time when that is over;
    * ``retry_after``: 0.0 when allowed, else the exact time in seconds after which the same take would pass if
      nothing else came; ``math.inf`` for never;
    * ``quota``: the binding one, which is the refusing one with the longest wait, else the one with the least left;
      ``remaining`` units and ``reset_after`` seconds are that quota's;
    * ``states``: one ``QuotaState`` for each charge of ``take``;
    * ``degraded``: decided without the store; ``shadow``: decided and counted, but not enforced.

    ``before``, ``now_us`` (``times_us`` for each charge, where several nodes of a cluster decided) and ``settled`` are
    for giving back: the states as they were, the time of the decision, and whether it has been settled.
    """

    allowed: bool
    granted: float
    delay: float
    retry_after: float
    remaining: int
    reset_after: float
    ready_at: float
    quota: Quota
    states: tuple[QuotaState, ...]
    degraded: bool = False
    shadow: bool = False
    take: Take | None = None
    before: list[Any] | None = field(default=None, repr=False, compare=False)
    now_us: float = field(default=0.0, repr=False, compare=False)
    settled: bool = field(default=False, repr=False, compare=False)
    times_us: tuple[float, ...] | None = field(default=None, repr=False, compare=False)

    if not TYPE_CHECKING:  # to whom all fields are there

        def __getattr__(self, name: str) -> object:
            """A field that ``decided_at_once`` has left open."""
            if name not in _LEFT_OPEN:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            value = _LEFT_OPEN[name](self)
            setattr(self, name, value)
            return value


def _least_left(decision: Decision) -> QuotaState:
    return min(decision.states, key=lambda state: state.remaining)


_new = object.__new__
_LEFT_OPEN: dict[str, Callable[[Decision], object]] = {
    "granted": lambda decision: decision.take.charges[0].cost if decision.allowed and decision.take else 0,
    "delay": lambda decision: 0.0,
    "retry_after": lambda decision: decision.states[0].retry_after,
    "remaining": lambda decision: _least_left(decision).remaining,
    "reset_after": lambda decision: _least_left(decision).reset_after,
    "ready_at": lambda decision: decision.now_us / SECOND_US + decision.retry_after,
    "quota": lambda decision: _least_left(decision).quota,
    "shadow": lambda decision: False,
    "settled": lambda decision: False,
    "times_us": lambda decision: None,
}


def decided_at_once(
    allowed: bool, take: Take, told: tuple[QuotaState, ...], before: list[Any], now_us: float
) -> Decision:
    """The decision of a take without a wait, of one charge if it is a refusal: what nearly all decisions are.

    Of its 16 fields hardly any is ever read. Only what the others follow from is filled in, which takes half the time.
    """
    decision = _new(Decision)
    decision.allowed = allowed
    decision.degraded = False
    decision.states = told
    decision.take = take
    decision.before = before
    decision.now_us = now_us
    if not allowed:
        decision.retry_after = told[0].retry_after
    return decision


@dataclass(slots=True)
class SettledCharge:
    """What a charge really came to: ``charge.cost`` units were booked at ``place``, ``actual`` were used.

    ``since_us`` is the time at which it was booked, ``era`` that of the bucket's state, and ``place`` says where: a
    level, or the number of a window or part. ``before`` and ``after`` are the bucket's states around the booking, if
    all of it is given back: where nothing has happened since, the bucket is as it was before.
    """

    charge: Charge
    since_us: float
    era: float
    place: float
    actual: float
    before: Any = None
    after: Any = None


@dataclass(slots=True)
class Settlement:
    """What a take really came to, marked by ``id`` so that it is settled once; ``degraded`` as its decision was."""

    id: float
    lines: tuple[SettledCharge, ...]
    degraded: bool = False

    @property
    def charges(self) -> list[Charge]:
        """What was charged, of each bucket."""
        return [line.charge for line in self.lines]
