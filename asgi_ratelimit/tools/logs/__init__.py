"""Logs of requests: access logs, logs of JSON, and recordings."""

from .json_lines import fields_of
from .reading import LogReader
from .recordings import decision_line, first_line, request_line
from .requests import LoggedRequest

__all__ = ["LogReader", "LoggedRequest", "decision_line", "fields_of", "first_line", "request_line"]
