"""At most so many values of buckets in memory, and which of them goes for a new one."""

from .bucket_values import PLAIN_VALUE_SIZE, UNUSED, pack_plain, packed_in, unpack_plain, value_of
from .eviction import LOOKS, BoundedValues

__all__ = [
    "LOOKS",
    "PLAIN_VALUE_SIZE",
    "UNUSED",
    "BoundedValues",
    "pack_plain",
    "packed_in",
    "unpack_plain",
    "value_of",
]
