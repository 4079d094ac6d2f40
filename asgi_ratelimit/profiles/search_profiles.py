"""Profiles that search for what no answer reports: the rate, and the number of requests at once, that an API bears.

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
    requests a second, and begins at ``start``, by default at the floor. It rises until a request is refused, falls by
    a part then, and rises to what was refused more and more slowly (additive increase, multiplicative decrease).
    What answers report, as ``profile`` reads them, counts as well. Raises ``ConfigurationError``.
    """
    return replace(named(profile), hidden_rate=HiddenRate(floor, ceiling, start))


def gradient(floor: int, ceiling: int, *, start: int | None = None, profile: Profile | str = "auto") -> Profile:
    """For an API that slows down under too many requests at once: a ``profile`` that searches for how many it bears.

    ``AdaptiveTransport`` then has from ``floor`` to ``ceiling`` requests under way to each host, ``start`` at first,
    by default the floor. The number follows the gradient of latency: it rises as long as answers come as fast as with
    fewer requests, and falls when they are slower. Give ``aimd(...)`` as the ``profile`` to search for a rate as well.
    Raises ``ConfigurationError``.
    """
    return replace(named(profile), hidden_concurrency=HiddenConcurrency(floor, ceiling, start))
