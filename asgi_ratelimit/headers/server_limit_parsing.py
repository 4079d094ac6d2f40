"""Parses the limits of a server from one of its answers.

Whatever the answer contains, nothing is raised, and the time grows no faster than its size.
No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from dataclasses import replace

from ..profiles.definitions import LimitHeaders, Profile, Sources
from ..profiles.registry import named
from .answers import Answer, Headers, asked_waits, number, seconds_until, unix_time
from .ietf_drafts import limits_in, policies_in
from .server_limits import ServerLimit, ServerLimits

MAX_DELAY = 900.0
"""Seconds: no answer makes a caller wait longer, unless the caller of ``parse`` says so."""

MAX_LIMITS = 64
"""The most limits of one answer."""


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
    chosen = _recognised(answer, named(profile))
    age = max(number(answer.headers.get("age")) or 0.0, 0.0)
    date = unix_time(answer.headers.get("date"))
    server_now = now if date is None else date + age
    limits = [] if age > 0 else _limits(answer, chosen, server_now)[:MAX_LIMITS]
    report = ServerLimits(profile=chosen.name, limits=tuple([_bounded(limit, max_delay) for limit in limits]))
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


def _recognised(answer: Answer, profile: Profile) -> Profile:
    """The first candidate of a profile whose sign the answer has, or else the profile itself."""
    candidates = (each for each in profile.candidates if not answer.headers.keys().isdisjoint(each.signs))
    return next(candidates, profile)


def _bounded(limit: ServerLimit, max_delay: float) -> ServerLimit:
    after = limit.reset_after
    return limit if after is None or after <= max_delay else replace(limit, reset_after=max_delay)


def _limits(answer: Answer, profile: Profile, server_now: float | None) -> list[ServerLimit]:
    """The limits in the syntax of the drafts, or else all limits that the profile names, or else policies alone."""
    read = answer.headers.get
    drafts = [limits_in(read(draft), read(f"{draft}-policy")) for draft in profile.drafts]
    for limits in drafts:
        if any(limit.remaining is not None for limit in limits):
            return limits
    by_name: dict[str, ServerLimit] = {}
    for entry in profile.limits:
        for name in answer.names(entry.templates) if "{name}" in entry.name else [""]:
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
    limit = limit if limit is not None and limit >= 0 else None
    if limit is None and remaining is None:
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
        unit=entry.unit.replace("{name}", name),
        bucket=answer.text(entry.bucket, name),
        scope=entry.scope,
    )
    others = dict.fromkeys(policy for policy in policies if policy[0] != limit)
    return [
        main,
        *(ServerLimit(name=f"{most:g};w={seconds:g}", limit=most, window=seconds) for most, seconds in others),
    ]
