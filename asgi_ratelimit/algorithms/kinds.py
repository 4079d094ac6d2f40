"""What the three kinds of quota have in common: the functions of their modules, found by the kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from ..quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from . import fixed_window, rolling_window, token_bucket
from .state import State


class Algorithm(Protocol):
    """The functions that the module of each kind of quota has; see there."""

    def fresh(self, now: float) -> State: ...
    def healed(self, quota: Quota, state: State, now: float) -> State: ...
    def wait(self, quota: Quota, state: State, now: float, cost: float, soonest: float = 0.0) -> float: ...
    def book(self, quota: Quota, state: State, now: float, cost: float, wait_us: float) -> State: ...
    def place(self, quota: Quota, state: State, now: float, cost: float, wait_us: float) -> float: ...
    def give_back(
        self, quota: Quota, state: State, now: float, since: float, at: float, cost: float, units: float
    ) -> State: ...
    def owe(self, quota: Quota, state: State, now: float, units: float) -> State: ...
    def reset_us(self, quota: Quota, state: State, now: float) -> float: ...
    def left(self, quota: Quota, state: State, now: float) -> float: ...
    def outlook(self, quota: Quota, state: State, now: float) -> tuple[float, float, float]: ...
    def waiting(self, quota: Quota, state: State, now: float) -> float: ...
    def share(self, state: State, replicas: float) -> State: ...
    def booked(self, quota: Quota, state: State, now: float) -> float: ...


ALGORITHMS: dict[type, Algorithm] = {
    TokenBucket: token_bucket,  # type: ignore[dict-item]  # each module knows its own kind of quota only
    FixedWindow: fixed_window,  # type: ignore[dict-item]
    RollingWindow: rolling_window,  # type: ignore[dict-item]
}

States: TypeAlias = Sequence[State | None]


def known(quota: Quota, state: State | None, now: float) -> State:
    """The state to reckon with: where the clock fell back by more than a period, it was last changed now.

    A smaller step back is left alone and drains nothing, so that it neither gives units nor locks anyone out.
    """
    if state is None:
        return ALGORITHMS[type(quota)].fresh(now)
    if now < state[1] - quota.period_us:
        return ALGORITHMS[type(quota)].healed(quota, state, now)
    return state


def reset_us(quota: Quota, state: State, now: float) -> float:
    """Microseconds until the bucket is as good as never used, and its state means nothing any more."""
    return ALGORITHMS[type(quota)].reset_us(quota, state, now)


def used(quota: Quota, state: State, now: float) -> float:
    """The units that count now, or will: those that were booked ahead are among them."""
    return ALGORITHMS[type(quota)].booked(quota, state, now)


def waiting(quota: Quota, state: State, now: float) -> float:
    """The units that are booked, and whose time has not come yet."""
    return ALGORITHMS[type(quota)].waiting(quota, state, now)


def share(quota: Quota, state: State, replicas: float) -> State:
    """One replica's part of what was used of a quota; what was given back of it is forgotten."""
    return ALGORITHMS[type(quota)].share(state, replicas)
