"""Decide the charges of one request as one, and settle each of them, whatever the kinds of quotas.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from ..quotas import FixedWindow, InFlight, Quota, RollingWindow, TokenBucket
from . import LARGEST, NEVER, Booked, fixed_window, in_flight, rolling_window, token_bucket

State: TypeAlias = (
    token_bucket.TokenBucketState
    | fixed_window.FixedWindowState
    | rolling_window.RollingWindowState
    | in_flight.InFlightState
)


class ChargeLike(Protocol):
    """A charge: ``cost`` units of ``quota``."""

    @property
    def quota(self) -> Quota: ...

    @property
    def cost(self) -> float: ...


# The module of each kind of quota; all of them have the same functions.
ALGORITHMS: dict[type[Any], Any] = {
    TokenBucket: token_bucket,
    FixedWindow: fixed_window,
    RollingWindow: rolling_window,
    InFlight: in_flight,
}


def decide(
    charges: Sequence[ChargeLike], states: Sequence[State], now: float, max_wait: float
) -> tuple[float, list[State] | None]:
    """The wait of a request in microseconds, and the states after it; ``None`` if it is refused.

    Each charge says how long it would have to wait, and the longest wait decides: if it is within ``max_wait``, every
    charge books at that moment, else none does. What fits at one moment fits at any later one, so two looks at each
    charge are enough. A charge of nothing waits like the others, and leaves its state as it is.
    """
    longest, after = 0.0, []
    for charge, state in zip(charges, states):
        quota, cost = charge.quota, charge.cost
        taken, wait = ALGORITHMS[type(quota)].take(quota, state, now, cost, max_wait, 0.0)
        after.append(taken if cost else state)
        if wait > longest:
            longest = wait
    if longest > max_wait or longest == NEVER:
        return longest, None
    if longest and len(after) > 1:
        after = []
        for charge, state in zip(charges, states):
            quota, cost = charge.quota, charge.cost
            taken, wait = ALGORITHMS[type(quota)].take(quota, state, now, cost, NEVER, longest)
            if wait > longest:  # no window has a place that late
                return NEVER, None
            after.append(taken if cost else state)
    return longest, after


def read(quota: Quota, value: bytes | None, now: float) -> State:
    """The state in a value, at a time that may be before it, under a quota that may have been another one.

    No value, or one that cannot be read, is a bucket that was never used.
    """
    is_valid = value is not None and ALGORITHMS[type(quota)].is_valid(quota, value)
    return read_own(quota, value if is_valid else None, now)


def read_own(quota: Quota, value: bytes | None, now: float, *, is_as_stored: bool = False) -> State:
    """``read`` for a value that ``pack`` has made in this process, which is not checked.

    ``is_as_stored`` reads it as it is, even if it was stored under other numbers than those of the quota.
    """
    algorithm = ALGORITHMS[type(quota)]
    if value is None:
        return algorithm.unused(quota, now)
    stamp, at, state = algorithm.unpack(value)
    if stamp != quota.stamp and not is_as_stored:
        state = algorithm.changed(quota, state, now)
    if at > now:
        state = algorithm.moved_back(quota, state, now)
    return state


def pack(quota: Quota, state: State) -> bytes:
    """The value of a state."""
    return ALGORITHMS[type(quota)].pack(quota, state)


def is_ahead(quota: Quota, value: bytes | None, now: float) -> bool:
    """Whether a value that ``pack`` has made is of a time after ``now``, as the clock went back since."""
    return value is not None and bool(ALGORITHMS[type(quota)].unpack(value)[1] > now)


def used_units(value: bytes, now: float, left_us: float) -> float | None:
    """About how many units a value holds at a time, if it is as good as never used ``left_us`` later.

    ``None`` if it is not a value. Its quota is unknown: what is used of a token bucket drains evenly.
    """
    algorithm = next((each for each in ALGORITHMS.values() if each.is_valid(None, value)), None)
    if algorithm is None:
        return None
    _, at, state = algorithm.unpack(value)
    if algorithm is token_bucket:
        units = state.used * left_us / (left_us + max(now - at, 0.0)) if left_us > 0.0 else 0.0
    elif algorithm is fixed_window:
        units = state.used
    else:
        units = float(sum([part > now if algorithm is in_flight else part for _, part in state[1]]))
    return units if units <= LARGEST else None


def most_at_once(charges: Sequence[ChargeLike], states: Sequence[State], now: float) -> float:
    """The most whole units that all charges can give now: at least 1, and at most the cost, which all have."""
    whole = most = charges[0].cost
    for charge, state in zip(charges, states):
        quota = charge.quota
        units = ALGORITHMS[type(quota)].available(quota, state, now)[0]
        if units < most:
            most = units
    return max(most, min(whole, 1.0))


def wait(quota: Quota, state: State, now: float, cost: float, max_wait: float) -> float:
    """The microseconds that a charge alone would have to wait; infinity for never."""
    return ALGORITHMS[type(quota)].take(quota, state, now, cost, max_wait, 0.0)[1]


def unused(quota: Quota, now: float) -> State:
    """The state of a bucket that was never used."""
    return ALGORITHMS[type(quota)].unused(quota, now)


def place_of(quota: Quota, state: State) -> float:
    """The place of the charge that has just been booked; see ``Booked``."""
    return ALGORITHMS[type(quota)].place_of(quota, state)


def settle(quota: Quota, state: State, now: float, charge: Booked, actual: float, is_changed: bool = False) -> State:
    """The state after a charge came to ``actual`` units: the rest comes back, or what is missing is debited.

    If the state was stored under other numbers than those of the quota, nothing comes back from more than the quota
    grants: that is what others have used under those numbers.
    """
    algorithm, units = ALGORITHMS[type(quota)], charge.cost - actual
    known: State = state
    if is_changed and units > 0.0 and type(quota) in (TokenBucket, FixedWindow):
        known = algorithm.changed(quota, state, now)
    if units == 0.0 or known[0] != state[0]:
        return state
    if units < 0.0:
        after: State = algorithm.debit(quota, state, now, charge.slot, -units)
    else:
        after = algorithm.give_back(quota, known, now, charge, units)
    return state if after is known else after


def available(quota: Quota, state: State, now: float) -> tuple[int, float]:
    """The whole units that can be taken now, and the microseconds until one more can be: 0 if all can."""
    return ALGORITHMS[type(quota)].available(quota, state, now)


def reset_us(quota: Quota, state: State, now: float) -> float:
    """Microseconds until the bucket is as good as never used, so that its state no longer matters."""
    return ALGORITHMS[type(quota)].reset_us(quota, state, now)


def in_use(quota: Quota, state: State, now: float) -> float:
    """The units that are used or booked, and still count."""
    return ALGORITHMS[type(quota)].in_use(quota, state, now)


def booked_ahead(quota: Quota, state: State, now: float) -> float:
    """The units that are booked for later."""
    return ALGORITHMS[type(quota)].booked_ahead(quota, state, now)
