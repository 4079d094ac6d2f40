"""The headers that report a client's limits.

The syntax is that of draft-ietf-httpapi-ratelimit-headers-10: structured fields (RFC 9651), whole seconds, rounded up.
No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, count
from math import ceil
from typing import TypeAlias, TypeVar

from ..algorithms import PLAIN_PARTS, Outcome, available
from ..buckets import DEFAULT_NAME, as_bytes
from ..decision import Decision, QuotaState, tightness
from ..errors import ConfigurationError
from ..quotas import SECOND_US, Quota, TokenBucket

Header = tuple[bytes, bytes]

LARGEST = 999_999_999_999_999
"""The largest integer of a structured field."""

MAX_QUOTAS = 4096
"""The most quotas, and sets of quotas, whose headers are stored; the oldest goes first."""

MAX_RENDERED = 256
"""The most headers that are stored for each quota; the oldest go first."""

MAX_STEPS = 64
"""The most steps of the level in one unit, if headers are stored by step: with more, hardly any would come again."""

Dialect: TypeAlias = Callable[[Sequence[Decision]], Sequence[Header]]
"""Renders the decisions on one request as headers of its answer."""

K = TypeVar("K")
T = TypeVar("T")


def draft(decisions: Sequence[Decision]) -> Sequence[Header]:
    """``RateLimit-Policy`` and ``RateLimit`` for all quotas of all decisions on a request, each under its own name."""
    if len(decisions) == 1 and len(decisions[0].states) == 1:
        state = decisions[0].states[0]
        return headers_of(state.quota).of_numbers(state.remaining, math.ceil(state.more_after))
    states = [state for each in decisions for state in each.states]
    policies, all_headers = _combined_headers(decisions, states)
    limits = b", ".join([each.limit(state) for each, state in zip(all_headers, states)])
    return (policies, (b"ratelimit", limits))


def legacy(decisions: Sequence[Decision]) -> list[Header]:
    """``X-RateLimit-Limit``, ``-Remaining`` and ``-Reset`` of the quota that binds most.

    ``-Reset`` is the Unix time in whole seconds at which that quota is as good as new.
    """
    binding = decisions[0] if len(decisions) == 1 else min(decisions, key=tightness)
    return [
        (b"x-ratelimit-limit", headers_of(binding.quota).units),
        (b"x-ratelimit-remaining", b"%d" % min(binding.remaining, LARGEST)),
        (b"x-ratelimit-reset", b"%d" % math.ceil(binding.now_us / SECOND_US + binding.reset_after)),
    ]


LEGACY_NAMES = frozenset({b"x-ratelimit-limit", b"x-ratelimit-remaining", b"x-ratelimit-reset"})
"""The names of the headers of ``legacy``."""


def both(decisions: Sequence[Decision]) -> list[Header]:
    """The headers of ``draft`` and ``legacy``."""
    return [*draft(decisions), *legacy(decisions)]


DIALECTS: dict[str, Dialect] = {"draft-10": draft, "legacy": legacy, "both": both}

Partition: TypeAlias = Callable[[str], bytes]
"""The partition key ``pk`` for a key, in base64."""


def dialect(name: str | None, pk: Partition | None = None) -> Dialect | None:
    """The dialect of that name, ``None`` for no headers; ``ConfigurationError`` for an unknown name.

    With a ``pk`` the items of the draft's headers name the bucket that they are about.
    """
    if name is None:
        return None
    if not isinstance(name, str) or name not in DIALECTS:
        raise ConfigurationError(f'headers must be "draft-10", "legacy", "both" or None, not {name!r}: headers="both"')
    return DIALECTS[name] if pk is None else partial(_with_partitions, DIALECTS[name], pk)


def _with_partitions(dialect: Dialect, pk: Partition, decisions: Sequence[Decision]) -> Sequence[Header]:
    """The headers of a dialect, in which the draft's items have their ``pk``."""
    states = [state for decision in decisions for state in decision.states]
    keys = [charge.key for decision in decisions if decision.take for charge in decision.take.charges]
    if dialect is legacy or len(keys) != len(states):
        return dialect(decisions)
    all_headers = list(map(QuotaHeaders, [state.quota for state in states], names(decisions)))
    partitions = [b";pk=:%b:" % pk(key) for key in keys]
    policies = b", ".join([each.policy + part for each, part in zip(all_headers, partitions)])
    limits = [each.limit(state) + part for each, state, part in zip(all_headers, states, partitions)]
    others = [header for header in dialect(decisions) if not header[0].startswith(b"ratelimit")]
    return [(b"ratelimit-policy", policies), (b"ratelimit", b", ".join(limits)), *others]


