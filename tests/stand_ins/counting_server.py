"""A service that counts its calls by itself, in its own way, and refuses what is above its limit.

``KIND`` says how: ``bucket`` (tokens that come back at the rate, up to ``BURST``), ``spaced`` (no call sooner after the
last one than the rate says, but for ``TOLERANCE`` milliseconds), ``fixed`` (windows aligned to the epoch) or
``rolling`` (a log of the calls of the last period). ``LIMIT`` calls are allowed in each ``PERIOD`` seconds. A refusal
says when to come back, as ``UNIT`` wants it: in whole ``seconds``, rounded up, in ``milliseconds``, or ``never``.
``/counts`` says how many calls were served and refused, and how long the calls that were served took altogether.

Nothing of the package is used here, so that its arithmetic is not checked against itself.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from tests.support.server import Uvicorn

Send = Callable[[dict[str, Any]], Awaitable[None]]


class Counter(Protocol):
    """A way to count."""

    def wait(self, now: float) -> float:
        """Seconds until a call is served; 0 if it is served now, and then it counts."""
        ...


class Bucket:
    """Tokens that come back at the rate, up to the burst."""

    def __init__(self, rate: float, burst: float) -> None:
        self.rate, self.burst = rate, burst
        self.tokens, self.last = burst, 0.0

    def wait(self, now: float) -> float:
        self.tokens = min(self.burst, self.tokens + (now - self.last) * self.rate)
        self.last = now
        if self.tokens < 1.0 - 1e-6:
            return (1.0 - self.tokens) / self.rate
        self.tokens -= 1.0
        return 0.0


class Spaced:
    """No call sooner after the last one that was served than the interval, but for a tolerance."""

    def __init__(self, interval: float, tolerance: float) -> None:
        self.interval, self.tolerance = interval, tolerance
        self.last = -math.inf

    def wait(self, now: float) -> float:
        left = self.last + self.interval - self.tolerance - now
        if left > 0.0:
            return left
        self.last = now
        return 0.0


class Fixed:
    """So many calls in each window, and windows aligned to the epoch."""

    def __init__(self, limit: float, period: float) -> None:
        self.limit, self.period = limit, period
        self.window, self.count = -1.0, 0

    def wait(self, now: float) -> float:
        window = now // self.period
        if window != self.window:
            self.window, self.count = window, 0
        if self.count >= self.limit:
            return (window + 1) * self.period - now
        self.count += 1
        return 0.0


class Rolling:
    """So many calls in any interval of the period."""

    def __init__(self, limit: float, period: float) -> None:
        self.limit, self.period = limit, period
        self.calls: deque[float] = deque()

    def wait(self, now: float) -> float:
        while self.calls and self.calls[0] <= now - self.period:
            self.calls.popleft()
        if len(self.calls) >= self.limit:
            return self.calls[0] + self.period - now
        self.calls.append(now)
        return 0.0


def counter_of(settings: Mapping[str, str]) -> Counter:
    """The counter of an environment."""
    kind, limit, period = settings["KIND"], float(settings["LIMIT"]), float(settings["PERIOD"])
    if kind == "bucket":
        return Bucket(limit / period, float(settings["BURST"]))
    if kind == "spaced":
        return Spaced(period / limit, float(settings["TOLERANCE"]) / 1000)
    return Fixed(limit, period) if kind == "fixed" else Rolling(limit, period)


class Service:
    """The service, as a plain ASGI app, which spends little time of its own."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.counter = counter_of(settings)
        self.unit = settings.get("UNIT", "seconds")
        self.served: list[float] = []
        self.refused = 0

    async def __call__(self, scope: dict[str, Any], _receive: Any, send: Send) -> None:
        now = time.time()
        if scope["type"] != "http":
            raise NotImplementedError
        if scope["path"] == "/counts":
            await answer(send, 200, [], json.dumps(self.counts()).encode())
            return
        wait = self.counter.wait(now)
        if wait > 0.0:
            self.refused += 1
            await answer(send, 429, self.retry_after(wait))
            return
        self.served.append(now)
        await answer(send, 200, [])

    def counts(self) -> dict[str, float]:
        """What was counted until now."""
        seconds = self.served[-1] - self.served[0] if self.served else 0.0
        return {"served": len(self.served), "refused": self.refused, "seconds": seconds}

    def retry_after(self, wait: float) -> list[tuple[bytes, bytes]]:
        """The header that says when to come back, if any does."""
        if self.unit == "never":
            return []
        if self.unit == "milliseconds":
            return [(b"retry-after-ms", b"%d" % math.ceil(wait * 1000))]
        return [(b"retry-after", b"%d" % math.ceil(wait))]


async def answer(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes = b"ok") -> None:
    """Send an answer."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


def counting_server(kind: str, limit: float, period: float = 1.0, **settings: object) -> Uvicorn:
    """A server with this counter: ``burst=``, ``tolerance=`` in milliseconds, ``unit=``."""
    given = {"kind": kind, "limit": limit, "period": period, "burst": limit, "tolerance": 0, **settings}
    env = {name.upper(): str(value) for name, value in given.items()}
    return Uvicorn("tests.stand_ins.counting_server:app", "--lifespan", "off", "--timeout-keep-alive", "600", env=env)


def __getattr__(name: str) -> Service:
    """The app, made when uvicorn asks for it: only then is there an environment for it."""
    if name == "app":
        service = globals()["app"] = Service(os.environ)
        return service
    raise AttributeError(name)
