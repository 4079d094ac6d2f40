"""The headers that tell a client its limits, and the way back.

The syntax is that of draft-ietf-httpapi-ratelimit-headers-10: structured fields (RFC 9651), whole seconds, rounded up.
No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, count
from typing import TypeAlias

from .buckets import DEFAULT_NAME, as_bytes
from .decision import Decision, QuotaState
from .errors import ConfigurationError
from .quotas import SECOND_US, Quota

Header = tuple[bytes, bytes]

LARGEST = 999_999_999_999_999
"""The largest integer of a structured field."""

MAX_DESCRIBED = 4096
"""How many quotas' policies are kept ready, at the most."""


Dialect: TypeAlias = Callable[[Sequence[Decision]], Sequence[Header]]
"""How the decisions on one request are told in the headers of its answer."""


def render(decision: Decision) -> list[Header]:
    """``RateLimit-Policy`` and ``RateLimit`` for all quotas of a decision."""
    return list(draft((decision,)))


def draft(decisions: Sequence[Decision]) -> Sequence[Header]:
    """``RateLimit-Policy`` and ``RateLimit`` for all quotas of all decisions on a request, each under its own name."""
    if len(decisions) == 1 and len(decisions[0].states) == 1:
        state = decisions[0].states[0]
        return getattr(state, "rendered", None) or _rendered(state)
    states = [state for each in decisions for state in each.states]
    policies, all_described = _described_together(decisions, states)
    standings = b", ".join([described.standing(state) for described, state in zip(all_described, states)])
    return (policies, (b"ratelimit", standings))


def _rendered(state: QuotaState) -> tuple[Header, ...]:
    """The headers of one quota, kept with its state: what buckets have in common that were full is told again."""
    state.rendered = _described(state.quota).told(state)
    return state.rendered


def legacy(decisions: Sequence[Decision]) -> list[Header]:
    """``X-RateLimit-Limit``, ``-Remaining`` and ``-Reset`` of the quota that binds most.

    ``-Reset`` is the Unix time in whole seconds at which that quota is as good as new.
    """
    binding = decisions[0] if len(decisions) == 1 else min(decisions, key=_how_much_is_left)
    return [
        (b"x-ratelimit-limit", _described(binding.quota).units),
        (b"x-ratelimit-remaining", b"%d" % min(binding.remaining, LARGEST)),
        (b"x-ratelimit-reset", b"%d" % math.ceil(binding.now_us / SECOND_US + binding.reset_after)),
    ]


def both(decisions: Sequence[Decision]) -> list[Header]:
    """What ``draft`` and ``legacy`` say."""
    return [*draft(decisions), *legacy(decisions)]


DIALECTS: dict[str, Dialect] = {"draft-10": draft, "legacy": legacy, "both": both}

Partition: TypeAlias = Callable[[str], bytes]
"""What stands for a key in ``pk``, in base64."""


def dialect(name: str | None, pk: Partition | None = None) -> Dialect | None:
    """The dialect of that name, ``None`` for no headers; ``ConfigurationError`` for one that is not known.

    With a ``pk`` the items of the draft's headers say whose bucket they are about.
    """
    if name is None or name in DIALECTS:
        told = None if name is None else DIALECTS[name]
        return told if told is None or pk is None else partial(_with_partitions, told, pk)
    raise ConfigurationError(f'headers must be "draft-10", "legacy", "both" or None, not {name!r}: headers="both"')


def _with_partitions(told: Dialect, pk: Partition, decisions: Sequence[Decision]) -> Sequence[Header]:
    """The headers of a dialect, in which the items of the draft's are written out with their ``pk``."""
    states = [state for decision in decisions for state in decision.states]
    keys = [charge.key for decision in decisions if decision.take for charge in decision.take.charges]
    if told is legacy or len(keys) != len(states):
        return told(decisions)
    described = list(map(_Described, [state.quota for state in states], names(decisions)))
    marks = [b";pk=:%b:" % pk(key) for key in keys]
    policies = b", ".join([each.policy + mark for each, mark in zip(described, marks)])
    standings = [each.standing(state) + mark for each, state, mark in zip(described, states, marks)]
    others = [header for header in told(decisions) if not header[0].startswith(b"ratelimit")]
    return [(b"ratelimit-policy", policies), (b"ratelimit", b", ".join(standings)), *others]


def names(decisions: Sequence[Decision]) -> list[str]:
    """A name for each quota of the decisions, in their order: its own, or, where an earlier one has that, a longer."""
    given: list[str] = []
    for decision in decisions:
        for number, state in enumerate(decision.states):
            limiter = (decision.take.charges[number].name if decision.take else None) or DEFAULT_NAME
            longer = f"{_printable(limiter)} {state.quota.name}"
            each = chain([state.quota.name, longer], (f"{longer} {n}" for n in count(2)))
            given.append(next(name for name in each if name not in given))
    return given


