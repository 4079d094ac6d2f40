"""Logs of requests: access logs, and logs of JSON."""

from .json_lines import fields_of
from .log_reading import LogReader
from .requests import LoggedRequest

__all__ = ["LogReader", "LoggedRequest", "fields_of"]
