"""Limiters that are made anew for each call, each with a store of its own.

If the stores are memories, together they limit nothing; if not, each of them opens connections. A constructor cannot
know how long its limiter will live. So the warning depends on what has happened: many stores of limiters that one line
made within a minute are gone, after a few takes each, and memories together admitted more than one would have.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from weakref import finalize

from ..clock import SystemClock, monotonic_us
from ..counts import counts_of
from ..counts.rule_counts import Counts
from ..logs import calling_line, warn_once
from ..quota_text import readable
from ..quotas import SECOND_US, Quota
from ..stores import ByStore, MemoryStore, Store

MANY = 20
"""How many stores that one line made must be gone before a warning."""
FEW = 3
"""The most takes of a store that was made for a single call."""
WITHIN_US = 60_000_000


@dataclass(frozen=True, slots=True)
class Gone:
    """A store that is gone: when it was made, and how many takes it has admitted."""

    made_at_us: float
    admitted: int


@dataclass(slots=True)
class Place:
    """A line of a program, and the last stores of limiters that were made there and are gone.

    The tuple is replaced as a whole, because a garbage collection may note another one while it is read.
    """

    line: str
    gone: tuple[Gone, ...] = ()


_watched: ByStore[bool] = ByStore()


def watch_store(store: Store, quotas: Sequence[Quota], *, is_given: bool) -> None:
    """Note when the store of a limiter is gone, and warn about the line that made many of them.

    A store is watched once: one that several limiters share lasts. ``is_given`` says that the program has made it. The
    warning is logged when the next one is made, because a finalizer should not log.
    """
    if _watched.get(store) or not _is_watchable(store):
        return
    _watched[store] = True
    place, now = _place_at(calling_line()), monotonic_us()
    gone, is_memory = place.gone, isinstance(store, MemoryStore)
    if len(gone) == MANY and "PYTEST_CURRENT_TEST" not in os.environ and _are_too_many(gone, now, quotas, is_memory):
        _warn(place.line, quotas, is_memory, is_given)
    finalize(store, _note, place, counts_of(store), now).atexit = False


def _is_watchable(store: Store) -> bool:
    """Whether it can be noted when a store is gone, and it is not one for tests, with a clock of its own."""
    return type(store).__weakrefoffset__ != 0 and isinstance(getattr(store, "clock", None), (SystemClock, type(None)))


@lru_cache(maxsize=256)
def _place_at(line: str) -> Place:
    return Place(line)


def _note(place: Place, counts: Counts, made_at_us: float) -> None:
    """Note a store that is gone. One that was used more often shows that this place makes what lasts."""
    admitted, refused = [sum(numbers) for numbers in zip((0, 0), *(rule.numbers[:2] for rule in counts.values()))]
    if admitted + refused > FEW:
        place.gone = ()
    elif admitted:
        place.gone = (*place.gone, Gone(made_at_us, admitted))[-MANY:]


def _are_too_many(gone: Sequence[Gone], now: float, quotas: Sequence[Quota], is_memory: bool) -> bool:
    """Whether they were made within a minute; memories must also have admitted more than one in their place would."""
    took_us = now - min(each.made_at_us for each in gone)
    if not is_memory:
        return took_us <= WITHIN_US
    admitted = sum(each.admitted for each in gone)
    most = min(quota.most + quota.limit * took_us / quota.period / SECOND_US for quota in quotas)
    return took_us <= WITHIN_US and admitted > most


def _warn(line: str, quotas: Sequence[Quota], is_memory: bool, is_given: bool) -> None:
    limit = "; ".join(map(readable, quotas))
    problem = "a memory of its own, so that it limits nothing" if is_memory else "connections of its own"
    warn_once(
        "a-limiter-for-each-call",
        f"the limit {limit} at {line} was made {MANY} times within a minute, for a few calls each, and each time with "
        f"{problem}: make {'it and its store' if is_given else 'it'} once, at module level",
    )
