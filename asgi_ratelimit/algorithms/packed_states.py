"""States as bytes: the value that both stores hold for a bucket.

A value is packed, little-endian. It starts with the quota's ``stamp``:

* of a token bucket: B 7 and seven bytes more, see ``quota_stamps``;
* of a fixed window: B 8, f limit;
* of a rolling window: B 9, f limit, H buckets.

Then come ``d last, d level, I generation`` for a token bucket, or ``d last, d generation`` and the core for a window:

* of a fixed window: d debit, and for each run d start, d stop, d count;
* of a rolling window: d full_until, d debit, and for each part d part, d count.

If a token bucket has gaps, a record or another version, these follow: H gaps, B 0 or 1 and the number of lows; for each
gap d start, d size; of a record d start, d units, d sunk, and for each low d time, d low; and up to the end the value
of another version of the quota. In the value of a window, the value of another version follows if there is one, and I
its length. A value with another stamp of the same format belongs to another version (see below). Any other value counts
as never used. So does a value with a number that is not finite, and that of a window whose places are not whole and in
order.
``rate_limit.lua`` packs and unpacks values in the same way. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
import struct
from itertools import chain
from typing import Any

from ..quota_stamps import numbers_in
from ..quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from .state import GENERATIONS, MAX_PIECES, NEVER_US, Gaps, Record, State
from .windows.exact_units import snapped
from .windows.fixed_runs import Run, add_run

_HEAD = struct.Struct("<dd")
_PAIR = struct.Struct("<dd")
_RUN = struct.Struct("<ddd")
_DEBIT = struct.Struct("<d")
_COUNTS = struct.Struct("<HB")
_BUSY_PERIOD = struct.Struct("<ddd")
_LENGTH = struct.Struct("<I")

MAX_DEBIT = 2.0**63
"""More than any debit: the debit in a valid value is below it."""

ANEW = GENERATIONS
"""The generation of a state made from another version's differs by this."""

_PLAIN = struct.Struct("<8sddI")
"""The value of a token bucket without gaps, a record and an older version: stamp, ``last``, level, generation.

With 28 bytes or fewer, a server whose allocator counts in steps of 16 bytes needs at most 120 bytes for a bucket."""
pack_plain, unpack_plain, PLAIN_SIZE = _PLAIN.pack, _PLAIN.unpack, _PLAIN.size


def pack(quota: Quota, state: State) -> bytes:
    """The value of a state."""
    core, last, generation, gaps, record, older = state
    if isinstance(quota, TokenBucket):
        plain = pack_plain(quota.stamp, last, core, generation)
        return plain + _packed_tail(gaps, record, older) if gaps or record or older else plain
    head = quota.stamp + _HEAD.pack(last, generation)
    if isinstance(quota, RollingWindow):
        body = _PAIR.pack(core[0], core[1]) + _packed_pairs(core[2])
    else:
        body = _DEBIT.pack(core[0]) + b"".join([_RUN.pack(*run) for run in core[1]])
    return head + body + older + _LENGTH.pack(len(older)) if older else head + body


def _packed_tail(gaps: Gaps, record: Record, older: bytes) -> bytes:
    packed_record = struct.pack(f"<{2 * len(record) + 1}d", *chain(*record)) if record else b""
    return _COUNTS.pack(len(gaps), len(record)) + _packed_pairs(gaps) + packed_record + older


def _packed_pairs(pairs: Gaps) -> bytes:
    return struct.pack(f"<{2 * len(pairs)}d", *chain.from_iterable(pairs))


def unpacked(quota: Quota, value: bytes, most: int = MAX_PIECES) -> State | None:
    """The state in a value of this version, with at most ``most`` of its gaps, runs, or parts ahead.

    Gaps that are left out are lost, and windows that are left out count as full. Returns ``None`` for an invalid value.
    Raises ``struct.error`` for a value that is cut short.
    """
    if isinstance(quota, TokenBucket):
        return _unpacked_bucket(quota, value, most)
    at = len(quota.stamp)
    last, generation = _HEAD.unpack_from(value, at)
    at += _HEAD.size
    core: Any
    value, older = _without_older(quota, value, at)
    if isinstance(quota, FixedWindow):
        core = (*_DEBIT.unpack_from(value, at), _first_runs(quota, value[at + _DEBIT.size :], most))
        is_core = _is_debit(core[0]) and _are_runs(core[1])
    else:
        full_until, debit = _PAIR.unpack_from(value, at)
        core = _last_parts(quota, full_until, debit, value[at + _PAIR.size :], most)
        is_core = abs(core[0]) < NEVER_US and core[0] % 1.0 == 0.0 and _is_debit(debit) and _are_parts(core[2])
    if (older and not is_version(quota, older)) or not is_core:
        return None
    if not abs(last) < 2.0 * NEVER_US or not math.isfinite(generation):
        return None
    return (core, last, int(generation), (), (), older)


def _is_debit(units: float) -> bool:
    return 0.0 <= units < MAX_DEBIT


def _are_parts(parts: Gaps) -> bool:
    """Whether takes can leave such parts: their numbers are whole and in order, and each has units."""
    last = -NEVER_US
    for part, count in parts:
        if not (part > last and part % 1.0 == 0.0 and 0.0 < count < math.inf):
            return False
        last = part
    return last < NEVER_US


def _are_runs(runs: tuple[Run, ...]) -> bool:
    """Whether takes can leave such runs: their numbers are whole and in order, and each has units."""
    last = -NEVER_US
    for start, stop, count in runs:
        if not (last <= start < stop and start % 1.0 == stop % 1.0 == 0.0 and 0.0 < count < math.inf):
            return False
        last = stop
    return last < NEVER_US


