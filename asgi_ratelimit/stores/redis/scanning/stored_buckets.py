"""Reads a bucket in Redis from its key and its value alone, without the program that has written it.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from ....algorithms import reset_us, unpack, used
from ....buckets import as_key
from ....errors import QuotaError
from ....quota_stamps import BUCKET_FORMAT, BURST_SCALE, burst_code, limit_code, numbers_in
from ....quotas import (
    FIXED_FORMAT,
    ROLLING_FORMAT,
    SECOND_US,
    FixedWindow,
    Quota,
    RollingWindow,
    TokenBucket,
)

_BUCKET = re.compile(r"([^:{}]*):([^:{}]*):(?:([fr][^:{}]*):)?\{([^{}]*)\}")
"""The name, the quota's name, its kind, and the key in the text of a bucket."""

_LIMIT = struct.Struct("<Bf")

_EMPTY, _HASHED = "%", "%#"
"""The texts that stand for an empty key, and before the hash of a long one."""


@dataclass(frozen=True, slots=True)
class StoredBucket:
    """A bucket as it is at one moment.

    ``name`` is that of a rule or limiter, and ``key`` says whose bucket it is (``#`` and a hash for a long key).
    ``quota`` is the quota under which it was last used: its limit to five digits, its burst to a hundredth, without its
    ``burst_allowance_factor``. ``used`` is in units, and ``reset_after`` is the seconds until the bucket is as good as
    new.
    """

    name: str
    key: str
    quota: Quota
    used: float
    reset_after: float

    @property
    def share(self) -> float:
        """The used part of what can be granted at once: 1 or more if it refuses."""
        return self.used / self.quota.most


def stored_bucket(text: str, value: bytes, now_us: float) -> StoredBucket | None:
    """The bucket of this text and value at this time; ``None`` if they are not a bucket, or nothing of it is used."""
    match = _BUCKET.fullmatch(text)
    if match is None:
        return None
    name, quota_name, kind, tag = match.groups(default="")
    try:
        quota = _quota(_unescaped(quota_name), kind, value)
        state = unpack(quota, value)
    except (struct.error, ValueError, QuotaError, OverflowError):
        return None
    if state is None:
        return None
    units = used(quota, state, now_us)
    reset_after = max(reset_us(quota, state, now_us), 0.0) / SECOND_US
    return StoredBucket(_unescaped(name), key_of(tag), quota, units, reset_after) if units > 0.0 else None


def key_of(tag: str) -> str:
    """The key in a bucket's hash tag, or the text that stands for it."""
    if tag.startswith(_HASHED):
        return tag[1:]
    return "" if tag == _EMPTY else _unescaped(tag)


def _quota(name: str, kind: str, value: bytes) -> Quota:
    """The quota of a stored value. Raises ``struct.error`` or a ``ValueError`` for an invalid value."""
    if value[:1] == bytes([BUCKET_FORMAT]):
        period_us, limit, code = numbers_in(value[:8])
        limit = _roundest(limit, limit_code)
        return TokenBucket(limit, period_us / SECOND_US, _burst(code, limit), name=name)
    _, limit = _LIMIT.unpack_from(value)
    period, _, parts = kind[1:].partition("/")
    if value[:1] == bytes([FIXED_FORMAT]):
        return FixedWindow(_rounded(limit), float(period), name=name)
    if value[:1] == bytes([ROLLING_FORMAT]):
        return RollingWindow(_rounded(limit), float(period), int(parts), name=name)
    raise ValueError(f"{value[:1]!r} is not a format")


def _burst(code: int, limit: float) -> float:
    """The burst that a code stands for: the default burst of the limit, or the roundest one."""
    default = max(1, math.floor(limit))
    return default if burst_code(default) == code else _roundest(2.0 ** (code / BURST_SCALE), burst_code)


def _roundest(number: float, code_of: Callable[[float], int]) -> float:
    """Of the numbers with the same code, the one with the fewest digits."""
    candidates = [float(f"{number:.{digits}g}") for digits in range(1, 8)]
    code = code_of(number)
    shortest = next((each for each in candidates if code_of(each) == code), number)
    return int(shortest) if shortest.is_integer() else shortest


def _rounded(number: float) -> float:
    """A number that was stored with about seven digits, rounded to the exact ones."""
    rounded = float(f"{number:.6g}")
    return int(rounded) if rounded.is_integer() else rounded


def _unescaped(text: str) -> str:
    return as_key(unquote_to_bytes(text))