def names(decisions: Sequence[Decision]) -> list[str]:
    """A name for each quota of the decisions, in order: its own, or a longer one if an earlier quota has that name."""
    distinct: list[str] = []
    for decision in decisions:
        for number, state in enumerate(decision.states):
            limiter = (decision.take.charges[number].name if decision.take else None) or DEFAULT_NAME
            longer = f"{_printable(limiter)} {state.quota.name}"
            each = chain([state.quota.name, longer], (f"{longer} {n}" for n in count(2)))
            distinct.append(next(name for name in each if name not in distinct))
    return distinct


def _printable(text: str) -> str:
    """A text in the characters that a structured-field string may have; all other characters become ``%XX``."""
    return "".join(c if " " <= c <= "~" else "".join(f"%{byte:02X}" for byte in as_bytes(c)) for c in text)


def retry_after(decision: Decision, spread: float = 0.0) -> list[Header]:
    """``Retry-After`` in whole seconds, at least 1, longer by the part ``spread``; none if the take can never pass."""
    return retry_after_seconds(decision.retry_after * (1 + spread) if spread else decision.retry_after)


def retry_after_seconds(seconds: float) -> list[Header]:
    """``Retry-After`` for a wait in seconds."""
    if seconds == math.inf:
        return []
    whole = math.ceil(seconds)
    return [(b"retry-after", b"%d" % (whole if whole > 1 else 1))]


def delay(seconds: float) -> Header:
    """``X-RateLimit-Delay``: the seconds that a request has waited, with three decimals, as in Azure DevOps."""
    return b"x-ratelimit-delay", b"%.3f" % seconds


def policy(quota: Quota) -> tuple[int, int]:
    """A quota as ``q`` units in ``w`` whole seconds: never less than may really pass, and at the true rate."""
    if quota.most > quota.limit:
        return _integer(quota.most), _integer(quota.most * quota.period_us / quota.limit / SECOND_US)
    window = max(1, math.ceil(quota.period_us / SECOND_US))
    return _integer(quota.limit * window * SECOND_US / quota.period_us), _integer(window)


def header_step(quota: TokenBucket) -> float:
    """The step of the level, counted downwards from the burst level, within which no number in a header changes.

    The units left change at multiples of the period; the whole seconds until one more change, from each of these on, at
    multiples of what drains in a second. 0 if a step would be too short to be of use, or if a number is not whole.
    """
    second = quota.limit * SECOND_US
    numbers = [quota.period_us, quota.burst_level, min(second, quota.period_us)]
    if not quota.is_simple or not all(number.is_integer() for number in numbers):
        return 0.0
    step = math.gcd(*map(int, numbers))
    return float(step) if quota.period_us <= step * MAX_STEPS else 0.0


def quoted(name: str) -> str:
    """``name`` as a structured-field string."""
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _integer(number: float) -> int:
    """A number rounded up, apart from the noise of a division, and within the range of a structured field."""
    return min(math.ceil(round(number, 6)), LARGEST)


