"""Limits as a file, and the options of a middleware, which may come from it."""

from .options import AT_START, USUAL, Options
from .reload import LimitsFile

__all__ = ["AT_START", "USUAL", "LimitsFile", "Options"]
