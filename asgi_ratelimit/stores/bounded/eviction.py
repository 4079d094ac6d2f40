"""The values of a memory store, bounded in number, and which of them goes for a new one.

A new value replaces that of a bucket that is full again, which holds no information, or else the least used one,
relative to its quota, among the few oldest. A bucket without room for a unit refuses, and is set aside. When there are
hardly any others, one of the buckets set aside goes: one that has room again, or else the oldest. So to get rid of a
refusing bucket, somebody has to use up most others.

Some other buckets have to stay, though: with room for only one, a bucket that is never quite used up would be forgotten
at every second request.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from itertools import islice

from ...clock import monotonic_us
from ...logs import REPORT_EVERY_US, see
from .bucket_values import REFUSES, use_of
from .refusing_buckets import RefusingBuckets, next_shard

LOOKS = 8
"""The most values that are looked at in one dictionary to find one that goes."""

LITTLE = 1 / 8
"""A bucket that uses no more than this part of its quota goes without a further look."""

RESERVE = 1 / 8
"""The part of the values that is kept for buckets that do not refuse, however many refuse."""

MOST_ROUNDS = 512
"""How often dictionaries are searched, at most, for a bucket that does not refuse: three milliseconds, once for
each."""

MOST_SHARDS = 1 << 14
"""The most dictionaries: enough for four million values. A store for more of them takes no longer to build."""

_LEAST = 1e-300
"""Less than any use but that of a full bucket."""

logger = logging.getLogger("asgi_ratelimit")


class BoundedValues:
    """At most ``most`` values by bucket. Not thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._reserve = int(most * RESERVE)
        shards = range(_shards_for(most))
        # Several dictionaries, so that none takes long to grow.
        self.shards: tuple[dict[str, bytes], ...] = tuple([{} for _ in shards])
        """The values, by the hash of the bucket, except those that are set aside."""
        self.refusing = RefusingBuckets(len(self.shards))
        """The values that are set aside."""
        self.mask = len(self.shards) - 1
        self.count = 0
        """How many values there are."""
        self._hand = 0
        self.under_way: Collection[str] = ()
        """The buckets of the take under way, which are never removed."""
        self.has_warning = False
        """Whether a refusing bucket has gone since the latest warning, so that ``warn`` has to be called."""
        self._warned_us = -float("inf")

    def __len__(self) -> int:
        return self.count

    def get(self, bucket: str) -> bytes | None:
        """The value of a bucket, if there is any."""
        value = self.shards[hash(bucket) & self.mask].get(bucket)
        return self.refusing.get(bucket) if value is None and self.refusing.count else value

    def put(self, bucket: str, value: bytes, now: float) -> None:
        """Store the value of a bucket. In a full store, it becomes the newest one."""
        values = self.shards[hash(bucket) & self.mask]
        if bucket in values:
            if self.count >= self._most:
                del values[bucket]
            values[bucket] = value
        elif self.refusing.count and self.refusing.take_out(bucket) is not None:
            values[bucket] = value
        else:
            self.insert(bucket, value, now)

    def insert(self, bucket: str, value: bytes, now: float) -> None:
        """Store the value of a bucket that has none."""
        while self.count >= self._most and (self._remove_next(now) or self._remove_one(now)):
            self.count -= 1
        self.count += 1
        self.shards[hash(bucket) & self.mask][bucket] = value

    def _remove_next(self, now: float) -> bool:
        """``_remove_one`` in fewer calls, if nothing is set aside and the next value is hardly used."""
        hand = (self._hand + 1) & self.mask
        values = self.shards[hand]
        if self.refusing.count or self.under_way or len(values) * len(self.shards) < self.count:
            return False
        bucket = next(iter(values))
        if use_of(values[bucket], now) > LITTLE:
            return False
        self._hand = hand
        del values[bucket]
        return True

    def _remove_one(self, now: float) -> bool:
        """Remove the value among a few that can best go; ``False`` if all belong to the take under way."""
        for _ in range(MOST_ROUNDS):
            others = self.count - self.refusing.count
            if not others:
                break
            self._hand = next_shard(self.shards, self._hand, others)
            if self._remove_least_used(self._hand, now, 1 if others <= self._reserve else LOOKS):
                return True
            if others <= self._reserve:
                break
        if self.refusing.pop_free(now) is not None:
            return True
        if not self.refusing.remove_oldest(self.under_way):
            return False
        self.has_warning = True
        return True

    def _remove_least_used(self, number: int, now: float, looks: int) -> bool:
        """Remove the least used of the first values in a dictionary, and set aside those that refuse.

        With a single look, it removes only the value of a full bucket.
        """
        values, least, best = self.shards[number], REFUSES if looks > 1 else _LEAST, None
        oldest = list(islice(values, looks))
        for bucket in oldest:
            use = use_of(values[bucket], now)
            if use == REFUSES:
                self.refusing.add(bucket, values.pop(bucket), now)
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
        """Put one value that was set aside back among the others, if its bucket no longer refuses."""
        if self.refusing.count:
            free = self.refusing.pop_free(now)
            if free is not None:
                self.shards[hash(free[0]) & self.mask][free[0]] = free[1]

    def warn(self) -> None:
        """Log that a refusing bucket has gone, at most once a minute."""
        self.has_warning = False
        now = monotonic_us()
        if now - self._warned_us >= REPORT_EVERY_US:
            self._warned_us = now
            logger.warning(
                "nearly all of the %d buckets of a MemoryStore refuse, and a new one replaces one of them, which is "
                "then as good as never used: raise it, MemoryStore(max_keys=%d), or use Redis %s",
                self._most,
                10 * self._most,
                see("memory-that-is-full"),
            )


def _shards_for(most: int) -> int:
    """A power of two for which each dictionary holds about 250 to 500 values.

    To find its oldest value, a dictionary passes the removed entries, which may be twice as many.
    """
    return min(1 << max((most // 256).bit_length() - 1, 0), MOST_SHARDS)
