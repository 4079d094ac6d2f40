"""The headers of rate limits: rendered for clients, and read from servers.

``header_rendering`` writes decisions as headers; ``parse`` reads the limits that any API reports. All of this is pure:
no ``await``, no clock, no lock, no logging.
"""

from .header_rendering import HeaderOptions
from .server_limits import MAX_DELAY, ServerLimit, ServerLimits, parse

__all__ = ["MAX_DELAY", "HeaderOptions", "ServerLimit", "ServerLimits", "parse"]