def _printable(text: str) -> str:
    """A text in the characters that a structured-field string may have, all others as ``%XX``."""
    return "".join(c if " " <= c <= "~" else "".join(f"%{byte:02X}" for byte in as_bytes(c)) for c in text)


def _how_much_is_left(decision: Decision) -> tuple[bool, float, int]:
    """Refusals before the rest, the longest of them first, then what has the least left."""
    return decision.allowed, -decision.retry_after, decision.remaining


def retry_after(decision: Decision, later: float = 0.0) -> list[Header]:
    """``Retry-After`` in whole seconds, at least 1, ``later`` by that part of itself; none for what can never pass."""
    seconds = decision.retry_after
    if seconds == math.inf:
        return []
    whole = math.ceil(seconds * (1 + later) if later else seconds)
    return [(b"retry-after", b"%d" % (whole if whole > 1 else 1))]


def policy(quota: Quota) -> tuple[int, int]:
    """A quota as ``q`` units in ``w`` whole seconds: never less than what may really pass, and at the true rate."""
    if quota.most > quota.limit:
        return _integer(quota.most), _integer(quota.most * quota.period_us / quota.limit / SECOND_US)
    window = max(1, math.ceil(quota.period_us / SECOND_US))
    return _integer(quota.limit * window * SECOND_US / quota.period_us), _integer(window)


def quoted(name: str) -> str:
    """``name`` as a structured-field string."""
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


class _Described:
    """A quota under a name: its ``policy``, its ``units``, and a form for what is left of it and when there is more."""

    __slots__ = ("_last", "form", "policy", "policy_header", "quota", "units")

    def __init__(self, quota: Quota, name: str) -> None:
        self.quota = quota
        text, (units, window) = quoted(name), policy(quota)
        self.units = b"%d" % units
        self.policy = f"{text};q={units};w={window}".encode()
        self.policy_header = (b"ratelimit-policy", self.policy)
        self.form = text.replace("%", "%%").encode() + b";r=%d;t=%d"
        self._last: tuple[int, int, tuple[Header, ...]] = (-1, -1, ())

    def standing(self, state: QuotaState) -> bytes:
        left = state.remaining
        return self.form % (left if left < LARGEST else LARGEST, math.ceil(state.more_after))

    def told(self, state: QuotaState) -> tuple[Header, ...]:
        """The headers for this quota alone: those of last time, where they say the same, as in a flood of refusals."""
        left, seconds = state.remaining, math.ceil(state.more_after)
        last = self._last
        if last[0] == left and last[1] == seconds:
            return last[2]
        standing = self.form % (left if left < LARGEST else LARGEST, seconds)
        headers = (self.policy_header, (b"ratelimit", standing))
        self._last = (left, seconds, headers)  # in one piece, for other threads
        return headers


_described_before: dict[int, _Described] = {}
"""By the identity of the quota, which costs less than its hash; the quota is kept, so that no other takes that over."""


def _described(quota: Quota) -> _Described:
    described = _described_before.get(id(quota))
    if described is None:
        if len(_described_before) >= MAX_DESCRIBED:
            _described_before.clear()
        described = _described_before[id(quota)] = _Described(quota, quota.name)
    return described


_Together: TypeAlias = tuple[Header, tuple[_Described, ...]]
"""The header for the policies of several quotas, and each of them."""

_together_before: dict[tuple[object, ...], _Together] = {}
"""By the identities of the quotas, as above, and by the names of their limiters where those of quotas are equal."""


def _described_together(decisions: Sequence[Decision], states: Sequence[QuotaState]) -> _Together:
    key: tuple[object, ...] = tuple([id(state.quota) for state in states])
    together = _together_before.get(key)
    if together is None and len({state.quota.name for state in states}) < len(states):
        key = (*key, *map(_limiters, decisions))
        together = _together_before.get(key)
    if together is None:
        if len(_together_before) >= MAX_DESCRIBED:
            _together_before.clear()
        described = tuple(map(_Described, [state.quota for state in states], names(decisions)))
        together = (b"ratelimit-policy", b", ".join([each.policy for each in described])), described
        _together_before[key] = together
    return together


def _limiters(decision: Decision) -> tuple[str | None, ...]:
    """The limiter of each charge, where that is known."""
    return tuple([charge.name for charge in decision.take.charges]) if decision.take else ()


def _integer(number: float) -> int:
    """A number rounded up, but for the noise of a division, and kept within what a structured field can hold."""
    return min(math.ceil(round(number, 6)), LARGEST)
