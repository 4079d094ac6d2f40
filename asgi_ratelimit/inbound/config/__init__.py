"""Limits as a file, and the options of a middleware, which may come from it."""

from .limits_file_reload import LimitsFile
from .options import AT_START, USUAL, Options

__all__ = ["AT_START", "USUAL", "LimitsFile", "Options"]
