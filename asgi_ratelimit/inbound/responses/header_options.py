"""Options of the headers with which answers report limits."""

from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from typing import Literal, TypeAlias

from ...argument_errors import shows_use
from ...buckets import as_bytes
from ...decision import Decision
from ...errors import ConfigurationError
from ...headers import Dialect, Header, Partition, dialect, retry_after

DialectName: TypeAlias = Literal["draft-10", "legacy", "both"]
"""The headers of answers: those of the IETF draft, ``X-RateLimit-*``, or both."""

EXAMPLE = 'HeaderOptions("both", near_limit=0.2, spread=0.1)'


@shows_use(EXAMPLE)
@dataclass(frozen=True, slots=True)
class HeaderOptions:
    """The headers of every answer: ``dialect`` as in ``headers=``, and options that are off by default.

    ``near_limit=0.2`` adds ``X-RateLimit-NearLimit: true`` once no more than a fifth of what a quota grants at once is
    left. ``spread=0.1`` makes ``Retry-After`` later by up to a tenth, at random and never earlier, so that clients that
    are refused together do not come back together. With a ``partition_secret``, the items of ``RateLimit-Policy`` and
    ``RateLimit`` identify their bucket in ``pk``: a hash of the key under that secret, which is the same in all
    processes.

    Raises ``ConfigurationError`` for invalid options.
    """

    dialect: DialectName | None = "draft-10"
    _: KW_ONLY
    near_limit: float | None = None
    spread: float = 0.0
    partition_secret: str | bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        dialect(self.dialect)
        if self.near_limit is not None:
            _require_fraction("near_limit", self.near_limit)
        _require_fraction("spread", self.spread)
        if self.partition_secret is not None and not (
            isinstance(self.partition_secret, (str, bytes)) and self.partition_secret
        ):
            raise ConfigurationError(f"partition_secret is a text that is not empty, not {self.partition_secret!r}")

    def request_dialect(self) -> Dialect | None:
        """The dialect that renders the decisions on a request, with these options."""
        secret, near = self.partition_secret, self.near_limit
        base = dialect(self.dialect, None if secret is None else _partition(secret))
        return base if near is None else _with_near_limit(base, near)

    def retry_after(self, decision: Decision) -> list[Header]:
        """``Retry-After`` of a refusal, spread out."""
        return retry_after(decision, self.spread * random.random() if self.spread else 0.0)


def header_options(headers: DialectName | HeaderOptions | None) -> HeaderOptions:
    """The options of a ``headers`` argument; ``ConfigurationError`` for anything else."""
    return headers if isinstance(headers, HeaderOptions) else HeaderOptions(headers)


def _partition(secret: str | bytes) -> Partition:
    """A function from keys to their ``pk``, which reveals nothing about the key."""
    data = secret if isinstance(secret, bytes) else as_bytes(secret)
    under = hashlib.blake2b(data, digest_size=32).digest()

    @lru_cache(maxsize=16_384)
    def pk(key: str) -> bytes:
        return base64.b64encode(hashlib.blake2b(as_bytes(key), digest_size=9, key=under).digest())

    return pk


def _with_near_limit(base: Dialect | None, near: float) -> Dialect:
    def rendered(decisions: Sequence[Decision]) -> Sequence[Header]:
        headers = base(decisions) if base is not None else ()
        states = [state for decision in decisions for state in decision.states]
        is_near = any(state.remaining <= near * state.quota.most for state in states)
        return [*headers, (b"x-ratelimit-nearlimit", b"true")] if is_near else headers

    return rendered


def _require_fraction(what: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ConfigurationError(f"{what} is a part from 0 to 1, not {value!r}: {EXAMPLE}")
