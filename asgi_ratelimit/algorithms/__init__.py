"""The arithmetic of admission: pure functions of a quota, a state, the time and a cost.

Each kind of quota has a module, and all of these modules have the same functions. ``take`` decides the charges of a
request as one. No ``await``, no clock, no lock, no logging in this package.
``stores/redis/rate_limit.lua`` has those that decide under the same names, with the same operations on doubles, so that
both give bit-identical answers.

Times are whole microseconds as floats, and units are floats. A state is a ``NamedTuple`` that stands for a moment and
is never changed. Every kind is a queue: slots are booked in order, so what fits at one moment fits at any later one.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

NEVER: Final = math.inf

# A wait this long (142 years) or longer is never: beyond it, a double no longer holds every microsecond.
NEVER_US: Final = 2.0**52

# What fits after less than this part of a microsecond fits now: it is the noise of doubles.
FITS_US: Final = 2e-4

# What a wait may be above a whole number and still round down to it. Less than ``FITS_US``, so that what is refused
# for a time fits when that time is over, however the doubles are rounded.
NOISE_US: Final = 1e-4


class Booked(NamedTuple):
    """A charge of ``cost`` units for the time ``slot``; ``at`` and ``place`` are of when it was booked."""

    at: float
    slot: float
    place: float
    cost: float


# Stored values: a state as bytes, the same in memory and in Redis. Each kind packs its own; here is what they share.
# Little-endian: B the format, which tells the kind; I4 the stamp of the quota's numbers; the numbers as doubles.

# The formats. A change of what the numbers mean needs another one: older values then count as never used.
TOKEN_BUCKET, FIXED_WINDOW, ROLLING_WINDOW, IN_FLIGHT = 20, 21, 22, 23

# No number of a state is larger, nor below 0.
LARGEST = 2.0**63

# The most parts that are read: the largest window, and as many parts that are booked ahead.
MOST_PARTS = 2048

# Numbers that rise, each with another number.
Parts: TypeAlias = tuple[tuple[float, float], ...]

_HEAD = struct.Struct("<BId")
_PART = struct.Struct("<2d")


def stamp_of(value: bytes) -> int:
    """The stamp of the quota that a value was written under."""
    return int.from_bytes(value[1:5], "little")


def pack_parts(kind: int, stamp: int, at: float, parts: Sequence[tuple[float, float]]) -> bytes:
    """The value of a state that has parts."""
    return _HEAD.pack(kind, stamp, at) + b"".join([_PART.pack(*part) for part in parts])


def unpack_parts(value: bytes) -> tuple[int, float, Parts]:
    """The stamp, the time and the parts in such a value."""
    _, stamp, at = _HEAD.unpack_from(value)
    return stamp, at, tuple(_PART.iter_unpack(value[_HEAD.size :]))


def has_parts(kind: int, value: bytes) -> bool:
    """Whether a value is one of this kind, with parts in order, each with units."""
    size = len(value) - _HEAD.size
    if size < 0 or size % _PART.size or size > MOST_PARTS * _PART.size or value[0] != kind:
        return False
    _, at, parts = unpack_parts(value)
    before = -math.inf
    for index, units in parts:
        if not (before < index <= LARGEST and index == math.floor(index) and 0.0 < units <= LARGEST):
            return False
        before = index
    return 0.0 <= at <= LARGEST
