"""The counts of a process's decisions, which it publishes once a second, so that all processes can be summed up."""

from .minute_recordings import ALL, Recording, recording_in
from .minutes import FORMAT, LASTS, MINUTES, NONE, Minute, Numbers, added, document_of
from .publishing import Publisher, publish, publish_in_process, publish_on, reset_publishers, stop_publishing
from .rule_counts import RESULTS, Counts, Row, RuleCounts, counts_of, outbound_sources
from .waits import BOUNDS_NS, WaitTimes

__all__ = [
    "ALL",
    "BOUNDS_NS",
    "FORMAT",
    "LASTS",
    "MINUTES",
    "NONE",
    "RESULTS",
    "Counts",
    "Minute",
    "Numbers",
    "Publisher",
    "Recording",
    "Row",
    "RuleCounts",
    "WaitTimes",
    "added",
    "counts_of",
    "document_of",
    "outbound_sources",
    "publish",
    "publish_in_process",
    "publish_on",
    "recording_in",
    "reset_publishers",
    "stop_publishing",
]
