"""The stamp of a token bucket: its numbers in eight bytes, at the start of each of its stored values.

Little-endian: B the format, then the limit in 24 bits, rounded to 18 binary digits; 75 times the binary logarithm of
the burst in 12 bits; the digits of the period in microseconds, at most 65,000, in 16 bits; and how many zeros follow
them, and 1, in 4 bits. A longer period is rounded up. Read as a double, a stamp is a normal number, never infinite or
subnormal, so that equal stamps are equal numbers. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
import struct

BUCKET_FORMAT = 7

MAX_DIGITS = 65_000
"""The highest number that the digits of a period make."""

BURST_SCALE = 75

_STAMP = struct.Struct("<II")
_FLOAT, _BITS = struct.Struct("<f"), struct.Struct("<I")
_DROPPED = 6
"""The last bits of a float32, which the code of a limit leaves out."""
_LEAST = 64 << 17
"""The first bits of the float32 of 2**-63, and its code."""


def bucket_stamp(period_us: float, limit: float, burst: float) -> bytes:
    """The stamp of a token bucket with these numbers."""
    digits, zeros = math.ceil(period_us), 0
    while digits > MAX_DIGITS:
        zeros += 1
        digits = math.ceil(period_us / 10**zeros)
    period = (zeros + 1) << 16 | digits
    return _STAMP.pack(limit_code(limit) << 8 | BUCKET_FORMAT, period << 12 | burst_code(burst))


def numbers_in(stamp: bytes) -> tuple[float, float, int]:
    """The period in microseconds, the limit and the code of the burst in a stamp; the period is 0 if it is invalid."""
    low, high = _STAMP.unpack(stamp)
    zeros, digits = (high >> 28) - 1, high >> 12 & 0xFFFF
    period_us = float(digits * 10**zeros) if zeros >= 0 and low & 0xFF == BUCKET_FORMAT else 0.0
    return period_us, _limit(low >> 8), high & 0xFFF


def limit_code(limit: float) -> int:
    """The code of a limit, and of all others that are equal to 18 binary digits."""
    (bits,) = _BITS.unpack(_FLOAT.pack(limit))
    return int(bits >> _DROPPED) - _LEAST


def _limit(code: int) -> float:
    (limit,) = _FLOAT.unpack(_BITS.pack(code + _LEAST << _DROPPED))
    return float(limit)


def burst_code(burst: float) -> int:
    """The code of a burst, and of others that differ from it by less than a hundredth."""
    return round(math.log2(burst) * BURST_SCALE)


def least_burst(code: int, limit: float) -> float:
    """The burst that a code stands for: the default or a small whole one exactly, any other to about a hundredth."""
    default = max(1.0, float(math.floor(limit)))
    if burst_code(default) == code:
        return default
    about: float = 2.0 ** (code / BURST_SCALE)
    whole = float(round(about))
    if whole <= BURST_SCALE and burst_code(whole) == code:
        return whole
    return float(2.0 ** ((code - 0.5) / BURST_SCALE))
