"""An answer of a real API, and what it means."""

from __future__ import annotations

from dataclasses import dataclass, field

from asgi_ratelimit.headers import ServerLimit, ServerLimits

DATE = "Thu, 26 Mar 2026 15:59:30 GMT"
SERVER_NOW = 1_774_540_770.0


@dataclass(frozen=True, kw_only=True)
class Example:
    """An answer of an API, and what a profile reads in it; ``auto`` says whether that profile is recognised."""

    profile: str
    headers: dict[str, str]
    expected: ServerLimits
    status: int = 200
    body: object = field(default=None)
    auto: bool = True


def read(
    *limits: ServerLimit, throttled: bool = False, retry_after: float | None = None, **rest: object
) -> ServerLimits:
    """What is expected of an answer."""
    return ServerLimits(profile="", limits=limits, is_throttled=throttled, retry_after=retry_after, **rest)  # type: ignore[arg-type]


def refused(retry_after: float | None, *limits: ServerLimit, **rest: object) -> ServerLimits:
    """What is expected of a refusal."""
    return read(*limits, throttled=True, retry_after=retry_after, **rest)
