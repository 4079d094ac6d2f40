"""Logs of requests: access logs, logs of JSON, and recordings."""

from .json_lines import fields_of
from .log_reading import LogReader
from .recording_format import decision_line, first_line, request_line
from .requests import LoggedRequest
from .times import time_us_of

__all__ = ["LogReader", "LoggedRequest", "decision_line", "fields_of", "first_line", "request_line", "time_us_of"]
