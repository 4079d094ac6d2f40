"""``@pace``: a function whose calls wait for their slots."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

from ..argument_errors import shows_use
from ..decision import Take, max_wait_of
from ..errors import ConfigurationError, QuotaError
from ..hooks import Hook
from ..limiter import Cost, Key, Limiter, UnownedLimiter
from ..quota_text import QuotaLike
from ..stores import Store
from ..stores.name_owners import register
from ..waiting import SlotWaiter
from .call_arguments import Resolve, depends_on_call, from_call, warn_of_argument_name
from .margin import reads_with_margin
from .paced_functions import CallWaiter, TakeOfCall, wrapper_for

P = ParamSpec("P")
R = TypeVar("R")

KeyOfCall: TypeAlias = Key | Callable[..., Key] | Mapping[str, "str | bytes | Callable[..., str | bytes]"]
"""A key, or a function of the call's arguments that it names; or one of these for each quota, by name."""
CostOfCall: TypeAlias = Cost | Callable[..., Cost] | Mapping[str, "float | Callable[..., float]"]
"""A cost, or a function of the call's arguments that it names; or one of these for each quota, by name."""

PriorityOfCall: TypeAlias = float | Callable[..., float]
"""A priority, or a function of the call's arguments that it names."""

EVEN_BURST = 1.0
"""The burst of a quota whose text does not name one: calls are spaced evenly."""


@shows_use('@pace("10/s", key=lambda account: account.id)')
def pace(
    quota: QuotaLike,
    *,
    key: KeyOfCall | None = None,
    store: Store | str | None = None,
    cost: CostOfCall = 1,
    max_delay: float | None = None,
    margin: float = 0.0,
    priority: PriorityOfCall = 0,
    name: str | None = None,
    hooks: Iterable[Hook] = (),
) -> Pace:
    """Decorate a function, with or without ``async``, so that its calls keep to ``quota``: each books a slot and waits.

    ``"10/s"`` spaces calls evenly; ``"10/s burst 5"`` lets five go at once from idle. Several quotas apply together.
    ``key`` says which bucket is charged, for example ``key=lambda account: account.id`` for the argument ``account`` of
    the call; without one, all calls share the key ``""``. ``cost`` is in units, and may be a function in the same way.
    ``store`` is a store or its URL, by default this process's memory. The buckets are those of a ``Limiter`` with the
    same ``name``, quota and store. Without a ``name``, each function has its own buckets, under its qualified name.
    Another quota under the same name and store raises ``ConfigurationError``: beside a middleware with ``"10/s"``,
    write ``"10/s burst 10"``.

    No more calls leave this process than the quota admits, measured when they leave. ``margin`` is the part of the
    limit that stays unused, for a service that counts more strictly than it says. Among the calls that wait for the
    same charges, one with a higher ``priority``, a number or a function in the same way, goes first. ``hooks`` are
    called with the decision of every call, when it leaves or is refused.

    A call raises ``PaceTimeout`` at once, and books nothing, if its slot is more than ``max_delay`` seconds away.
    A call that is cancelled while it waits gives its slot back, and the calls behind it move up. Raises ``QuotaError``,
    and ``ConfigurationError`` for anything that cannot be paced, such as a generator.
    """
    if callable(quota):
        raise QuotaError(f'@pace lacks its quota: @pace("5/s") goes on {quota!r}')
    read = reads_with_margin(EVEN_BURST, margin)
    limiter = UnownedLimiter(read(quota), store=store, name="pace" if name is None else name, hooks=hooks, read=read)
    given = OfCall("" if key is None else key, cost, checked_priority(priority), max_delay, margin)
    return Pace(limiter, name, given)


@dataclass(frozen=True, slots=True)
class OfCall:
    """The arguments of ``pace`` that may depend on a call, the longest delay, and the margin."""

    key: KeyOfCall
    cost: CostOfCall
    priority: PriorityOfCall
    max_delay: float | None
    margin: float


class Pace:
    """The decorator that ``pace`` returns; several functions under it share their buckets if it has a name."""

    def __init__(self, limiter: UnownedLimiter, name: str | None, given: OfCall) -> None:
        self._limiter = limiter
        self._name = name
        self._given = given
        self._max_wait = max_wait_of(given.max_delay)
        self._waiter = SlotWaiter(limiter.store, margin=given.margin, renewed=limiter.live.renewed)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        wrap, limiter = wrapper_for(function), self._limiter
        if self._given.key:
            warn_of_argument_name(self._given.key, function)
        if self._name is None:
            limiter = limiter.renamed(_name_of(function))
        take_of, priority_of = self._take_of(function, limiter), self._priority_of(function)
        waiter = CallWaiter(self._waiter, take_of, priority_of, limiter)
        paced = functools.wraps(function)(wrap(function, waiter))
        if self._name is not None:
            register_name(self._limiter, paced)
        return cast("Callable[P, R]", paced)

    def _take_of(self, function: Callable[..., Any], limiter: Limiter) -> TakeOfCall:
        given, charges, max_wait = self._given, limiter.charges, self._max_wait
        if not depends_on_call(given.key) and not depends_on_call(given.cost):
            Take(charges(cast("Key", given.key), cast("Cost", given.cost)), max_wait)  # what is wrong raises now
        key, cost = from_call(given.key, function, "key"), from_call(given.cost, function, "cost")
        return lambda args, kwargs: Take(charges(key(args, kwargs), cost(args, kwargs)), max_wait)

    def _priority_of(self, function: Callable[..., Any]) -> Resolve | None:
        if self._given.priority == 0:
            return None
        priority = from_call(self._given.priority, function, "priority")
        if not depends_on_call(self._given.priority):
            return priority
        return lambda args, kwargs: checked_priority(priority(args, kwargs))


def checked_priority(priority: Any) -> Any:
    """``priority``, if it is a finite number or a function; ``ConfigurationError`` otherwise."""
    is_number = isinstance(priority, (int, float)) and not isinstance(priority, bool)
    if (is_number and abs(priority) <= sys.float_info.max) or callable(priority):  # false for NaN, too
        return priority
    raise ConfigurationError(f"priority must be a finite number, not {priority!r}: priority=1 goes before priority=0")


def register_name(limiter: Limiter, owner: object) -> None:
    """Register that an owner uses the limiter's name; ``ConfigurationError`` if another one has other quotas under it.

    A text without a burst has a burst of 1 here; elsewhere, its burst is its limit.
    """
    register(limiter.store, owner, [(limiter.name, quota) for quota in limiter.quotas])


def _name_of(function: Callable[..., Any]) -> str:
    named = inspect.unwrap(function)
    if isinstance(named, functools.partial):
        named = named.func
    if hasattr(named, "__qualname__"):
        return f"{named.__module__}.{named.__qualname__}"
    raise ConfigurationError(f'{function!r} has no name for its buckets: pace(..., name="api")')
