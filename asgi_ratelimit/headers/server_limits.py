"""The limits of a server, as one of its answers reports them.

Drafts 08 to 11 of the IETF have two lists of names, ``RateLimit: "default";r=50;t=30`` and ``RateLimit-Policy:
"default";q=100;w=60``. Earlier ones have lists of numbers, ``100;w=60``; their headers are in the data of profiles.
Whatever the answer contains, nothing is raised, and the time grows no faster than its size.
No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..buckets import DEFAULT_NAME
from ..profiles.definitions import LimitHeaders, Profile, ResetMeaning, Sources
from ..profiles.registry import named
from .header_values import MAX_PARTS, Answer, Headers, Item, asked_waits, number, parse_list, seconds_until, unix_time

# Seconds: no answer makes a caller wait longer, unless the caller of ``parse`` says so.
MAX_DELAY = 900.0

# The smallest share of a limit whose whole is 1: with less than this, nothing is left.
SMALLEST_SHARE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimit:
    """One limit of a server, as an answer reports it; ``None`` for what the answer does not report.

    * ``limit`` and ``remaining`` are units of ``unit``; ``cost`` is the cost of this request, and
      ``needed`` what must have been left for it, if that may be more.
    * ``window`` is in seconds; ``refill`` is units that come back each second.
    * ``reset_after`` is in seconds from now. ``reset_means`` says what it means: the ``"window end"``, when all of
      ``limit`` is available again; the ``"next unit"``, when more is available; or the ``"full refill"``, until which
      units come back one by one.
    * ``bucket`` identifies what is limited, beside ``name``; ``scope`` says whose limit it is.
    """

    name: str = DEFAULT_NAME
    limit: float | None = None
    remaining: float | None = None
    window: float | None = None
    reset_after: float | None = None
    reset_means: ResetMeaning = "window end"
    refill: float | None = None
    cost: float | None = None
    needed: float | None = None
    unit: str = "requests"
    bucket: str | None = None
    scope: str | None = None

    def wait(self, units: float | None = None) -> float | None:
        """Seconds until ``units`` are available, if nobody else takes any; ``None`` if the answer does not say.

        By default, these are as many units as this request cost, or one; for a limit that is a share, any part. Without
        a reset, the wait is the whole window. A wait that follows from a window or a refill has no bound.
        """
        if self.remaining is None:
            return None
        if units is None:
            units = self.cost or (SMALLEST_SHARE if self.unit == "share" else 1.0)
        missing = units - self.remaining
        if missing <= 0:
            return 0.0
        if self.refill:
            return missing / self.refill
        if self.reset_after is None:
            return self.window
        if self.reset_means == "full refill" and self.limit is not None and self.limit > self.remaining:
            return self.reset_after * min(missing / (self.limit - self.remaining), 1.0)
        return self.reset_after


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Everything that an answer says about its server's limits, read by the profile of that name.

    * ``is_throttled``: whether the answer is a refusal because of a limit.
    * ``retry_after``: seconds to wait after a refusal, or ``None``. If the answer names no time, it is the time until
      the exhausted limits have a unit again.
    * ``scope``: whom or what the refusal concerns, in the words of the server. ``covers_all``: it concerns all requests
      to this server, not only those of this bucket.
    """

    profile: str
    limits: tuple[ServerLimit, ...] = ()
    is_throttled: bool = False
    retry_after: float | None = None
    scope: str | None = None
    covers_all: bool = False


def parse(
    status: int,
    headers: Headers,
    *,
    profile: Profile | str = "auto",
    body: object = None,
    now: float | None = None,
    max_delay: float = MAX_DELAY,
) -> ServerLimits:
    """The limits that an answer reports, and whether it is a refusal.

    ``profile`` says what the headers mean; ``"auto"`` recognises it. ``body`` is the parsed JSON of the answer. Times
    since 1970 count from its ``Date``, or else from ``now``, the server's Unix time; without both, they are ignored.
    ``retry_after`` and ``reset_after`` are at most ``max_delay`` seconds, which means "so long, or longer". The limits
    of an answer from a cache (``Age`` above 0) are ignored.

    Raises ``ConfigurationError`` for an unknown profile, and ``ValueError`` for a ``max_delay`` that is not above 0.
    """
    if not max_delay > 0:  # true for NaN, too
        raise ValueError(f"max_delay must be seconds above 0, not {max_delay!r}: max_delay=900.0")
    answer = Answer(headers, body)
    chosen = named(profile)
    chosen = next((each for each in chosen.candidates if not answer.headers.keys().isdisjoint(each.signs)), chosen)
    age = max(number(answer.headers.get("age")) or 0.0, 0.0)
    date = unix_time(answer.headers.get("date"))
    server_now = now if date is None else date + age
    limits = [] if age > 0 else _limits(answer, chosen, server_now)[:MAX_PARTS]
    bounded = [replace(one, reset_after=max_delay) if (one.reset_after or 0.0) > max_delay else one for one in limits]
    report = ServerLimits(profile=chosen.name, limits=tuple(bounded))
    kinds = (each for each in chosen.refusals if status in each.statuses and all(map(answer.has, each.signs)))
    refusal = next(kinds, None)
    if refusal is None or refusal.is_final:
        return report
    stated = [seconds_until(text, "auto", server_now) for text in answer.texts(chosen.waits)]
    stated += asked_waits(answer.headers, server_now)
    exhausted = max(filter(None, [limit.wait() for limit in limits]), default=refusal.wait)
    wait = next((seconds for seconds in stated if seconds is not None), exhausted)
    return replace(
        report,
        is_throttled=True,
        retry_after=None if wait is None else min(wait, max_delay),
        scope=refusal.scope or answer.text(chosen.scopes),
        covers_all=any(map(answer.has, chosen.covers_all)),
    )