def _first_runs(quota: FixedWindow, value: bytes, most: int) -> tuple[Run, ...]:
    """The first runs of a value; the windows of all other runs become one run, which is full."""
    count, first = len(value) / _RUN.size, max(most, 2) - 1
    if count <= first + 1 or count % 1:
        return tuple(_RUN.iter_unpack(value))
    runs, rest = [*_RUN.iter_unpack(value[: first * _RUN.size])], value[first * _RUN.size :]
    start, stop = _RUN.unpack_from(rest)[0], _RUN.unpack_from(rest, len(rest) - _RUN.size)[1]
    add_run(runs, start, stop, snapped(quota, quota.limit))
    return tuple(runs)


def _last_parts(
    quota: RollingWindow, full_until: float, debit: float, value: bytes, most: int
) -> tuple[float, float, Gaps]:
    """The core with the last parts of a value; if there are others, nothing is taken before the last ones.

    With ``most`` 0, these are the parts of one window, the first ones.
    """
    others, start, stop = len(value) // _PAIR.size - most - quota.buckets, 0, len(value)
    if len(value) % _PAIR.size == 0:
        if most == 0:
            stop = (quota.buckets + 1) * _PAIR.size
        elif others > 0:
            start = others * _PAIR.size
            full_until = max(full_until, _PAIR.unpack_from(value, start - _PAIR.size)[0] + quota.buckets + 1.0)
    return full_until, debit, tuple(_PAIR.iter_unpack(value[start:stop]))


def _unpacked_bucket(quota: TokenBucket, value: bytes, most: int) -> State | None:
    _, last, level, generation = _PLAIN.unpack_from(value)
    gaps, record, older = _tail(value, PLAIN_SIZE, most)
    if (older and not is_version(quota, older)) or not all(map(math.isfinite, chain((last, level), *gaps, *record))):
        return None
    return (level, last, generation, gaps, record, older)


def _without_older(quota: FixedWindow | RollingWindow, value: bytes, at: int) -> tuple[bytes, bytes]:
    """The value of a window, and the value of the other version in it; the core begins at ``at``."""
    fixed, each = (_DEBIT.size, _RUN.size) if isinstance(quota, FixedWindow) else (_PAIR.size, _PAIR.size)
    if (len(value) - at - fixed) % each == 0:
        return value, b""
    end = len(value) - _LENGTH.size
    (size,) = _LENGTH.unpack_from(value, end)
    if not 0 < size <= end - at - fixed:
        raise struct.error("cut short")
    return value[: end - size], value[end - size : end]


def _pairs(value: bytes, at: int, count: int) -> tuple[Gaps, int]:
    """The ``count`` pairs from a place in a value on, and the place after them."""
    numbers = struct.unpack_from(f"<{2 * count}d", value, at)
    return tuple(zip(numbers[::2], numbers[1::2])), at + count * _PAIR.size


def _tail(value: bytes, at: int, most: int) -> tuple[Gaps, Record, bytes]:
    if at == len(value):
        return (), (), b""
    gap_count, part_count = _COUNTS.unpack_from(value, at)
    gaps, at = _pairs(value, at + _COUNTS.size, min(gap_count, most))
    at += max(gap_count - most, 0) * _PAIR.size
    if not part_count:
        return gaps, (), value[at:]
    busy_period = _BUSY_PERIOD.unpack_from(value, at)
    lows, at = _pairs(value, at + _BUSY_PERIOD.size, part_count - 1)
    return gaps, (busy_period, *lows), value[at:]


# Versions: the same bucket under another limit (or a token bucket's burst or period), as during a rollout. Each version
# decides on a state of its own, and carries the other one's value along as ``older`` while it matters. What was used
# under either counts for both; see ``of_version`` and ``merged`` of each kind.


def is_version(quota: Quota, value: bytes) -> bool:
    """Whether a value belongs to a quota of this kind, whatever its numbers are."""
    if not isinstance(quota, TokenBucket):
        return value[:1] == quota.stamp[:1] and value[5 : len(quota.stamp)] == quota.stamp[5:]
    if len(value) < PLAIN_SIZE:
        return False
    stamp, last, level, _ = _PLAIN.unpack_from(value)
    return numbers_in(stamp)[0] > 0.0 and math.isfinite(last) and math.isfinite(level)


def without_carried(quota: Quota, value: bytes, carried: bytes) -> bytes:
    """A value without the other version's value in it."""
    length = len(carried)
    if carried and not isinstance(quota, TokenBucket):
        length += _LENGTH.size
    return value[: len(value) - length]


def rescaled(quota: TokenBucket, level: float, stamp: bytes) -> float:
    """A level under another stamp, scaled by the period of this quota.

    If the stamp rounds the period, the units are rounded down, so that no unit that is left is lost.
    """
    own, other = numbers_in(quota.stamp)[0], numbers_in(stamp)[0]
    return level if own == other else float(math.ceil(level / other * quota.period_us))


def of_older(quota: Quota, older: bytes) -> State:
    """The state of the other version of a window; if its value is invalid, a state that was never used."""
    try:
        state = unpacked(quota, older, 1)
    except struct.error:
        state = None
    return state or ((0.0, ()) if isinstance(quota, FixedWindow) else (0.0, 0.0, ()), 0.0, 0, (), (), b"")


def older_reset_us(quota: TokenBucket, older: bytes, now: float) -> float:
    """Microseconds until the other version's value no longer matters; below 0 if that was long ago."""
    stamp, last, level, _ = _PLAIN.unpack_from(older)
    _, limit, _ = numbers_in(stamp)
    return float(last + math.ceil(level / (limit * (quota.slow_rate / quota.limit))) - now)
