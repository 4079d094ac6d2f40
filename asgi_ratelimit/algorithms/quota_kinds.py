"""The functions that the modules of the three kinds of quota have in common, looked up by the kind."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Protocol, TypeAlias

from ..decision import SettledCharge
from ..quotas import MAX_CHARGES, FixedWindow, Quota, RollingWindow, TokenBucket
from . import fixed_window, rolling_window, token_bucket
from .packed_states import PLAIN_SIZE, is_version, unpack_plain, unpacked, without_carried
from .state import GENERATIONS, MAX_PIECES, PIECES_OF_TAKE, Outlook, State, Taken
from .token_bucket_level import admit


class Algorithm(Protocol):
    """The functions in the module of each kind of quota, which documents them."""

    def fresh(self, now: float, birth: int = 0) -> State: ...
    def rebased(self, quota: Quota, state: State, now: float, birth: int = 0) -> State: ...
    def take(
        self,
        quota: Quota,
        state: State,
        now: float,
        cost: float,
        max_wait_us: float,
        min_wait_us: float = 0.0,
        may_settle: bool = False,
    ) -> Taken: ...
    def wait(self, quota: Quota, state: State, now: float, cost: float, min_wait_us: float = 0.0) -> float: ...
    def outlook(self, quota: Quota, state: State, now: float) -> Outlook: ...
    def of_version(self, quota: Quota, stored: State, stamp: bytes, older: bytes) -> State: ...
    def merged(self, quota: Quota, own: State, other: State) -> State: ...
    def most_at_once(self, quota: Quota, state: State, now: float) -> float: ...
    def place(self, quota: Quota, state: State, now: float, cost: float, wait_us: float) -> tuple[float, float]: ...
    def give_back(self, quota: Quota, state: State, now: float, settled: SettledCharge) -> State: ...
    def debit(self, quota: Quota, state: State, now: float, units: float, place: float) -> State: ...
    def reset_us(self, quota: Quota, state: State, now: float) -> float: ...
    def at_end(self, quota: Quota, state: State) -> State: ...
    def is_queue(self, quota: Quota, state: State, now: float) -> bool: ...
    def booked_ahead(self, quota: Quota, state: State, now: float) -> float: ...
    def share(self, quota: Quota, state: State, replicas: float) -> State: ...
    def used(self, quota: Quota, state: State, now: float) -> float: ...


ALGORITHMS: dict[type, Algorithm] = {
    TokenBucket: token_bucket,  # type: ignore[dict-item]  # each module knows its own kind of quota only
    FixedWindow: fixed_window,  # type: ignore[dict-item]
    RollingWindow: rolling_window,  # type: ignore[dict-item]
}

PIECES_OF_A_LOOK = 32
"""The number of runs or parts of a window that can be searched in the time of one look into a token bucket."""

DEBIT_LOOKS = 4
"""How many times the runs or parts are searched when a debit is to be paid back."""

States: TypeAlias = Sequence[State | None]


def unpack(quota: Quota, value: bytes | None, charges: int = 1) -> State | None:
    """The state in a value; ``None`` if the value is invalid for this quota.

    A take of many ``charges`` leaves some gaps, runs or parts out: all its charges together read at most
    ``PIECES_OF_TAKE``.
    """
    if value is None:
        return None
    if len(value) == PLAIN_SIZE and type(quota) is TokenBucket:
        stamp, last, level, generation = unpack_plain(value)
        if stamp == quota.stamp and level - level == last - last == 0.0:
            return (level, last, generation, (), (), b"")
    try:
        if value.startswith(quota.stamp):
            return unpacked(quota, value, min(PIECES_OF_TAKE // charges, MAX_PIECES))
        return _unpacked_version(quota, value, min(PIECES_OF_TAKE // charges, MAX_PIECES))
    except struct.error:  # cut short
        return None


def is_read_in_whole(quota: Quota, state: State) -> bool:
    """Whether a take of any number of charges reads all gaps, runs or parts of this state."""
    pieces = len(state[3]) if isinstance(quota, TokenBucket) else len(state[0][-1])
    return pieces < PIECES_OF_TAKE // MAX_CHARGES


def _unpacked_version(quota: Quota, value: bytes, most: int) -> State | None:
    """The state of this version of a quota, from the value of another version that may have been used since."""
    stored = unpacked(quota, value, 0) if is_version(quota, value) else None
    if stored is None:
        return None
    algorithm, carried = ALGORITHMS[type(quota)], stored[-1]
    other = algorithm.of_version(quota, stored, value[: len(quota.stamp)], without_carried(quota, value, carried))
    if not carried.startswith(quota.stamp):
        return other
    own = unpacked(quota, carried, most)
    return own and algorithm.merged(quota, own, other)


def current(quota: Quota, state: State | None, now: float, birth: int = 0) -> State:
    """The state to decide on; a state that is made here is of the generation that begins with ``birth``.

    If the clock fell back by more than a period, the state is as if its last change were now.
    A smaller step back is left alone and drains nothing, so that it neither gives units nor locks anyone out.
    """
    if state is None:
        return ALGORITHMS[type(quota)].fresh(now, birth % GENERATIONS)
    if now < state[1] - quota.period_us:
        return ALGORITHMS[type(quota)].rebased(quota, state, now, birth % GENERATIONS)
    return state


def taken_now(quota: Quota, stored: State | None, now: float, cost: float) -> State | None:
    """The state that ``take`` without a wait leaves, without its outlook; ``None`` if it refuses.

    For callers that need no decision, and whose clock never falls back by more than a period.
    """
    if quota.is_simple:
        level, last, generation, gaps, record, older = stored or token_bucket.fresh(now)
        if last <= now and not gaps and not record and not older:
            after = admit(quota, level, now - last, cost)  # type: ignore[arg-type]  # it is a token bucket
            return None if after is None else (after, now, generation, (), (), b"")
    state = stored or ALGORITHMS[type(quota)].fresh(now)
    if isinstance(quota, TokenBucket):
        return token_bucket.take(quota, state, now, cost, 0.0)[0]
    if isinstance(quota, FixedWindow):
        return None if fixed_window.wait(quota, state, now, cost) else fixed_window.book(quota, state, now, cost, 0.0)
    return None if rolling_window.wait(quota, state, now, cost) else rolling_window.book(quota, state, now, cost, 0.0)


def is_queue(quota: Quota, state: State, now: float) -> bool:
    """Whether what conforms at one time from now on conforms at any later one."""
    return ALGORITHMS[type(quota)].is_queue(quota, state, now)


def looks(quota: Quota, state: State) -> int:
    """The cost of looking for room in a state, relative to that in a token bucket with gaps."""
    if isinstance(quota, TokenBucket):
        return 1
    debit, pieces = state[0] if isinstance(quota, FixedWindow) else state[0][1:]
    return 1 + (DEBIT_LOOKS if debit > 0.0 else 1) * len(pieces) // PIECES_OF_A_LOOK


def reset_us(quota: Quota, state: State, now: float) -> float:
    """Microseconds until the bucket is as good as never used, so that its state no longer matters."""
    return ALGORITHMS[type(quota)].reset_us(quota, state, now)


def used(quota: Quota, state: State, now: float) -> float:
    """The units that count now or later, including those that are booked ahead."""
    return ALGORITHMS[type(quota)].used(quota, state, now)


def booked_ahead(quota: Quota, state: State, now: float) -> float:
    """The booked units whose time has not come yet."""
    return ALGORITHMS[type(quota)].booked_ahead(quota, state, now)


def share(quota: Quota, state: State, replicas: float) -> State:
    """One replica's part of what was used of a quota; its gaps are dropped."""
    return ALGORITHMS[type(quota)].share(quota, state, replicas)
