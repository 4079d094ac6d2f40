"""Parses the limits of a server from one of its answers.

Whatever the answer contains, nothing is raised, and the time grows no faster than its size.
No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from dataclasses import replace

from ..profiles.apis import named
from ..profiles.definitions import Profile, Refusal
from .answer_sources import Answer, Headers
from .ietf_drafts import limits_in
from .reported_limits import limits_of
from .server_limits import ServerLimit, ServerLimits
from .value_parsing import number, seconds_until, unix_time

MAX_DELAY = 900.0
"""Seconds: no answer makes a caller wait longer, unless the caller of ``parse`` says so."""

MAX_LIMITS = 64
"""The most limits of one answer."""

_MILLISECONDS = ("retry-after-ms", "x-ms-retry-after-ms")


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
    answer = Answer(status, headers, body)
    chosen = _recognised(answer, named(profile))
    age = max(number(answer.headers.get("age")) or 0.0, 0.0)
    date = unix_time(answer.headers.get("date"))
    server_now = now if date is None else date + age
    limits = [] if age > 0 else _limits(answer, chosen, server_now)
    bounded = tuple([_bounded(limit, max_delay) for limit in limits])
    refusal = _refusal(answer, chosen)
    if refusal is None:
        return ServerLimits(profile=chosen.name, limits=bounded)
    wait = _wait(answer, chosen, refusal, limits, server_now)
    return ServerLimits(
        profile=chosen.name,
        limits=bounded,
        is_throttled=True,
        retry_after=None if wait is None else min(wait, max_delay),
        scope=refusal.scope or answer.text(chosen.scopes),
        covers_all=any(answer.has(sign) for sign in chosen.covers_all),
    )


def _recognised(answer: Answer, profile: Profile) -> Profile:
    """The first candidate of a profile whose sign the answer has, or else the profile itself."""
    by_sign = profile.candidates_by_sign
    numbers = [by_sign[header] for header in answer.headers if header in by_sign]
    return profile.candidates[min(numbers)] if numbers else profile


def _refusal(answer: Answer, profile: Profile) -> Refusal | None:
    """The first kind of refusal of a profile that an answer is, if any."""
    for refusal in profile.refusals:
        if answer.status in refusal.statuses and all(answer.has(sign) for sign in refusal.signs):
            return refusal
    return None


def _wait(
    answer: Answer, profile: Profile, refusal: Refusal, limits: list[ServerLimit], server_now: float | None
) -> float | None:
    """Seconds to wait after a refusal: as it says, or until there is a unit again, or the usual time."""
    stated = [seconds_until(text, "s", None) for text in answer.texts(profile.waits)]
    stated += [seconds_until(text, "ms", None) for text in answer.texts(_MILLISECONDS)]
    stated += [seconds_until(text, "auto", server_now) for text in answer.texts("retry-after")]
    exhausted = max(filter(None, [limit.wait() for limit in limits]), default=refusal.wait)
    return next((seconds for seconds in stated if seconds is not None), exhausted)


def _limits(answer: Answer, profile: Profile, server_now: float | None) -> list[ServerLimit]:
    """The limits in the syntax of the drafts, or else all limits that the profile names, or else policies alone."""
    read = answer.headers.get
    drafts = [limits_in(read(draft), read(f"{draft}-policy")) for draft in profile.drafts]
    for limits in drafts:
        if any(limit.remaining is not None for limit in limits):
            return limits[:MAX_LIMITS]
    by_name: dict[str, ServerLimit] = {}
    for entry in profile.limits:
        for limit in limits_of(answer, entry, server_now, without=by_name):
            by_name.setdefault(limit.name, limit)
    return (list(by_name.values()) or next(filter(None, drafts), []))[:MAX_LIMITS]


def _bounded(limit: ServerLimit, max_delay: float) -> ServerLimit:
    after = limit.reset_after
    return limit if after is None or after <= max_delay else replace(limit, reset_after=max_delay)