def _limits(answer: Answer, profile: Profile, server_now: float | None) -> list[ServerLimit]:
    """The limits in the syntax of the drafts, or else all limits that the profile names, or else policies alone."""
    read = answer.headers.get
    drafts = [limits_in(read(draft.lower()), read(f"{draft.lower()}-policy")) for draft in profile.drafts]
    for limits in drafts:
        if any(limit.remaining is not None for limit in limits):
            return limits
    by_name: dict[str, ServerLimit] = {}
    for entry in profile.limits:
        for name in answer.names(entry.sources()) if "{name}" in entry.name else [""]:
            for limit in _read(answer, entry, name, server_now):
                by_name.setdefault(limit.name, limit)
    return list(by_name.values()) or next(filter(None, drafts), [])


def _read(answer: Answer, entry: LimitHeaders, name: str, server_now: float | None) -> list[ServerLimit]:
    """The limit of a name, and others that are stated beside it; none if the answer states no units."""

    def units(sources: Sources) -> float | None:
        values = map(number, answer.texts(sources, name))
        return next((value for value in values if value is not None), None)

    limit, remaining, used = units(entry.limit), units(entry.remaining), units(entry.used)
    policies = policies_in(answer.text(entry.policies, name))
    if limit is None and policies:  # the first is in force, ``RateLimit-Limit: 100, 100;w=60``
        limit = policies[0][0]
    if (utilization := units(entry.utilization)) is not None:
        limit, remaining = 1.0, 1.0 - utilization
    if remaining is None and limit is not None and used is not None:
        remaining = limit - used
    if limit is None and remaining is not None and used is not None:
        limit = max(remaining, 0.0) + used
    if entry.exhausted is not None and answer.has(entry.exhausted, name):
        remaining = 0.0
    if (limit is None and remaining is None) or (limit is not None and limit < 0.0):  # -1 says that there is no limit
        return []
    window = (units(entry.window) or 0.0) / (1000.0 if entry.window_unit == "ms" else 1.0)
    window = next((seconds for most, seconds in policies if most == limit), window)
    refill, refill_every = units(entry.refill) or 0.0, units(entry.refill_every) or 0.0
    resets = (seconds_until(text, entry.reset_unit, server_now) for text in answer.texts(entry.reset, name))
    main = ServerLimit(
        name=entry.name.replace("{name}", name),
        limit=limit,
        remaining=None if remaining is None else max(remaining, 0.0),
        window=window if window > 0 else None,
        reset_after=next((seconds for seconds in resets if seconds is not None), None),
        reset_means=entry.reset_means,
        refill=refill / refill_every if refill > 0 and refill_every > 0 else None,
        cost=units(entry.cost),
        needed=units(entry.needed),
        unit=entry.unit.replace("{name}", name),
        bucket=answer.text(entry.bucket, name),
        scope=entry.scope,
    )
    beside = [policy for policy in dict.fromkeys(policies) if policy[0] != limit]
    others = [ServerLimit(name=f"{most:g};w={seconds:g}", limit=most, window=seconds) for most, seconds in beside]
    return [main, *others]


def limits_in(limits: str | None, policies: str | None) -> list[ServerLimit]:
    """The limits of both headers, those that ``RateLimit`` names first; none if neither is well-formed.

    An item belongs to the policy of its name and partition, or else to the first of its name: some servers send the
    partition with the policy alone.
    """
    reported, stated = _named(limits, "r"), _named(policies, "q")
    by_name = {item.value: item for item in reversed(stated)}
    by_partition = {(item.value, item.parameters.get("pk")): item for item in stated}
    own = [by_partition.get((item.value, item.parameters.get("pk"))) or by_name.get(item.value) for item in reported]
    names = {item.value for item in reported}
    others = [policy for policy in by_partition.values() if policy.value not in names]
    return [*map(_limit, reported, own), *[_limit(policy, None) for policy in others]]


def policies_in(text: str | None) -> list[tuple[float, float]]:
    """The limits and windows of a list of numbers, ``100;w=60, 5000;w=3600``, those without a window apart.

    Windows are in seconds. WHOOP writes ``window`` for ``w``.
    """
    numbers = [(item.value, item.number("w") or item.number("window")) for item in parse_list(text)]
    return [(units, window) for units, window in numbers if isinstance(units, float) and units >= 0 and window]


def _named(text: str | None, key: str) -> list[Item]:
    """The items with a name and this number. Drafts 08 and 09 allow tokens for names; later drafts, strings alone."""
    named = [item for item in parse_list(text) if isinstance(item.value, str) and item.value]
    return [item for item in named if item.number(key) is not None]


def _limit(item: Item, policy: Item | None) -> ServerLimit:
    """The limit that an item describes, and its policy in the other header."""
    both = Item(item.value, {**(policy.parameters if policy else {}), **item.parameters})
    partition = both.parameters.get("pk")
    return ServerLimit(
        name=str(item.value),
        limit=both.number("q"),
        remaining=both.number("r"),
        window=both.number("w") or None,
        reset_after=both.number("t"),
        reset_means="next unit",
        unit=str(both.parameters.get("qu", "requests")),
        bucket=None if partition is None else str(partition).strip(":"),
    )
