"""Limits as a file, and the options of a middleware, which may come from it."""

from .options import Options

__all__ = ["Options"]
