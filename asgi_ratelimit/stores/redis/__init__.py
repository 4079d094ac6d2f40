"""The store that many processes share: buckets in Redis, decided there by a script, many takes in one call."""

from .store import RedisStore

__all__ = ["RedisStore"]
