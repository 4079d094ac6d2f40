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
from typing import Any, NamedTuple, TypeAlias

from ..algorithms import ALGORITHMS
from ..buckets import DEFAULT_NAME, as_bytes
from ..decision import Decision, tightness
from ..errors import ConfigurationError
from ..quotas import SECOND_US, Quota

Header = tuple[bytes, bytes]

LARGEST = 999_999_999_999_999
"""The largest integer of a structured field."""

MAX_QUOTAS = 4096
"""The most sets of quotas whose policies are stored; the oldest goes first."""

Dialect: TypeAlias = Callable[[Sequence[Decision]], Sequence[Header]]
"""Renders the decisions on one request as headers of its answer."""


def draft(decisions: Sequence[Decision]) -> Sequence[Header]:
    """``RateLimit-Policy`` and ``RateLimit`` for all quotas of all decisions on a request, each under its own name."""
    policies = _policies_of(decisions)
    limits, forms = [], iter(policies.forms)
    for decision in decisions:
        now = decision.asked_us or decision.now_us
        for state, (form, quota, available) in zip(decision.stored, forms):
            units, more_us = available(quota, state, now)
            limits.append(form % (units if units < LARGEST else LARGEST, ceil(more_us / SECOND_US)))
    return policies.header, (b"ratelimit", b", ".join(limits))


def legacy(decisions: Sequence[Decision]) -> list[Header]:
    """``X-RateLimit-Limit``, ``-Remaining`` and ``-Reset`` of the quota that binds most.

    ``-Reset`` is the Unix time in whole seconds at which that quota is as good as new.
    """
    binding = decisions[0] if len(decisions) == 1 else min(decisions, key=tightness)
    state = binding.binding
    return [
        (b"x-ratelimit-limit", b"%d" % policy(state.quota)[0]),
        (b"x-ratelimit-remaining", b"%d" % min(state.remaining, LARGEST)),
        (b"x-ratelimit-reset", b"%d" % math.ceil((binding.asked_us or binding.now_us) / SECOND_US + state.reset_after)),
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
    if dialect is legacy:
        return dialect(decisions)
    (_, policies), (_, limits), *others = dialect(decisions)
    parts = [b";pk=:%b:" % pk(charge.key) for decision in decisions for charge in decision.charges]
    return [
        (b"ratelimit-policy", b", ".join(map(bytes.__add__, _items(policies), parts))),
        (b"ratelimit", b", ".join(map(bytes.__add__, _items(limits), parts))),
        *others,
    ]


def _items(value: bytes) -> list[bytes]:
    """The items of a list that ``draft`` has joined: each begins with a quoted name, and has parameters that do not."""
    return [b'"' + item for item in value[1:].split(b', "')]


def violated(decisions: Sequence[Decision]) -> tuple[str, ...]:
    """The names, as in the headers, of the quotas that refused."""
    refused, names = [], iter(_policies_of(decisions).names)
    for decision in decisions:
        refusing = decision.refusing
        for charge in decision.take.charges:
            name = next(names)
            if charge in refusing:
                refused.append(name)
    return tuple(refused)


def names(decisions: Sequence[Decision]) -> list[str]:
    """A name for each quota of the decisions, in order: its own, or a longer one if an earlier quota has that name."""
    distinct: list[str] = []
    for decision in decisions:
        for charge in decision.charges:
            longer = f"{_printable(charge.name or DEFAULT_NAME)} {charge.quota.name}"
            each = chain([charge.quota.name, longer], (f"{longer} {n}" for n in count(2)))
            distinct.append(next(name for name in each if name not in distinct))
    return distinct


def _printable(text: str) -> str:
    """A text in the characters that a structured-field string may have; all other characters become ``%XX``."""
    return "".join(c if " " <= c <= "~" else "".join(f"%{byte:02X}" for byte in as_bytes(c)) for c in text)


def retry_after(decision: Decision, spread: float = 0.0) -> list[Header]:
    """``Retry-After`` in whole seconds, at least 1, longer by the part ``spread``; none if the take can never pass."""
    seconds = decision.retry_after * (1 + spread)
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


def quoted(name: str) -> str:
    """``name`` as a structured-field string."""
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _integer(number: float) -> int:
    """A number rounded up, apart from the noise of a division, and within the range of a structured field."""
    return min(math.ceil(round(number, 6)), LARGEST)


class _Policies(NamedTuple):
    """What the headers of decisions over the same quotas have in common.

    For each quota, ``forms`` has the form of its item in ``RateLimit``, the quota, and the function that fills it.
    """

    header: Header
    names: Sequence[str]
    forms: tuple[tuple[bytes, Quota, Callable[[Quota, Any, float], tuple[int, float]]], ...]


_policies: dict[tuple[object, ...], _Policies] = {}
"""By the identities of the quotas, which are kept alive here, and the names of their limits."""


def _policies_of(decisions: Sequence[Decision]) -> _Policies:
    key: list[object] = []
    for decision in decisions:
        for charge in decision.take.charges:
            key.append(id(charge.quota))  # a comprehension is one more call
            key.append(charge.name)
    found = tuple(key)
    return _policies.get(found) or _stored_policies(found, decisions)


def _stored_policies(key: tuple[object, ...], decisions: Sequence[Decision]) -> _Policies:
    """What the headers of these decisions have in common, which is stored under this key."""
    quotas = [charge.quota for decision in decisions for charge in decision.charges]
    named = names(decisions)
    texts = list(map(quoted, named))
    policies = [f"{text};q={policy(quota)[0]};w={policy(quota)[1]}".encode() for text, quota in zip(texts, quotas)]
    forms = [text.replace("%", "%%").encode() + b";r=%d;t=%d" for text in texts]
    functions = [ALGORITHMS[type(quota)].available for quota in quotas]
    if len(_policies) >= MAX_QUOTAS:
        with suppress(RuntimeError):  # another thread is replacing it
            _policies.pop(next(iter(_policies)), None)
    stored = _Policies((b"ratelimit-policy", b", ".join(policies)), named, tuple(zip(forms, quotas, functions)))
    return _policies.setdefault(key, stored)
