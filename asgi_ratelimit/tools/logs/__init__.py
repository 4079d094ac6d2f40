"""Logs of requests: access logs, and logs of JSON."""

from .lines import LoggedRequest, fields_of
from .reading import LogReader

__all__ = ["LogReader", "LoggedRequest", "fields_of"]