class QuotaHeaders:
    """The headers of a quota under a name, which lack only the units left.

    Recently rendered headers are stored, because the same few numbers come again and again.
    """

    __slots__ = ("_by_step", "_form", "_policy_header", "_rendered", "_step", "policy", "quota", "units")

    def __init__(self, quota: Quota, name: str) -> None:
        text, (units, window) = quoted(name), policy(quota)
        self.quota = quota
        self.units = b"%d" % units
        self.policy = f"{text};q={units};w={window}".encode()
        self._policy_header = (b"ratelimit-policy", self.policy)
        self._form = text.replace("%", "%%").encode() + b";r=%d;t=%d"
        self._rendered: dict[tuple[float, int], tuple[Header, ...]] = {}
        """By the units left and the seconds until one more."""
        self._step = header_step(quota) if isinstance(quota, TokenBucket) else 0.0
        self._by_step: dict[float, tuple[Header, ...]] = {}
        """The same headers by the step of the level, which is found in a fifth of the time."""

    def limit(self, state: QuotaState) -> bytes:
        """The item of ``RateLimit``."""
        left = state.remaining
        return self._form % (left if left < LARGEST else LARGEST, math.ceil(state.more_after))

    def of_outcome(self, outcome: Outcome) -> Sequence[Header]:
        """``draft`` for a request with one charge of this quota, as most requests are, without a ``Decision``."""
        if len(outcome) == PLAIN_PARTS:
            level = outcome[4]
            if not self._step:
                return self._of_level(level)
            step = -level // self._step
            return self._by_step.get(step) or _stored(self._by_step, step, self._of_level(level), MAX_RENDERED)
        units, more_us, _ = outcome[0][2]
        return self.of_numbers(units, ceil(more_us / SECOND_US))

    def _of_level(self, level: float) -> tuple[Header, ...]:
        units, more_us = available(self.quota, level)  # type: ignore[arg-type]  # it is a token bucket
        return self.of_numbers(units, ceil(more_us / SECOND_US))

    def of_numbers(self, left: float, seconds: int) -> tuple[Header, ...]:
        """The headers for this quota alone: ``left`` units, and one more in ``seconds``."""
        return self._rendered.get((left, seconds)) or self._render((left, seconds))

    def _render(self, numbers: tuple[float, int]) -> tuple[Header, ...]:
        left, seconds = numbers
        limit = self._form % (left if left < LARGEST else LARGEST, seconds)
        return _stored(self._rendered, numbers, (self._policy_header, (b"ratelimit", limit)), MAX_RENDERED)


_headers: dict[int, QuotaHeaders] = {}
"""By the identity of the quota, which costs less than its hash. They hold their quota, so no other has its id."""


def headers_of(quota: Quota) -> QuotaHeaders:
    """The headers of a quota under its own name; one object for all callers."""
    return _headers.get(id(quota)) or _stored(_headers, id(quota), QuotaHeaders(quota, quota.name))


_Combined: TypeAlias = tuple[Header, tuple[QuotaHeaders, ...]]
"""The header for the policies of several quotas, and those of each."""

_combined: dict[tuple[object, ...], _Combined] = {}
"""By the identities of the quotas, and by the names of their limiters if quotas have equal names."""


def _combined_headers(decisions: Sequence[Decision], states: Sequence[QuotaState]) -> _Combined:
    key: tuple[object, ...] = tuple([id(state.quota) for state in states])
    combined = _combined.get(key)
    if combined is None and len({state.quota.name for state in states}) < len(states):
        key = (*key, *map(_limiters, decisions))
        combined = _combined.get(key)
    if combined is None:
        all_headers = tuple(map(QuotaHeaders, [state.quota for state in states], names(decisions)))
        policies = (b"ratelimit-policy", b", ".join([each.policy for each in all_headers]))
        combined = _stored(_combined, key, (policies, all_headers))
    return combined


def _stored(cache: dict[K, T], key: K, value: T, most: int = MAX_QUOTAS) -> T:
    """``value``, after storing it in the cache, where it may replace the oldest entry."""
    if len(cache) >= most:
        with suppress(RuntimeError):  # another thread is replacing it
            cache.pop(next(iter(cache)), None)
    cache[key] = value
    return value


def _limiters(decision: Decision) -> tuple[str | None, ...]:
    """The limiter of each charge, if it is known."""
    return tuple([charge.name for charge in decision.charges])
