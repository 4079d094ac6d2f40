"""Messages of WebSockets: what each of them takes under the current rules, and how that slows sockets down."""

from .message_limits import MessageLimits
from .throttled_receive import Throttled

__all__ = ["MessageLimits", "Throttled"]
