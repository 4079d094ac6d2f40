"""What stand-ins with headers have in common: they answer at a time, count what they answer, and say so at ``/counts``.

Nothing of the package is used here.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Send = Callable[[dict[str, Any]], Awaitable[None]]
Answer = tuple[int, dict[str, str], dict[str, Any]]


class Answering(ABC):
    """An ASGI app that answers by ``answer_at``."""

    def __init__(self, settings: Mapping[str, str], now: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self.now = now
        self.counts: Counter[str] = Counter()
        self.served: list[float] = []

    @abstractmethod
    def answer_at(self, method: str, path: str, now: float) -> Answer:
        """The status, the headers and the body of an answer."""

    def answer(self, method: str, path: str) -> Answer:
        """The answer to a request that comes now, which is counted."""
        now = self.now()
        answer = self.answer_at(method, path, now)
        is_served = answer[0] < 400
        self.counts["served" if is_served else "refused"] += 1
        if is_served:
            self.served.append(now)
        return answer

    async def __call__(self, scope: dict[str, Any], _receive: Any, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError
        status, headers, body = 200, {}, {**self.counts, "seconds": self._seconds()}
        if scope["path"] != "/counts":
            status, headers, body = self.answer(scope["method"], scope["path"])
        content = json.dumps(body).encode()
        headers = {"content-type": "application/json", "content-length": str(len(content)), **headers}
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": content})

    def _seconds(self) -> float:
        return self.served[-1] - self.served[0] if self.served else 0.0


class Window:
    """So many units in each period, which begins with its first unit."""

    def __init__(self, limit: float, period: float) -> None:
        self.limit, self.period = limit, period
        self.used, self.end = 0.0, 0.0

    def begin(self, now: float) -> None:
        """Begin a new window, if the last one has ended."""
        if now >= self.end:
            self.used, self.end = 0.0, now + self.period

    def takes(self, units: float, now: float) -> bool:
        """Whether so many units are left; then they are used."""
        self.begin(now)
        if self.used + units > self.limit:
            return False
        self.used += units
        return True

    def wait(self, now: float) -> float:
        """Seconds until one more unit is left; 0 if one is, and then it is used."""
        return 0.0 if self.takes(1, now) else self.end - now

    @property
    def left(self) -> int:
        """The units that remain in this window."""
        return int(self.limit - self.used)
