"""A bounded number of bucket values in memory, and which of them goes for a new one."""

from .bucket_values import UNUSED, packed_in, value_of
from .eviction import LOOKS, BoundedValues

__all__ = [
    "LOOKS",
    "UNUSED",
    "BoundedValues",
    "pack_plain",
    "packed_in",
    "unpack_plain",
    "value_of",
]
