"""How keys are written down, in memory and in Redis, so that no two buckets ever share one.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

DEFAULT_NAME = "default"
"""The name of a limiter that was given none."""

LONGEST = 128
"""Bytes of a key that are kept as they are; a longer one is replaced by a hash."""

_UNSAFE = re.compile(rb"[^A-Za-z0-9._~@/+=,:-]")
_UNSAFE_IN_NAME = re.compile(rb"[^A-Za-z0-9._~@/+=,-]")


def as_bytes(text: str) -> bytes:
    """The bytes of a text of any content, lone surrogates (bytes that were not UTF-8) included."""
    return text.encode("utf-8", "surrogatepass")


def digest(data: bytes) -> str:
    """A hash of 128 bits as 32 hexadecimal digits, keyed so that it is of no use outside this package."""
    return hashlib.blake2b(data, digest_size=16, key=b"asgi_ratelimit").hexdigest()


def short_key(key: str) -> str:
    """``key`` itself, or, above 128 bytes, a stand-in of 33 that no short key is equal to."""
    if len(key) <= LONGEST // 4:
        return key
    data = as_bytes(key)
    return key if len(data) <= LONGEST and key[0] != "\0" else "\0" + digest(data)


def escaped(text: str) -> bytes:
    """One part of a redis key, with ``:``, braces and all that is not printable as ``%XX``."""
    return _UNSAFE_IN_NAME.sub(_percent, as_bytes(text))


def redis_key(prefix: bytes, name: str, quota: str, key: str) -> bytes:
    """``prefix:name:quota:{key}``: each part escaped, the key in the hash tag that decides its slot on a cluster.

    A key over 128 bytes shows as ``{%#...}`` with a hash, an empty one as ``{%}``: no escaped text is equal to these.
    """
    data = as_bytes(key)
    tag = b"%#" + digest(data).encode() if len(data) > LONGEST else _UNSAFE.sub(_percent, data) or b"%"
    return b"%b:%b:%b:{%b}" % (prefix, escaped(name), escaped(quota), tag)


@lru_cache(maxsize=16_384)
def redis_key_of(prefix: bytes, bucket: tuple[str, str, str]) -> bytes:
    """``redis_key`` of a bucket, whose key is a ``short_key``, so that invented keys do not pile up here."""
    return redis_key(prefix, *bucket)


def _percent(match: re.Match[bytes]) -> bytes:
    return b"%%%02X" % match.group()[0]
