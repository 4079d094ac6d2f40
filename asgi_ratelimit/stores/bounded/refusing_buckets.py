"""The values of refusing buckets, ordered so that one with room again is found at once, however many have none.

They stand in rows, in the order in which they came. A row holds buckets that had to wait for room for about the same
time, the longest an eighth longer than the shortest. So the first bucket of a row has room about as soon as any in it,
and each is found before it has had room for an eighth of the time that it had to wait.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection
from itertools import islice

from .bucket_values import free_at

ROWS_FOR_TWICE = 6
"""Rows for each doubling of the time until there is room."""


def next_shard(shards: tuple[dict[str, bytes], ...], hand: int, count: int) -> int:
    """The number of the next dictionary that holds at least its share of ``count`` values."""
    while True:
        hand = (hand + 1) % len(shards)
        if len(shards[hand]) * len(shards) >= count:
            return hand


class RefusingBuckets:
    """Values by bucket. Not thread-safe. A bucket that was taken out stays in its row until it is first there."""

    def __init__(self, shards: int) -> None:
        self._shards: tuple[dict[str, bytes], ...] = tuple([{} for _ in range(shards)])
        self._mask = shards - 1
        self._hand = 0
        self.count = 0
        self._rows: dict[int, deque[str]] = {}
        self._first_free_at: dict[int, float] = {}
        """The time at which the first bucket of each row has room again."""
        self._gone: dict[str, int] = {}
        """How often a bucket stands in the rows although it has been taken out."""

    def get(self, bucket: str) -> bytes | None:
        """The value of a bucket, if it is one of these."""
        return self._shards[hash(bucket) & self._mask].get(bucket)

    def add(self, bucket: str, value: bytes, now: float) -> None:
        """Add a bucket that refuses now."""
        self._shards[hash(bucket) & self._mask][bucket] = value
        self.count += 1
        at = free_at(value)
        number = int(math.log2(max(at - now, 1.0)) * ROWS_FOR_TWICE)
        if number in self._rows:
            self._rows[number].append(bucket)
        else:
            self._rows[number] = deque((bucket,))
            self._first_free_at[number] = at

    def take_out(self, bucket: str) -> bytes | None:
        """Remove and return the value of a bucket, if it is one of these."""
        value = self._shards[hash(bucket) & self._mask].pop(bucket, None)
        if value is not None:
            self.count -= 1
            self._gone[bucket] = self._gone.get(bucket, 0) + 1
        return value

    def pop_free(self, now: float) -> tuple[str, bytes] | None:
        """Remove and return a bucket that now has room, with its value; ``None`` if none is known."""
        while self._rows:
            number = min(self._first_free_at, key=self._first_free_at.__getitem__)
            if self._first_free_at[number] > now:
                break
            free = self._pop(number)
            if free is not None:
                return free
        return None

    def remove_oldest(self, under_way: Collection[str]) -> bool:
        """Remove the oldest bucket of the next dictionary that is not under way; return whether there was one."""
        for _ in range(len(under_way) + 1 if self.count else 0):
            self._hand = next_shard(self._shards, self._hand, self.count)
            for bucket in islice(self._shards[self._hand], len(under_way) + 1):
                if bucket not in under_way:
                    self.take_out(bucket)
                    self._drop_gone()
                    return True
        return False

    def _drop_gone(self) -> None:
        """Drop the first buckets of rows if they were taken out."""
        for number in [number for number, row in self._rows.items() if row[0] in self._gone]:
            while number in self._rows and self._rows[number][0] in self._gone:
                self._pop(number)

    def _pop(self, number: int) -> tuple[str, bytes] | None:
        """Remove and return the first bucket of a row; ``None`` if it was taken out."""
        row = self._rows[number]
        bucket = row.popleft()
        gone = self._gone.pop(bucket, 0)
        if gone > 1:
            self._gone[bucket] = gone - 1
        value = None if gone else self._shards[hash(bucket) & self._mask].pop(bucket)
        if row:
            first = self.get(row[0])
            self._first_free_at[number] = -math.inf if first is None else free_at(first)
        else:
            del self._rows[number], self._first_free_at[number]
        if value is None:
            return None
        self.count -= 1
        return bucket, value
