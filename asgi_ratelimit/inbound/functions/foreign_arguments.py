"""Arguments of fastapi-limiter's dependency, which people may pass to ``RateLimit``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import QuotaError
from ...quota_text import parse_quotas

SECONDS_OF = {"seconds": 1, "minutes": 60, "hours": 3600}
"""The keywords of its period, and what one of each is in seconds."""


def said_by_the_text(given: Mapping[str, Any]) -> str:
    """What to write instead of ``times=5, seconds=60``, with the same numbers."""
    return f'which the text of a quota says, RateLimit("{_quota(given)}")'


def _quota(given: Mapping[str, Any]) -> str:
    units = {unit: given[unit] for unit in SECONDS_OF if given.get(unit)}
    try:
        unit = min(units, key=SECONDS_OF.__getitem__, default="minutes")
        seconds = sum(count * SECONDS_OF[each] for each, count in units.items())
        count = seconds / SECONDS_OF[unit] if units else 1
        period = f"/{unit[:-1]}" if count == 1 else f" per {count:g} {unit}"
        text = f"{given.get('times', 2)}{period}"
        parse_quotas(text)
    except (TypeError, QuotaError):
        return "2 per 5 seconds"
    return text
