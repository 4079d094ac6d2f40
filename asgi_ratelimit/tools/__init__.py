"""Tools for developers, which servers do not run: coverage, simulation, and the command line."""

from .coverage import Covered, coverage
from .simulate import simulate

__all__ = ["Covered", "coverage", "simulate"]
