"""Messages of WebSockets: what each of them takes as the rules are now, and sockets that are slowed down by that."""

from .message_limits import MessageLimits
from .throttled_receive import Throttled

__all__ = ["MessageLimits", "Throttled"]
