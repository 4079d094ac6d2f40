"""Replays of logs under limits that are not in force."""

from .counts import KeyCount, Moment, RuleCounts, Timeline
from .replay import MOST_PATHS, Replay
from .replayed_limits import LOGGED_KEY, limits_of, limits_of_file, scope_of
from .report import report_of

__all__ = [
    "LOGGED_KEY",
    "MOST_PATHS",
    "KeyCount",
    "Moment",
    "Replay",
    "RuleCounts",
    "Timeline",
    "limits_of",
    "limits_of_file",
    "report_of",
    "scope_of",
]
