"""Live overrides: limits that are changed by their names while programs run, for all processes on one store."""

from .live_quotas import LiveQuotas, ReadQuotas, counted, exempt, limit_text, quotas_under
from .override_document import OFF, SHADOW, Change, Override
from .override_watch import NO_OVERRIDES, live_overrides, names_of_limits, subscribe
from .overrides import Overrides, checked_by
from .repeating import EVERY, Repeating

__all__ = [
    "EVERY",
    "NO_OVERRIDES",
    "OFF",
    "SHADOW",
    "Change",
    "LiveQuotas",
    "Override",
    "Overrides",
    "ReadQuotas",
    "Repeating",
    "checked_by",
    "counted",
    "exempt",
    "limit_text",
    "live_overrides",
    "names_of_limits",
    "quotas_under",
    "subscribe",
]
