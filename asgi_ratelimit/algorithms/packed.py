"""States as bytes: what both stores hold for a bucket.

A value is packed, little-endian: B format, f period_us, d last, H generation, and then

* of a token bucket (format 1): d level;
* of a fixed window (format 5): H runs, and for each d start, d stop, d count;
* of a rolling window (format 6): H buckets, d full_until, H parts, and for each d part, d count;

and, where there are any, B gaps, B ids, for each gap d, d, and for each id d. A value of another format, or written
under another period or number of buckets, counts as never used. ``rate_limit.lua`` packs and unpacks the same.
No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ..quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from .state import State

FORMATS: dict[type, int] = {TokenBucket: 1, FixedWindow: 5, RollingWindow: 6}
"""The first byte of a value."""

_HEAD = struct.Struct("<BfdH")
_PLAIN = struct.Struct("<BfdHd")
_LEVEL = struct.Struct("<d")
_PAIR = struct.Struct("<dd")
_RUNS = struct.Struct("<H")
_RUN = struct.Struct("<ddd")
_PARTS = struct.Struct("<HdH")
_TAIL = struct.Struct("<BB")

unpack_plain: Callable[[bytes], tuple[int, float, float, int, float]] = _PLAIN.unpack
"""The format, the period, ``last``, generation and level in the value of a token bucket without gaps and ids."""
PLAIN_SIZE = _PLAIN.size
"""Bytes of such a value, and of no other."""


def pack(quota: Quota, state: State, *, with_ids: bool = True) -> bytes:
    """The value of a state."""
    core, last, generation, gaps, ids = state
    if type(quota) is TokenBucket and not gaps and not ids:
        return _PLAIN.pack(1, quota.stamp, last, generation, core)
    head = _HEAD.pack(FORMATS[type(quota)], quota.stamp, last, generation)
    if isinstance(quota, TokenBucket):
        body = _LEVEL.pack(core)
    elif isinstance(quota, RollingWindow):
        full_until, parts = core
        body = _PARTS.pack(quota.buckets, full_until, len(parts)) + b"".join([_PAIR.pack(*part) for part in parts])
    else:
        body = _RUNS.pack(len(core)) + b"".join([_RUN.pack(*run) for run in core])
    ids = ids if with_ids else ()
    if not gaps and not ids:
        return head + body
    tail = _TAIL.pack(len(gaps), len(ids)) + b"".join([_PAIR.pack(*gap) for gap in gaps])
    return head + body + tail + struct.pack(f"<{len(ids)}d", *ids)


def unpack(quota: Quota, value: bytes | None) -> State | None:
    """The state in a value; ``None`` where the value means nothing for this quota, or nothing at all."""
    if value is not None and len(value) == PLAIN_SIZE and type(quota) is TokenBucket:
        format_, stamp, last, generation, level = unpack_plain(value)
        return (level, last, generation, (), ()) if format_ == 1 and stamp == quota.stamp else None
    if value is None or len(value) < _HEAD.size:
        return None
    try:
        return _unpacked(quota, value)
    except struct.error:  # cut short
        return None


def _unpacked(quota: Quota, value: bytes) -> State | None:
    format_, stamp, last, generation = _HEAD.unpack_from(value)
    if format_ != FORMATS[type(quota)] or stamp != quota.stamp:
        return None
    core: Any
    if isinstance(quota, TokenBucket):
        core, at = _LEVEL.unpack_from(value, _HEAD.size)[0], _HEAD.size + _LEVEL.size
    elif isinstance(quota, FixedWindow):
        (runs,) = _RUNS.unpack_from(value, _HEAD.size)
        start = _HEAD.size + _RUNS.size
        at = start + runs * _RUN.size
        core = tuple(_RUN.iter_unpack(value[start:at]))
    else:
        buckets, full_until, parts = _PARTS.unpack_from(value, _HEAD.size)
        if buckets != quota.buckets:
            return None
        start = _HEAD.size + _PARTS.size
        at = start + parts * _PAIR.size
        core = (full_until, tuple(_PAIR.iter_unpack(value[start:at])))
    return (core, last, generation, *_tail(value, at))


def _tail(value: bytes, at: int) -> tuple[Any, Any]:
    if at == len(value):
        return (), ()
    gaps, ids = _TAIL.unpack_from(value, at)
    start = at + _TAIL.size
    stop = start + gaps * _PAIR.size
    return tuple(_PAIR.iter_unpack(value[start:stop])), struct.unpack_from(f"<{ids}d", value, stop)
