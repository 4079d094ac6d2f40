"""Live overrides: limits that are changed by their names while programs run, for all processes on one store."""

from ..counts.ticker import EVERY
from .document import OFF, SHADOW, Change, Override, checked_by
from .overrides import Overrides
from .watching import (
    NO_OVERRIDES,
    LiveQuotas,
    ReadQuotas,
    Repeating,
    counted,
    exempt,
    limit_text,
    live_overrides,
    names_of_limits,
    quotas_under,
    subscribe,
)

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
