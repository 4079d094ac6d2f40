"""The headers of rate limits: rendered for clients, and read from servers.

The dialects write decisions as headers; ``parse`` reads the limits that any API reports. All of this is pure:
no ``await``, no clock, no lock, no logging.
"""

from .answer_sources import Headers
from .header_rendering import (
    DIALECTS,
    LARGEST,
    LEGACY_NAMES,
    Dialect,
    DialectName,
    Header,
    HeaderOptions,
    both,
    delay,
    dialect,
    draft,
    header_options,
    legacy,
    policy,
    quoted,
    retry_after,
    violated,
)
from .server_limit_parsing import MAX_DELAY, parse
from .server_limits import ServerLimit, ServerLimits

__all__ = [
    "DIALECTS",
    "LARGEST",
    "LEGACY_NAMES",
    "MAX_DELAY",
    "Dialect",
    "DialectName",
    "Header",
    "HeaderOptions",
    "Headers",
    "ServerLimit",
    "ServerLimits",
    "both",
    "delay",
    "dialect",
    "draft",
    "header_options",
    "legacy",
    "parse",
    "policy",
    "quoted",
    "retry_after",
    "violated",
]
