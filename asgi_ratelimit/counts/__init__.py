"""What a process counts of its decisions, and publishes once a second, so that all processes can be summed up."""

from .minutes import LASTS, MINUTES, Minute, RuleMinute, document_of
from .publishing import Publisher, publish, stop_publishing
from .rule_counts import Counts, RuleCounts, counts_of
from .sources import outbound_sources
from .waits import BOUNDS_NS, WaitTimes

__all__ = [
    "BOUNDS_NS",
    "LASTS",
    "MINUTES",
    "Counts",
    "Minute",
    "Publisher",
    "RuleCounts",
    "RuleMinute",
    "WaitTimes",
    "counts_of",
    "document_of",
    "outbound_sources",
    "publish",
    "stop_publishing",
]
