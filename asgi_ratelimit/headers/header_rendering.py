"""The headers that report a client's limits, in several dialects, and their options.

The syntax is that of draft-ietf-httpapi-ratelimit-headers-10: structured fields (RFC 9651), whole seconds, rounded up.
No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import random
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import chain, count
from math import ceil, inf
from typing import Literal, NamedTuple, TypeAlias

from ..algorithms.take import ALGORITHMS
from ..buckets import DEFAULT_NAME, as_bytes
from ..decision import Charge, Decision, tightness
from ..errors import ConfigurationError, require_number, shows_use
from ..quotas import SECOND_US, InFlight, Quota

Header = tuple[bytes, bytes]

# The largest integer of a structured field.
LARGEST = 999_999_999_999_999

# The most sets of quotas whose policies are stored; the oldest goes first.
MAX_QUOTAS = 4096

# Renders the decisions on one request as headers of its answer.
Dialect: TypeAlias = Callable[[Sequence[Decision]], Sequence[Header]]

# The headers of answers: those of the IETF draft, ``X-RateLimit-*``, or both.
DialectName: TypeAlias = Literal["draft-10", "legacy", "both"]

# The partition key ``pk`` for a key, in base64.
Partition: TypeAlias = Callable[[str], bytes]


def draft(decisions: Sequence[Decision], pk: Partition | None = None) -> Sequence[Header]:
    """``RateLimit-Policy`` and ``RateLimit`` for all quotas of all decisions on a request, each under its own name.

    With a ``pk`` the items name the bucket that they are about.
    """
    numbers: tuple[int, ...] = ()
    for decision in decisions:
        now = decision.asked_us or decision.now_us
        for charge, state in zip(decision.take.charges, decision.stored):
            kind = type(charge.quota)
            if kind is not InFlight:  # the draft has no word for requests in flight
                units, more_us = ALGORITHMS[kind].available(charge.quota, state, now)
                numbers += units if units < LARGEST else LARGEST, ceil(more_us / SECOND_US)
    if not numbers:
        return ()
    policies = (decisions[0].take.policies if len(decisions) == 1 else None) or _policies_of(decisions)
    if pk is None:
        return policies.header, (b"ratelimit", policies.form % numbers)
    parts = [b";pk=:%b:" % pk(charge.key) for _, charge in reported(decisions)]
    policy, form = (b", ".join(map(bytes.__add__, each, parts)) for each in (policies.items, policies.forms))
    return (b"ratelimit-policy", policy), (b"ratelimit", form % numbers)


def legacy(decisions: Sequence[Decision]) -> list[Header]:
    """``X-RateLimit-Limit``, ``-Remaining`` and ``-Reset`` of the quota that binds most.

    ``-Reset`` is the Unix time in whole seconds at which that quota is as good as new.
    """
    states = [(each, state) for each in decisions for state in each.states if type(state.quota) is not InFlight]
    if not states:
        return []
    binding, state = min(states, key=lambda pair: tightness(pair[1]))
    return [
        (b"x-ratelimit-limit", b"%d" % policy(state.quota)[0]),
        (b"x-ratelimit-remaining", b"%d" % min(state.remaining, LARGEST)),
        (b"x-ratelimit-reset", b"%d" % ceil((binding.asked_us or binding.now_us) / SECOND_US + state.reset_after)),
    ]


# The names of the headers of ``legacy``.
LEGACY_NAMES = frozenset({b"x-ratelimit-limit", b"x-ratelimit-remaining", b"x-ratelimit-reset"})


def both(decisions: Sequence[Decision], pk: Partition | None = None) -> list[Header]:
    """The headers of ``draft`` and ``legacy``."""
    return [*draft(decisions, pk), *legacy(decisions)]


DIALECTS: dict[str | None, Dialect | None] = {"draft-10": draft, "legacy": legacy, "both": both, None: None}


def violated(decisions: Sequence[Decision]) -> tuple[str, ...]:
    """The names, as in the headers, of the quotas that refused."""
    pairs = reported(decisions)
    named = zip(names([(charge.quota, charge.name) for _, charge in pairs]), pairs)
    return tuple([name for name, (decision, charge) in named if charge in decision.refusing])


def reported(decisions: Sequence[Decision]) -> list[tuple[Decision, Charge]]:
    """The charges that headers report, each with its decision: all but those of requests in flight."""
    return [(each, charge) for each in decisions for charge in each.take.charges if type(charge.quota) is not InFlight]


def names(charged: Iterable[tuple[Quota, str | None]]) -> list[str]:
    """A name for each quota of these limits, in order: its own, or a longer one if an earlier quota has that name."""
    distinct: list[str] = []
    for quota, limit in charged:
        longer = f"{_printable(limit or DEFAULT_NAME)} {quota.name}"
        numbered = chain([quota.name, longer], (f"{longer} {n}" for n in count(2)))
        distinct.append(next(each for each in numbered if each not in distinct))
    return distinct


def _printable(text: str) -> str:
    """A text in the characters that a structured-field string may have; all other characters become ``%XX``."""
    return "".join(c if " " <= c <= "~" else "".join(f"%{byte:02X}" for byte in as_bytes(c)) for c in text)


def delay(seconds: float) -> Header:
    """``X-RateLimit-Delay``: the seconds that a request has waited, with three decimals, as in Azure DevOps."""
    return b"x-ratelimit-delay", b"%.3f" % seconds


def policy(quota: Quota) -> tuple[int, int]:
    """A quota as ``q`` units in ``w`` whole seconds: a burst and the time in which it comes back, or else its limit."""
    if quota.most > quota.limit:
        return _integer(quota.most), _integer(quota.most * quota.period_us / quota.limit / SECOND_US)
    window = max(1, ceil(quota.period_us / SECOND_US))
    return _integer(quota.limit * window * SECOND_US / quota.period_us), _integer(window)


def quoted(name: str) -> str:
    """``name`` as a structured-field string."""
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _integer(number: float) -> int:
    """A number rounded up, apart from the noise of a division, and within the range of a structured field."""
    return min(ceil(round(number, 6)), LARGEST)


class _Policies(NamedTuple):
    """What the headers of decisions over the same quotas have in common.

    ``header`` is ``RateLimit-Policy``, and ``form`` is ``RateLimit`` without its numbers; ``items`` and ``forms`` are
    the same two for each quota alone.
    """

    header: Header
    form: bytes
    items: list[bytes]
    forms: list[bytes]


@lru_cache(MAX_QUOTAS)
def _policies(charged: tuple[tuple[Quota, str | None], ...]) -> _Policies:
    """What the headers about these quotas, each with the name of its limit, have in common."""
    texts = list(map(quoted, names(charged)))
    items = ["{};q={};w={}".format(text, *policy(quota)).encode() for text, (quota, _) in zip(texts, charged)]
    forms = [text.replace("%", "%%").encode() + b";r=%d;t=%d" for text in texts]
    return _Policies((b"ratelimit-policy", b", ".join(items)), b", ".join(forms), items, forms)


def _policies_of(decisions: Sequence[Decision]) -> _Policies:
    """What the headers of these decisions have in common; a take that is alone keeps it for its next decision."""
    policies = _policies(tuple([(charge.quota, charge.name) for _, charge in reported(decisions)]))
    if len(decisions) == 1:
        decisions[0].take.policies = policies
    return policies


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
        if self.dialect not in list(DIALECTS):  # in a list, because what is wrong may have no hash
            raise ConfigurationError(
                f'headers must be "draft-10", "legacy", "both" or None, not {self.dialect!r}: headers="both"'
            )
        for name, value in (("near_limit", 0 if self.near_limit is None else self.near_limit), ("spread", self.spread)):
            require_number(f"{name} is a part from 0 to 1", value, 0, 1, EXAMPLE, (int, float))
        secret = self.partition_secret
        if secret is not None and not (isinstance(secret, (str, bytes)) and secret):
            raise ConfigurationError(f"partition_secret is a text that is not empty, not {secret!r}")

    def request_dialect(self) -> Dialect | None:
        """The dialect that renders the decisions on a request, with these options."""
        base, secret = DIALECTS[self.dialect], self.partition_secret
        if base is not None and base is not legacy and secret is not None:
            data = secret if isinstance(secret, bytes) else as_bytes(secret)
            pk = partial(_pk, blake2b(data, digest_size=32).digest())
            base = partial(base, pk=pk)  # type: ignore[call-arg]  # draft, or both
        return base if self.near_limit is None else partial(_with_near_limit, base, self.near_limit)

    def retry_after(self, decision: Decision) -> list[Header]:
        """``Retry-After`` of a refusal in whole seconds, at least 1, spread out; none if the take can never pass."""
        seconds = decision.retry_after * (1 + self.spread * random.random())
        return [] if seconds == inf else [(b"retry-after", b"%d" % max(ceil(seconds), 1))]


def header_options(headers: DialectName | HeaderOptions | None) -> HeaderOptions:
    """The options of a ``headers`` argument; ``ConfigurationError`` for anything else."""
    return headers if isinstance(headers, HeaderOptions) else HeaderOptions(headers)


@lru_cache(maxsize=16_384)
def _pk(secret: bytes, key: str) -> bytes:
    """The ``pk`` of a key, which reveals nothing about it."""
    return b64encode(blake2b(as_bytes(key), digest_size=9, key=secret).digest())


def _with_near_limit(base: Dialect | None, near: float, decisions: Sequence[Decision]) -> Sequence[Header]:
    headers = base(decisions) if base is not None else ()
    states = [state for each in decisions for state in each.states if type(state.quota) is not InFlight]
    is_near = any(state.remaining <= near * state.quota.most for state in states)
    return [*headers, (b"x-ratelimit-nearlimit", b"true")] if is_near else headers
