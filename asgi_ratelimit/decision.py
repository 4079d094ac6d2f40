"""The questions to a store and its answers, as values: charges, takes, decisions and settlements.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from decimal import Decimal
from numbers import Real
from typing import Any, Literal, TypeAlias

from .buckets import DEFAULT_NAME, bucket, bucket_prefix
from .errors import ConfigurationError
from .quotas import MAX_CHARGES, MAX_UNITS, SECOND_US, Quota, require_few

OnError: TypeAlias = Literal["local", "allow", "deny"]
"""What happens while the store cannot decide: a limiter in this process decides, everybody passes, or nobody does."""


def checked_on_error(on_error: OnError) -> OnError:
    """``on_error`` if it is one of its three words; ``ConfigurationError`` otherwise."""
    if on_error in ("local", "allow", "deny"):
        return on_error
    raise ConfigurationError(f'on_error must be "local", "allow" or "deny", not {on_error!r}')


def checked_cost(cost: float) -> float:
    """``cost`` as an ``int`` or ``float``, if it is a finite number above 0, at most 2**53; ``ValueError`` otherwise.

    Any other kind of real number, such as a ``Decimal``, is converted to a ``float``.
    """
    units = cost if type(cost) is int or type(cost) is float else _as_float(cost)
    if 0 < units <= MAX_UNITS:  # false for NaN, too
        return units
    raise ValueError(f"cost must be a finite number above 0, at most 2**53, not {cost!r}: cost=1")


def checked_actual(cost: float) -> float:
    """Like ``checked_cost``, for a cost that is known only afterwards, which may be 0."""
    units = cost if type(cost) is int or type(cost) is float else _as_float(cost)
    if 0 <= units <= MAX_UNITS:  # false for NaN, too
        return units or 0
    text = f"an actual cost must be a finite number from 0 up, at most 2**53, not {cost!r}"
    raise ValueError(f"{text}: settle(decision, 3)")


def _as_float(number: object) -> float:
    """A real number of any kind as a ``float``, and NaN for anything else."""
    try:
        return float(number) if isinstance(number, (Real, Decimal)) else math.nan
    except (ArithmeticError, ValueError):  # too large for a float, or NaN with a signal
        return math.nan


@dataclass(slots=True)
class QuotaState:
    """The part of a decision about one charge: times in seconds, ``remaining`` in whole units.

    ``retry_after`` is 0.0 if this charge alone would have passed. ``reset_after`` is the time until its bucket is as
    good as new. ``more_after`` is the time until one more unit than ``remaining`` is available (0.0: all are). Never
    changed after it is built.
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
        try:
            self.bucket = bucket(bucket_prefix(self.name or DEFAULT_NAME, self.quota.name, self.quota.kind), self.key)
        except TypeError:
            if isinstance(self.key, str):
                raise
            raise TypeError(f"the key of a charge is a str, not {self.key!r}: Charge(quota, str(user.id))") from None


@dataclass(slots=True)
class Condition(Charge):
    """A charge of nothing: its take waits until the bucket has room, and leaves the bucket as it is.

    A bucket has no room while its level is above the burst, or while its windows hold more than the limit.
    """

    cost: float = 0

    def __post_init__(self) -> None:
        self.bucket = bucket(bucket_prefix(self.name or DEFAULT_NAME, self.quota.name, self.quota.kind), self.key)


@dataclass(slots=True)
class ChargeTemplate:
    """The charge of a rule for each request, without its key. ``prefix`` is the start of its buckets' texts."""

    quota: Quota
    cost: float
    name: str
    prefix: str

    def charge(self, bucket: str) -> Charge:
        """The charge on one of its buckets, whose text contains the key unchanged."""
        return Charge(self.quota, bucket[len(self.prefix) : -1], self.cost, self.name)


@dataclass(slots=True)
class Take:
    """The charges of one request, decided as one, for a caller that waits at most ``max_wait`` seconds.

    A ``max_wait`` of 0 is rate limiting, more is pacing, and ``math.inf`` waits as long as it takes. With
    ``best_effort``, for rate limiting only, as many whole units are granted as every charge can give, at least 1; all
    costs must be equal. ``on_error`` says what to do without the store: ``None`` leaves that to the store. With
    ``may_settle``, the store records what it needs to give units back exactly. Takes with the same ``operation`` and
    charges are charged once.
    Raises ``ValueError`` for a wait that is negative or not a number. Raises ``ConfigurationError`` for no charges, for
    too many, for two charges on one bucket, which must be one charge of their sum, or for an invalid best effort.
    """

    charges: tuple[Charge, ...]
    max_wait: float = 0.0
    best_effort: bool = False
    on_error: OnError | None = None
    may_settle: bool = False
    operation: str | None = None
    max_wait_us: float = field(init=False, repr=False, compare=False, default=0.0)
    """The longest wait in whole microseconds, rounded down."""

    def __post_init__(self) -> None:
        if self.max_wait != 0:
            self.max_wait_us = math.inf if self.max_wait == math.inf else _max_wait_us(self.max_wait)
        if len(self.charges) != 1:
            self._require_few_distinct_buckets()
        if self.best_effort:
            self._require_one_cost()

    @property
    def is_plain(self) -> bool:
        """Whether the take is one charge, all or nothing, for which nothing is recorded."""
        return not (self.may_settle or self.best_effort) and self.operation is None and len(self.charges) == 1

    def _require_few_distinct_buckets(self) -> None:
        if not self.charges:
            raise ConfigurationError("a take needs at least one charge: Take((Charge(quota, key),))")
        buckets, weight = set(), 0
        for charge in self.charges:
            if charge.bucket in buckets:
                raise ConfigurationError(f"two charges are on the bucket {charge.bucket}: add their costs up")
            buckets.add(charge.bucket)
            weight += charge.quota.weight
        if weight > MAX_CHARGES:
            require_few(weight)

    def _require_one_cost(self) -> None:
        if self.max_wait:
            raise ConfigurationError("best_effort grants what is there now, so it cannot wait: leave max_wait at 0")
        if len({charge.cost for charge in self.charges}) > 1:
            raise ConfigurationError("best_effort needs one cost for all charges: cost=50")


