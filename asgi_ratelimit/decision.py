"""The question to a store and its answer, as values: charges, takes and decisions.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from decimal import Decimal
from numbers import Real
from typing import Any, Literal, TypeAlias

from .algorithms import NEVER
from .algorithms.take import State, available, reset_us, wait
from .buckets import DEFAULT_NAME, as_bytes, bucket, bucket_prefix
from .errors import ConfigurationError, checked_flag, require_number
from .quotas import LEAST, MAX_UNITS, SECOND_US, Quota, require_few

# Bytes of the longest operation.
LONGEST_OPERATION = 1024

# What happens while the store cannot decide: a limiter in this process decides, everybody passes, or nobody does.
OnError: TypeAlias = Literal["local", "allow", "deny"]


def checked_on_error(on_error: OnError) -> OnError:
    """``on_error`` if it is one of its three words; ``ConfigurationError`` otherwise."""
    if on_error in ("local", "allow", "deny"):
        return on_error
    raise ConfigurationError(f'on_error must be "local", "allow" or "deny", not {on_error!r}')


def checked_cost(cost: float, least: float = LEAST, use: str = "cost=1") -> float:
    """``cost`` as an ``int`` or ``float``, if it is a finite number above 0, at most 2**53.

    Raises ``ValueError`` for anything else, with a right ``use``.
    Any other kind of real number, such as a ``Decimal``, is converted to a ``float``.
    """
    units = cost
    if type(cost) is not int and type(cost) is not float:
        units = float(cost) if isinstance(cost, (Real, Decimal)) else math.nan
    if least <= units <= MAX_UNITS:  # false for NaN, too
        return units
    bound = "above 0" if least else "from 0 up"
    raise ValueError(f"cost must be a finite number {bound}, at most 2**53, not {cost!r}: {use}")


def checked_actual(cost: float, use: str = "settle(decision, 3)") -> float:
    """Like ``checked_cost``, for a cost that is known only afterwards, which may be 0."""
    return checked_cost(cost, 0, use) or 0


@dataclass(slots=True)
class QuotaState:
    """The part of a decision about one charge: times in seconds, ``remaining`` in whole units.

    ``retry_after`` is 0.0 if this charge alone would have passed. ``reset_after`` is the time until its bucket is as
    good as new. ``more_after`` is the time until one more unit than ``remaining`` is available (0.0: all are).
    """

    quota: Quota
    allowed: bool
    remaining: int
    retry_after: float
    reset_after: float
    more_after: float = 0.0


@dataclass(slots=True)
class Charge:
    """``cost`` units of ``quota``, from the bucket of ``key``.

    ``name`` is the limiter that the bucket belongs to; ``None`` means the one that takes the charge. ``bucket`` is the
    text that identifies the bucket. Never changed after it is built: use ``dataclasses.replace``.
    Raises ``ValueError`` for a cost that is not a finite number above 0; ``cost`` becomes an ``int`` or a ``float``.
    """

    quota: Quota
    key: str
    cost: float = 1
    name: str | None = None
    bucket: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.cost = checked_cost(self.cost)
        if not isinstance(self.key, str):
            raise TypeError(f"the key of a charge is a str, not {self.key!r}: Charge(quota, str(user.id))")
        if not isinstance(self.quota, Quota):
            raise TypeError(f'the quota of a charge is one quota, not {self.quota!r}: Charge(TokenBucket(5), "ann")')
        self.bucket = bucket(bucket_prefix(self.name or DEFAULT_NAME, self.quota.name, self.quota.kind), self.key)


@dataclass(slots=True)
class Condition(Charge):
    """A charge of nothing: its take waits until the bucket has room, and leaves the bucket as it is.

    A bucket has no room while its level is above the burst, or while its windows hold more than the limit.
    """

    cost: float = 0

    def __post_init__(self) -> None:
        self.bucket = bucket(bucket_prefix(self.name or DEFAULT_NAME, self.quota.name, self.quota.kind), self.key)


@dataclass(slots=True)
class Take:
    """The charges of one request, decided as one, for a caller that waits at most ``max_wait`` seconds.

    A ``max_wait`` of 0 is rate limiting, more is pacing, and ``math.inf`` waits as long as it takes. With
    ``best_effort``, for rate limiting only, as many whole units are granted as every charge can give, at least 1; all
    costs must be equal. ``on_error`` says what to do without the store: ``None`` leaves that to the store. Takes with
    the same ``operation`` and charges are charged once.
    Raises ``ConfigurationError`` for a wait that is negative or not a number, for no charges, for too many, for two
    charges on one bucket, which must be one charge of their sum, or for an invalid best effort; and ``ValueError`` for
    an operation that is not a text, or is empty or longer than 1 KB.
    """

    charges: tuple[Charge, ...]
    max_wait: float = 0.0
    best_effort: bool = False
    on_error: OnError | None = None
    operation: str | None = None
    max_wait_us: float = field(init=False, repr=False, compare=False, default=0.0)
    """The longest wait in whole microseconds, rounded down."""
    # What headers say of its quotas, which whoever renders them keeps here.
    policies: Any = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        if self.max_wait != 0:
            self.max_wait_us = _wait_us("max_wait", self.max_wait)
        if not self.charges:
            raise ConfigurationError("a take needs at least one charge: Take((Charge(quota, key),))")
        if len(self.charges) > 1:
            if len({charge.bucket for charge in self.charges}) < len(self.charges):
                buckets = [charge.bucket for charge in self.charges]
                twice = next(each for each in buckets if buckets.count(each) > 1)
                raise ConfigurationError(f"two charges are on one bucket, {twice}: add their costs up")
            require_few(sum([charge.quota.weight for charge in self.charges]))
        if self.best_effort is not False:
            checked_flag("best_effort", self.best_effort)
            if self.max_wait or len({charge.cost for charge in self.charges}) > 1:
                raise ConfigurationError("best_effort needs one cost for all charges, and cannot wait: max_wait=0")
        if self.operation is not None:
            checked_operation(self.operation)


def checked_operation(operation: str | None) -> str | None:
    """``operation`` if it is a text of at most 1 KB and not empty; ``ValueError`` otherwise. ``None`` means none."""
    if operation is None or (isinstance(operation, str) and 0 < len(as_bytes(operation)) <= LONGEST_OPERATION):
        return operation
    text = f"a text of at most {LONGEST_OPERATION} bytes and not empty"
    raise ValueError(f"operation must be {text}, not {operation!r:.100}: operation=message.id")


def max_wait_of(max_delay: float | None) -> float:
    """The longest wait in seconds for a ``max_delay`` argument, as a ``float``: unlimited without one.

    Raises ``ConfigurationError`` for anything but a number of seconds from 0 up.
    """
    return math.inf if max_delay is None else _wait_us("max_delay", max_delay) / SECOND_US


def _wait_us(name: str, seconds: float) -> float:
    """A wait in whole microseconds, rounded down; ``ConfigurationError`` unless it is a number from 0 up."""
    require_number(f"{name} must be seconds from 0 up", seconds, 0, math.inf, f"{name}=2.5", (int, float))
    return float(math.floor(round(seconds * SECOND_US, 1))) if seconds < MAX_UNITS else math.inf  # without noise


@dataclass(slots=True)
class Decision:
    """The answer to a take: complete, and not changed after it is built, but for the ``id`` of what was given back.

    Stored is what was decided: ``take``, with the costs that were granted; whether it is ``allowed``; its ``wait_us``
    until the slot, or, if refused, from ``now_us`` on; the state of each charge that now holds, ``stored``; the time
    ``now_us``; and ``id``, which no other decision has (0: nothing was charged). ``degraded`` means decided without the
    store, ``shadow`` counted and not enforced, and ``repeated`` an earlier answer to the same operation, whose slot
    another caller has booked. Everything else is worked out when it is read:

    * ``granted`` units (0 when refused);
    * ``delay``: seconds to sleep before going ahead, ``ready_at`` the Unix time when that is over;
    * ``retry_after``: 0.0 when allowed, else the exact time in seconds after which the same take would pass if
      nothing else came; ``math.inf`` for never;
    * ``quota``: the binding one, which is the refusing one with the longest wait, else the one with the least left;
      ``remaining`` units and ``reset_after`` seconds are that quota's;
    * ``states``: one ``QuotaState`` for each charge of ``take``;
    * ``reason``: all of that in a sentence.
    """

    take: Take
    allowed: bool
    wait_us: float
    stored: Sequence[State] = field(repr=False)
    now_us: float
    id: int = field(default=0, repr=False, compare=False)
    degraded: bool = False
    shadow: bool = False
    repeated: bool = field(default=False, compare=False)
    asked_us: float = field(default=0.0, repr=False, compare=False)
    """The time of ``states`` if not ``now_us``: when a repeated decision was asked for, or a wait was over. Else 0."""
    # The charges that refuse, once they were asked for: counts and headers both do.
    _refusing: list[Charge] | None = field(init=False, default=None, repr=False, compare=False)

    def __bool__(self) -> bool:
        """Whether the take is allowed."""
        return self.allowed

    @property
    def charges(self) -> tuple[Charge, ...]:
        """The charges of its take."""
        return self.take.charges

    @property
    def granted(self) -> float:
        """The units that were granted of the first charge; 0 when refused."""
        return self.take.charges[0].cost if self.allowed else 0

    @property
    def delay(self) -> float:
        """Seconds to sleep before going ahead; 0.0 when refused."""
        return self.wait_us / SECOND_US if self.allowed else 0.0

    @property
    def retry_after(self) -> float:
        """Seconds after which the same take would pass if nothing else came; 0.0 when allowed."""
        return 0.0 if self.allowed else _beyond_us(self.wait_us, self.take) / SECOND_US

    @property
    def ready_at(self) -> float:
        """The Unix time at which the caller may go ahead, or try again."""
        return self.now_us / SECOND_US + (self.delay or self.retry_after)

    @property
    def states(self) -> tuple[QuotaState, ...]:
        """One ``QuotaState`` for each charge."""
        return tuple(map(self._state_of, self.take.charges, self.stored))

    @property
    def refusing(self) -> list[Charge]:
        """The charges that refuse; none if it is allowed, or if an outage of the store refuses and no quota."""
        if self._refusing is None:
            self._refusing = [each for each, state in zip(self.charges, self.stored) if self._lacks_us(each, state)]
        return self._refusing

    @property
    def binding(self) -> QuotaState:
        """The state of the binding quota."""
        return min(self.states, key=tightness)

    @property
    def quota(self) -> Quota:
        """The binding quota."""
        return self.binding.quota

    @property
    def remaining(self) -> int:
        """The whole units left of the binding quota."""
        return self.binding.remaining

    @property
    def reset_after(self) -> float:
        """Seconds until the bucket of the binding quota is as good as new."""
        return self.binding.reset_after

    @property
    def reason(self) -> str:
        """Why the decision is what it is: which quota binds, how much of it is left, and when there is more."""
        binding = self.binding
        left = f"{binding.remaining} of {binding.quota.most:g} units of {binding.quota.name} are left"
        if not (self.allowed or self.degraded or self.refusing):
            return "refused: the ticket was redeemed or cancelled before"
        if not self.allowed:
            when = "never" if self.retry_after == NEVER else f"in {self.retry_after:g} s"
            return f"refused{', without the store' * self.degraded}: {left}, and the same cost passes {when}"
        ahead = f", {self.delay:g} s ahead" if self.wait_us else ""
        return f"allowed{ahead}: {left}" + (f", one more in {binding.more_after:g} s" if binding.more_after else "")

    def _state_of(self, charge: Charge, state: State) -> QuotaState:
        quota, now, retry_us = charge.quota, self.asked_us or self.now_us, self._lacks_us(charge, state)
        units, more_us = available(quota, state, now)
        reset_after, more_after = reset_us(quota, state, now) / SECOND_US, more_us / SECOND_US
        return QuotaState(quota, retry_us == 0.0, units, retry_us / SECOND_US, reset_after, more_after)

    def _lacks_us(self, charge: Charge, state: State) -> float:
        """Microseconds until this charge alone would pass; 0.0 if it does."""
        if self.allowed:
            return 0.0
        now, most_us = self.asked_us or self.now_us, self.take.max_wait_us
        return _beyond_us(wait(charge.quota, state, now, charge.cost, most_us), self.take)


def _beyond_us(wait_us: float, take: Take) -> float:
    """How much longer a wait is than a take may wait; ``NEVER`` if the wait never ends."""
    return wait_us if wait_us == NEVER else max(wait_us - take.max_wait_us, 0.0)


def tightness(each: Decision | QuotaState) -> tuple[bool, float, int]:
    """Sorts refusals before the rest, the longest of them first, then by the units left: the first one is binding."""
    return each.allowed, -each.retry_after, each.remaining


def is_outage(decision: Decision) -> bool:
    """Whether a refusal came from an outage of the store, and not from a quota."""
    return decision.degraded and not decision.allowed and not decision.refusing


def with_charges(take: Take, charges: tuple[Charge, ...]) -> Take:
    """The take of other charges, which are not checked again."""
    changed = copy(take)
    changed.charges, changed.policies = charges, None
    return changed


def without(decision: Decision, kind: type[Charge], *, is_left: bool = False) -> Decision:
    """The decision without its charges of this kind, as it is settled and reported.

    With ``is_left``, it has those charges alone.
    """
    kept = [pair for pair in zip(decision.take.charges, decision.stored) if isinstance(pair[0], kind) is is_left]
    if len(kept) == len(decision.stored):
        return decision
    take = with_charges(decision.take, tuple([charge for charge, _ in kept]))
    return replace(decision, take=take, stored=[state for _, state in kept])
