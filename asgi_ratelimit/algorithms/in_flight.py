"""Requests in flight: at most ``limit`` at once, each of which holds a lease until it ends.

Leases stand in the order in which they came, each with an id and an end. The first ``limit`` of them hold a place, and
those behind them wait for one: they are the queue of all processes. A process renews its leases, so those of a process
that was killed end by themselves. Whether a lease holds is read from its place among the others; one that was renewed
as it held does so wherever it stands, as after an outage.
"""

from __future__ import annotations

from typing import NamedTuple

from ..quotas import MOST_QUEUED, InFlight
from . import IN_FLIGHT, Booked, has_parts, pack_parts, unpack_parts

# The id of a lease, a whole number, and the time when it ends.
Lease = tuple[float, float]

# The wait of a caller that waits for a place: nobody knows when it comes, so it looks again then.
LOOK_US = 100_000.0

# The actual costs that settle a lease, which was charged 1: it ends, or is renewed as it holds, or as it waits.
ENDS, HOLDS, WAITS = 0.0, 2.0, 3.0

# A lease that waits lasts this many times less: that of a killed process would else move up to a free place.
WAITING = 2.0

# A lease that was renewed while it held ends this much earlier. The fraction marks it: all other times are whole.
HELD_US = 0.5


class InFlightState(NamedTuple):
    """The time ``at`` of the last change, and the leases, by their ids, which only rise."""

    at: float
    leases: tuple[Lease, ...]


def unused(quota: InFlight, now: float) -> InFlightState:
    """The state of a bucket that was never used."""
    return InFlightState(now, ())


def moved_back(quota: InFlight, state: InFlightState, now: float) -> InFlightState:
    """The state after the clock went back: the ends of the leases go back with it."""
    back = state.at - now
    return InFlightState(now, tuple([(lease, end - back) for lease, end in state.leases]))


def changed(quota: InFlight, state: InFlightState, now: float) -> InFlightState:
    """The state of a quota whose limit was another: all leases stay."""
    return state


def pack(quota: InFlight, state: InFlightState) -> bytes:
    """The value of a state."""
    return pack_parts(IN_FLIGHT, quota.stamp, *state)


def unpack(value: bytes) -> tuple[int, float, InFlightState]:
    """The stamp, the time and the state in a value."""
    stamp, at, parts = unpack_parts(value)
    return stamp, at, InFlightState(at, parts)


def is_valid(quota: InFlight | None, value: bytes) -> bool:
    """Whether it is a value: not damaged, of an older format or of another kind; ``None`` is an unknown quota."""
    return has_parts(IN_FLIGHT, value)


def living(state: InFlightState, now: float) -> tuple[Lease, ...]:
    """The leases that have not ended."""
    return tuple([each for each in state.leases if each[1] > now])


def take(
    quota: InFlight, state: InFlightState, now: float, cost: float, max_wait: float, min_wait: float
) -> tuple[InFlightState | None, float]:
    """The state with one lease more, whatever the cost, and how long it waits; ``None`` if it is refused.

    A caller that may wait gets a lease behind the others, and looks again after its wait; one that may not is refused
    while others wait.
    """
    leases, wait, lasts = living(state, now), min_wait, quota.period_us
    if len(leases) >= quota.limit:
        if max_wait <= 0.0 or len(leases) >= quota.limit + MOST_QUEUED:
            return None, max_wait + quota.retry_us
        wait, lasts = min_wait or min(max_wait, LOOK_US), quota.period_us / WAITING
    lease = max(now, leases[-1][0] + 1.0) if leases else now
    return InFlightState(now, (*leases, (lease, now + min_wait + lasts))), wait


def place_of(quota: InFlight, state: InFlightState) -> float:
    """The id of the lease that has just been taken; 0, which none has, if an outage has let pass without one."""
    return state.leases[-1][0] if state.leases else 0.0


def give_back(quota: InFlight, state: InFlightState, now: float, charge: Booked, units: float) -> InFlightState:
    """The state without the lease of a charge, however many of its units come back."""
    return InFlightState(now, tuple([each for each in state.leases if each[0] != charge.place and each[1] > now]))


def debit(quota: InFlight, state: InFlightState, now: float, slot: float, units: float) -> InFlightState:
    """The state in which the lease of this id, ``slot``, begins anew.

    One that holds goes back to its place if the state has lost it; one that waits, by more ``units``, does not: others
    may hold by now.
    """
    leases = living(state, now)
    others = [each for each in leases if each[0] != slot]
    if len(others) == len(leases) and (units > 1.0 or len(others) >= quota.limit + MOST_QUEUED):
        return state
    end = now + (quota.period_us - HELD_US if units == 1.0 else quota.period_us / WAITING)
    return InFlightState(now, tuple(sorted([*others, (slot, end)])))


def has_place(quota: InFlight, state: InFlightState, lease: float) -> bool:
    """Whether a lease holds a place: whether fewer than the limit stand before it, or hold for certain."""
    leases = [each for each, end in state.leases if each < lease or (each > lease and end % 1.0)]
    return len(leases) < quota.limit


def available(quota: InFlight, state: InFlightState, now: float) -> tuple[int, float]:
    """The free places, none while somebody waits, and the microseconds until there may be one more: 0 if all are."""
    leases = len(living(state, now))
    return max(quota.limit - leases, 0), quota.retry_us if leases else 0.0


def reset_us(quota: InFlight, state: InFlightState, now: float) -> float:
    """Microseconds until the last lease ends, if nobody renews it."""
    return max([end - now for _, end in living(state, now)], default=0.0)


def in_use(quota: InFlight, state: InFlightState, now: float) -> float:
    """The places that are held."""
    return float(min(len(living(state, now)), quota.limit))


def booked_ahead(quota: InFlight, state: InFlightState, now: float) -> float:
    """The leases that wait for a place."""
    return float(max(len(living(state, now)) - quota.limit, 0))
