"""``dashboard``: a page that shows and changes the limits of all processes; and its figures for programs.

``app.mount("/limits", dashboard(store, allow=is_admin))`` serves the page. ``summary(store)`` returns its figures.
"""

from .access import Allow
from .app import dashboard
from .summaries import KeyCounts, LearnedRow, ProcessSummary, QueueRow, RuleSummary, Summaries, Summary, summary

__all__ = [
    "Allow",
    "KeyCounts",
    "LearnedRow",
    "ProcessSummary",
    "QueueRow",
    "RuleSummary",
    "Summaries",
    "Summary",
    "dashboard",
    "summary",
]
