"""The counts of a process's decisions, which it publishes once a second, so that all processes can be summed up."""

from .minutes import ALL, MINUTES, Part, Recording, Row, added, document_of, part_of
from .publishing import outbound_sources, publish, publish_in_process, publish_on, reset_publishers, stop_publishing
from .rule_counts import NONE, Counts, Numbers, WaitTimes, counts_of

__all__ = [
    "ALL",
    "MINUTES",
    "NONE",
    "Counts",
    "Numbers",
    "Part",
    "Recording",
    "Row",
    "WaitTimes",
    "added",
    "counts_of",
    "document_of",
    "outbound_sources",
    "part_of",
    "publish",
    "publish_in_process",
    "publish_on",
    "reset_publishers",
    "stop_publishing",
]
