"""How a bucket is written as text, in memory and in Redis, so that no two buckets ever share a text.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from urllib.parse import quote, unquote_to_bytes

# The name of a limiter without a name of its own.
DEFAULT_NAME = "default"

# Bytes of a key that are kept as they are; a longer one is replaced by a hash.
LONGEST_KEY = 128

# Characters of a key that are sure to take no more bytes than ``LONGEST_KEY``.
SHORT = LONGEST_KEY // 4

# Finds a character of a key that has to be escaped.
unsafe_character = re.compile(r"[^A-Za-z0-9._~@/+=,:-]").search

# What stands for itself in a key, beside letters, digits and ``._~-``.
_SAFE = "@/+=,:"


def as_bytes(text: str) -> bytes:
    """The bytes of a text of any content, lone surrogates (bytes that were not UTF-8) included."""
    return text.encode("utf-8", "surrogatepass")


def as_key(key: str | bytes) -> str:
    """A key of any content as text; bytes that are not UTF-8 never equal any that are. ``TypeError`` otherwise."""
    if isinstance(key, str):
        return key
    if isinstance(key, bytes):
        return key.decode("utf-8", "surrogateescape")
    raise TypeError(f"a key is a str or bytes, not {key!r}: key=str(user.id)")


def digest(data: bytes) -> str:
    """A hash of 128 bits as 32 hexadecimal digits, keyed so that it is useless outside this package."""
    return hashlib.blake2b(data, digest_size=16, key=b"asgi_ratelimit").hexdigest()


@lru_cache(maxsize=1024)
def bucket_prefix(name: str, quota: str, kind: str = "") -> str:
    """The prefix that the buckets of one limiter and quota share: ``name:quota:kind``, the first two escaped.

    ``kind`` is empty or ends in a colon. It keeps quotas apart whose states mean different things: ``f60:`` is a fixed
    window of 60 seconds, and ``r60/10:`` is a rolling one in 10 parts.
    """
    return f"{escaped(name)}:{escaped(quota)}:{kind}"


def bucket(prefix: str, key: str) -> str:
    """The text that identifies a bucket: ``name:quota:kind{key}``, in printable ASCII.

    The key stands in the hash tag that decides its slot on a cluster. A key over 128 bytes shows as ``{%#...}`` with a
    hash, an empty one as ``{%}``: no escaped text is equal to these.
    """
    return f"{prefix}{{{tag_of(key)}}}"


def tag_of(key: str) -> str:
    """The hash tag of a key: the key itself, escaped where it has to be."""
    if 0 < len(key) <= SHORT and unsafe_character(key) is None:
        return key
    data = as_bytes(key)
    return "%#" + digest(data) if len(data) > LONGEST_KEY else quote(data, _SAFE) or "%"


@lru_cache(maxsize=1024)
def escaped(text: str) -> str:
    """One part of a bucket's text, with ``:``, braces and everything that is not printable as ``%XX``."""
    return quote(as_bytes(text), _SAFE).replace(":", "%3A")


def unescaped(text: str) -> str:
    """The text that a part of a bucket's text stands for; ``ValueError`` if it is none."""
    return unquote_to_bytes(text).decode("utf-8", "surrogatepass")


def key_in(text: str) -> str | None:
    """The key in a bucket's text; ``None`` if the text holds only a hash of the key."""
    tag = text[text.index("{") + 1 : -1]
    if tag.startswith("%#"):
        return None
    return "" if tag == "%" else unescaped(tag)
