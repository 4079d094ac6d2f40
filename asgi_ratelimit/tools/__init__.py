"""Tools for developers, which servers do not run: coverage, replays of logs, and the command line."""

from .coverage import Covered, coverage

__all__ = ["Covered", "coverage"]
