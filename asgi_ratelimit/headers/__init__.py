"""The headers of rate limits: rendered for clients, and read from servers.

The dialects write decisions as headers; ``parse`` reads the limits that any API reports. All of this is pure:
no ``await``, no clock, no lock, no logging.
"""

from .answers import Headers
from .header_rendering import (
    LEGACY_NAMES,
    Dialect,
    DialectName,
    Header,
    HeaderOptions,
    delay,
    draft,
    header_options,
    violated,
)
from .server_limit_parsing import MAX_DELAY, parse
from .server_limits import ServerLimit, ServerLimits

__all__ = [
    "LEGACY_NAMES",
    "MAX_DELAY",
    "Dialect",
    "DialectName",
    "Header",
    "HeaderOptions",
    "Headers",
    "ServerLimit",
    "ServerLimits",
    "delay",
    "draft",
    "header_options",
    "parse",
    "violated",
]
