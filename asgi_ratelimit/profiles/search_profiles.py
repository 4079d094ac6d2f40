"""Profiles that search for limits that no answer reports: the rate, and the number of requests at once.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from dataclasses import replace

from .apis import named
from .definitions import Profile
from .hidden_limits import HiddenConcurrency, HiddenRate


def aimd(floor: float, ceiling: float, *, start: float | None = None, profile: Profile | str = "auto") -> Profile:
    """For an API that refuses above a rate that it does not report: a ``profile`` that searches for it.

    ``AdaptiveTransport`` then spaces the requests to each host evenly. The rate is from ``floor`` to ``ceiling``
    requests a second, and begins at ``start``, by default at the floor. It rises until a request is refused, then falls
    by a part, and rises more and more slowly to the refused rate (additive increase, multiplicative decrease). Limits
    that answers report, as ``profile`` reads them, count as well. Raises ``ConfigurationError``.
    """
    return replace(named(profile), hidden_rate=HiddenRate(floor, ceiling, start))


def gradient(floor: int, ceiling: int, *, start: int | None = None, profile: Profile | str = "auto") -> Profile:
    """For an API that slows down under too many requests at once: a ``profile`` that searches for the right number.

    ``AdaptiveTransport`` then has from ``floor`` to ``ceiling`` requests under way to each host, ``start`` at first,
    by default the floor. The number follows the gradient of latency: it rises as long as answers come as fast as with
    fewer requests, and falls when they are slower. Give ``aimd(...)`` as the ``profile`` to search for a rate as well.
    Raises ``ConfigurationError``.
    """
    return replace(named(profile), hidden_concurrency=HiddenConcurrency(floor, ceiling, start))
