"""Tools for developers, which servers do not run: coverage, recordings, simulation, and the command line."""

from .coverage import Covered, coverage
from .recorder import Recorder
from .simulate import simulate

__all__ = ["Covered", "Recorder", "coverage", "simulate"]