def max_wait_of(max_delay: float | None) -> float:
    """The longest wait in seconds for a ``max_delay`` argument: unlimited without one.

    Raises ``ConfigurationError`` for anything but a number of seconds from 0 up.
    """
    if max_delay is None:
        return math.inf
    try:
        _max_wait_us(max_delay)
    except ValueError:
        raise ConfigurationError(f"max_delay must be seconds from 0 up, not {max_delay!r}: max_delay=2.5") from None
    return max_delay


def _max_wait_us(max_wait: float) -> float:
    try:
        scaled = max_wait * SECOND_US
        if scaled >= 0 and not isinstance(max_wait, bool):  # false for NaN, too
            return float(math.floor(round(scaled, 1))) if scaled < math.inf else math.inf  # without a float's noise
    except (TypeError, OverflowError):
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

    ``before``, ``now_us`` (``times_us`` for each charge if several nodes of a cluster decided), ``birth``, ``settled``
    and ``settled_buckets`` are for giving back: the earlier states, the time of the decision, a number that no other
    decision on these buckets has (0: there is none), whether the decision has been settled, and the buckets of charges
    that were settled before the others. ``parts`` are the decisions that
    this one was joined from if the charges were taken one after another; then each of those is settled. ``repeated_us``
    is the time at which the store repeated an earlier decision of the same operation, whose slot another caller has
    booked (``None``: this is the first one). A caller that waits for such a slot never gives it back. ``booked`` is
    what the store was debited for a decision that was first made without the store, and that it repeats: the decision
    is settled there.
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
    settled_buckets: tuple[str, ...] = field(default=(), repr=False, compare=False)
    times_us: tuple[float, ...] | None = field(default=None, repr=False, compare=False)
    birth: int = field(default=0, repr=False, compare=False)
    parts: tuple[Decision, ...] = field(default=(), repr=False, compare=False)
    repeated_us: float | None = field(default=None, repr=False, compare=False)
    booked: tuple[SettledCharge, ...] | None = field(default=None, repr=False, compare=False)

    def __bool__(self) -> bool:
        """Whether the take is allowed."""
        return self.allowed

    @property
    def charges(self) -> tuple[Charge, ...]:
        """The charges of its take; none if the take is not known."""
        return () if self.take is None else self.take.charges


def tightness(each: Decision | QuotaState) -> tuple[bool, float, int]:
    """Sorts refusals before the rest, the longest of them first, then by the units left: the first one is binding."""
    return each.allowed, -each.retry_after, each.remaining


def with_states(decision: Decision, states: tuple[QuotaState, ...], **changes: Any) -> Decision:
    """The decision with other states of its charges, of which one is binding, and with further ``changes``."""
    binding = min(states, key=tightness)
    return replace(
        decision,
        states=states,
        quota=binding.quota,
        remaining=binding.remaining,
        retry_after=binding.retry_after,
        reset_after=binding.reset_after,
        **changes,
    )


def is_outage(decision: Decision) -> bool:
    """Whether a refusal came from an outage of the store, and not from a quota."""
    return decision.degraded and all(state.allowed for state in decision.states)


@dataclass(slots=True)
class SettledCharge:
    """The actual cost of a charge: ``charge.cost`` units were booked at ``place``, and ``actual`` units were used.

    ``since_us`` is the time at which it was booked, and ``slot_us`` the time that it was booked for (half a microsecond
    more if others of the queue stay there). ``generation`` is that of the bucket's state. ``place`` is a level, or the
    number of a window or part.
    """

    charge: Charge
    since_us: float
    generation: int
    place: float
    slot_us: float
    actual: float


@dataclass(slots=True)
class Settlement:
    """The actual cost of a take, settled once for each ``id`` and first bucket; ``degraded`` as its decision was.

    The settlement of a ticket is carried out only before the time ``until_us``, and never after a ``Redemption`` of the
    same id. ``taken`` is the take that is settled, if it names an operation. ``undone`` is the same take if all of it
    is given back: its operation is forgotten.
    """

    id: float
    settled_charges: tuple[SettledCharge, ...]
    degraded: bool = False
    until_us: float = 0.0
    undone: Take | None = None
    taken: Take | None = None

    @property
    def charges(self) -> list[Charge]:
        """What was charged, of each bucket."""
        return [settled.charge for settled in self.settled_charges]


@dataclass(slots=True)
class Redemption:
    """The use of a ticket, which is booked as ``take``: the first one before ``until_us`` succeeds, all others fail.

    The settlement that cancels the ticket has the same ``id``: the first of the two to come has its effect, and the
    other has none. ``token`` is this caller's own, so that sending it twice does no harm.
    """

    id: float
    take: Take
    until_us: float
    token: float

    @property
    def charges(self) -> tuple[Charge, ...]:
        """What was charged, of each bucket."""
        return self.take.charges
