"""The values of a memory store: at most so many, and which of them goes for a new one.

A value is bytes, so that the garbage collector has nothing to walk. That of a plain token bucket starts with the time
at which it is full again, and the rest of what has to be known is in its stamp. Any other starts with two times, at
which the bucket is full again and at which it has room for a unit again, and the part of its quota that is in use.

A new value replaces one that is full again, which holds no information, or else the one that is used least, relative
to its quota, among the few oldest. A bucket without room for a unit refuses; it is set aside, and of those the oldest
goes, but only when there are hardly any others. So to get rid of a refusing bucket somebody has to use up most others.

Some others have to stay, though: with room for a single one, a bucket that is never quite used up would be forgotten
at every second request.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Collection
from itertools import islice

from ..algorithms import Outlook
from ..algorithms.packed import PLAIN
from ..clock import monotonic_us
from ..logs import REPORT_EVERY_US
from ..quotas import BURST_SCALE, Quota

LOOKS = 8
"""The most values that are looked at in one dictionary to find one that goes."""

LITTLE = 1 / 8
"""A bucket of whose quota no more than this is used goes without a further look."""

RESERVE = 1 / 8
"""The part of the values that do not refuse and stay, however many refuse."""

MOST_ROUNDS = 512
"""How often that is done, at the most, to find one that does not refuse: three milliseconds, once for each of them."""

_PLAIN_VALUE = struct.Struct("<d" + PLAIN)
pack_plain, unpack_plain, PLAIN_VALUE_SIZE = _PLAIN_VALUE.pack, _PLAIN_VALUE.unpack, _PLAIN_VALUE.size
_FULL_AT = struct.Struct("<d")
_TIMES = struct.Struct("<ddd")
_PLAIN_USE = struct.Struct("<dxffH")

UNUSED = _TIMES.pack(0.0, 0.0, 0.0)
"""The value of a bucket that has been reset."""

_FULL, _REFUSES = 0.0, 2.0
_LEAST = 1e-300
"""Less than any use but that of a full bucket."""
_ROUNDING = 1e-6
"""What a stamp rounds the numbers of a quota by, and more."""

logger = logging.getLogger("asgi_ratelimit")


def value_of(quota: Quota, packed: bytes, now: float, outlook: Outlook) -> bytes:
    """The value of a state, packed, with this outlook at the time ``now``."""
    units, more_us, full_us = outlook
    if len(packed) + _FULL_AT.size == PLAIN_VALUE_SIZE:
        return _FULL_AT.pack(now + full_us) + packed
    free_at = now + more_us if units < 1.0 else 0.0
    return _TIMES.pack(now + full_us, free_at, 1.0 - min(units / quota.most, 1.0)) + packed


def packed_in(value: bytes) -> bytes:
    """The packed state in a value; empty for a bucket that has been reset."""
    return value[_FULL_AT.size if len(value) == PLAIN_VALUE_SIZE else _TIMES.size :]


def _use_of(value: bytes, now: float) -> float:
    """The part of the quota that is in use: ``_FULL`` for a full bucket, ``_REFUSES`` for one without a unit left."""
    if len(value) != PLAIN_VALUE_SIZE:
        full_at, free_at, use = _TIMES.unpack_from(value)
        if full_at <= now:
            return _FULL
        return _REFUSES if free_at > now else use
    full_at, period_us, limit, scaled_log_burst = _PLAIN_USE.unpack_from(value)
    if full_at <= now:
        return _FULL
    level, burst = (full_at - now) * limit / period_us, _burst(scaled_log_burst)
    return _REFUSES if level > burst - 1.0 + burst * _ROUNDING else level / burst


def _burst(scaled_log: int) -> float:
    """The burst that a stamp tells by its logarithm, which is a rounded one: exactly, or a little less."""
    burst: float = 2.0 ** (scaled_log / BURST_SCALE)
    whole = round(burst)
    if whole < BURST_SCALE / 2 and abs(burst - whole) < burst / BURST_SCALE:
        return whole
    return float(2.0 ** ((scaled_log - 0.5) / BURST_SCALE))


class BoundedValues:
    """At most ``most`` values by bucket. Not thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._reserve = int(most * RESERVE)
        shards = range(_shards_for(most))
        # Several dictionaries, so that none takes long to grow.
        self.shards: tuple[dict[str, bytes], ...] = tuple([{} for _ in shards])
        """Where the values are, by the hash of the bucket, but for those that are set aside."""
        self._aside: tuple[dict[str, bytes], ...] = tuple([{} for _ in shards])
        self.mask = len(self.shards) - 1
        self.aside = 0
        """How many values are set aside."""
        self.count = 0
        """How many values there are."""
        self._hand = self._aside_hand = 0
        self.under_way: Collection[str] = ()
        """The buckets of the take under way, which do not go."""
        self.has_warning = False
        """Whether a refusing bucket has gone since the latest warning, and ``warn`` is to be called."""
        self._warned_us = -float("inf")

    def __len__(self) -> int:
        return self.count

    def get(self, bucket: str) -> bytes | None:
        """The value of a bucket, if there is any; one that was set aside is among the others again."""
        value = self.shards[hash(bucket) & self.mask].get(bucket)
        return self.recall(bucket) if value is None and self.aside else value

    def recall(self, bucket: str) -> bytes | None:
        """The value of a bucket that was set aside, which is among the others again."""
        number = hash(bucket) & self.mask
        value = self._aside[number].pop(bucket, None)
        if value is not None:
            self.shards[number][bucket] = value
            self.aside -= 1
        return value

    def put(self, bucket: str, value: bytes, now: float) -> None:
        """Store the value of a bucket."""
        if self.get(bucket) is None:
            self.insert(bucket, value, now)
        else:
            values = self.shards[hash(bucket) & self.mask]
            if self.count >= self._most:
                del values[bucket]  # it becomes the newest one
            values[bucket] = value

    def insert(self, bucket: str, value: bytes, now: float) -> None:
        """Store the value of a bucket that has none."""
        while self.count >= self._most and self._remove_one(now):
            self.count -= 1
        self.count += 1
        self.shards[hash(bucket) & self.mask][bucket] = value

    def _remove_one(self, now: float) -> bool:
        """Remove the value that can go best among a few; ``False`` if all belong to the take under way."""
        for _ in range(MOST_ROUNDS):
            others = self.count - self.aside
            if not others:
                break
            self._hand = _next(self.shards, self._hand, others)
            if self._remove_least_used(self._hand, now, 1 if others <= self._reserve else LOOKS):
                return True
            if others <= self._reserve:
                break
        for _ in range(len(self.under_way) + 1 if self.aside else 0):
            self._aside_hand = _next(self._aside, self._aside_hand, self.aside)
            if self._remove_refusing(self._aside_hand, now):
                return True
        return False

    def _remove_least_used(self, number: int, now: float, looks: int) -> bool:
        """Remove the least used of the first values in a dictionary, and set those aside that refuse.

        With a single look, it removes a full one only.
        """
        values, least, best = self.shards[number], _REFUSES if looks > 1 else _LEAST, None
        oldest = list(islice(values, looks))
        for bucket in oldest:
            use = _use_of(values[bucket], now)
            if use == _REFUSES:
                self._aside[number][bucket] = values.pop(bucket)
                self.aside += 1
            elif use < least and bucket not in self.under_way:
                least, best = use, bucket
                if use <= LITTLE:
                    break
        if best is not None:
            del values[best]
            self._review(now)
        if oldest[0] in values:  # it goes to the end, so that others are looked at
            values[oldest[0]] = values.pop(oldest[0])
        return best is not None

    def _review(self, now: float) -> None:
        """Put one value that was set aside back among the others, if its bucket refuses no more."""
        if self.aside:
            number = self._aside_hand = _next(self._aside, self._aside_hand, self.aside)
            bucket = next(iter(self._aside[number]))
            value = self._aside[number].pop(bucket)
            if _use_of(value, now) == _REFUSES:
                self._aside[number][bucket] = value
            else:
                self.shards[number][bucket] = value
                self.aside -= 1

    def _remove_refusing(self, number: int, now: float) -> bool:
        """Remove the value that was set aside first, or one of the first and last few that refuses no more."""
        values, oldest = self._aside[number], None
        for bucket in [*islice(values, LOOKS), *islice(reversed(values), LOOKS)]:
            if bucket in self.under_way:
                continue
            if _use_of(values[bucket], now) < _REFUSES:
                del values[bucket]
                self.aside -= 1
                return True
            oldest = oldest or bucket
        if oldest is None:
            return False
        del values[oldest]
        self.aside -= 1
        self.has_warning = True
        return True

    def warn(self) -> None:
        """Log that a refusing bucket has gone, at most once a minute."""
        self.has_warning = False
        now = monotonic_us()
        if now - self._warned_us >= REPORT_EVERY_US:
            self._warned_us = now
            logger.warning(
                "nearly all of the %d buckets of a MemoryStore refuse, and a new one replaces one of them, which is "
                "then as good as never used: raise it, MemoryStore(max_keys=%d), or use Redis "
                "(docs/warnings.md#memory-that-is-full)",
                self._most,
                10 * self._most,
            )


def _next(shards: tuple[dict[str, bytes], ...], hand: int, count: int) -> int:
    """The number of the next dictionary that holds its share of so many values, or more."""
    while True:
        hand = (hand + 1) % len(shards)
        if len(shards[hand]) * len(shards) >= count:
            return hand


def _shards_for(most: int) -> int:
    """A power of two, such that each dictionary holds about one to two thousand values."""
    return 1 << max((most // 1024).bit_length() - 1, 0)
