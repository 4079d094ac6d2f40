"""What a stand-in server knows of its clients: budgets that refill steadily, and what was admitted and refused.

It counts for itself, by the monotonic clock, and shares no code with the package.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

# The variable with the limits of a server, as JSON: ``{"requests": [20, 1.0]}`` is 20 a second, 20 at once.
LIMITS = "STAND_IN_LIMITS"

WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


class Budget:
    """``limit`` units for each ``period`` in seconds, of which ``limit`` are available at once from idle."""

    def __init__(self, limit: float, period: float) -> None:
        self.limit = limit
        self.rate = limit / period
        self._available = limit
        self._updated = time.monotonic()

    @property
    def available(self) -> float:
        """The units that are available now; below 0, what more was used than was there."""
        now = time.monotonic()
        self._available = min(self.limit, self._available + (now - self._updated) * self.rate)
        self._updated = now
        return self._available

    @property
    def until_full(self) -> float:
        """Seconds until the whole limit is available again."""
        return (self.limit - self.available) / self.rate

    def wait(self, units: float) -> float:
        """Seconds until these units are available; 0 if they are, infinity if they never will be."""
        return math.inf if units > self.limit else max(0.0, (units - self.available) / self.rate)

    def charge(self, units: float) -> None:
        """Take units, or give them back if they are below 0."""
        self._available = min(self.limit, self.available - units)


@dataclass
class Account:
    """What one client uses of one model."""

    budgets: dict[str, Budget]
    admitted: int = 0
    refused: int = 0
    used: dict[str, float] = field(default_factory=dict)
    cached: set[str] = field(default_factory=set)

    def admit(self, estimate: Mapping[str, float]) -> tuple[str, float] | None:
        """Charge an estimate, or nothing: then, the budget that is short, and for how many seconds."""
        waits = {name: self.budgets[name].wait(units) for name, units in estimate.items()}
        short = max(waits, key=lambda name: waits[name])
        if waits[short] > 0.0:
            self.refused += 1
            return short, waits[short]
        for name, units in estimate.items():
            self.budgets[name].charge(units)
        self.admitted += 1
        return None

    def settle(self, estimate: Mapping[str, float], used: Mapping[str, float]) -> None:
        """Correct a charge to what was used."""
        for name, units in used.items():
            self.budgets[name].charge(units - estimate[name])
            self.used[name] = self.used.get(name, 0) + units

    def report(self) -> dict[str, Any]:
        """What was counted so far."""
        available = {name: budget.available for name, budget in self.budgets.items()}
        return {"admitted": self.admitted, "refused": self.refused, "used": self.used, "available": available}


class Accounts:
    """An account for each client and model."""

    def __init__(self, default_limits: Mapping[str, tuple[float, float]]) -> None:
        self._limits: dict[str, tuple[float, float]] = {**default_limits, **json.loads(os.environ.get(LIMITS, "{}"))}
        self._accounts: dict[tuple[str, str], Account] = {}

    def of(self, client: str, model: str) -> Account:
        """The account of a client for a model."""
        budgets = {name: Budget(*limit) for name, limit in self._limits.items()}
        return self._accounts.setdefault((client, model), Account(budgets))

    async def report(self, request: Request) -> Response:
        """``GET /stand-in/report``: what was counted of this client, by model."""
        client, accounts = client_of(request), self._accounts.items()
        return JSONResponse({model: account.report() for (owner, model), account in accounts if owner == client})


def text_of(part: Any) -> str:
    """All text in the messages of a request: texts, and those in parts of them."""
    if isinstance(part, str):
        return part
    if isinstance(part, list):
        return "".join(map(text_of, part))
    return "".join(text_of(part.get(name)) for name in ("content", "text")) if isinstance(part, dict) else ""


def tokens_of(part: Any) -> int:
    """The tokens of a text: a quarter of its letters."""
    return max(1, len(text_of(part)) // 4)


def words_asked(part: Any, most: int) -> list[str]:
    """An answer of a token for each word: as many as the last word of the request says, 13 without a number."""
    last = text_of(part).split()[-1:]
    number = int(last[0]) if last and last[0].isdecimal() else 13
    return [f"{' ' if index else ''}{word}" for index, word in enumerate(islice(cycle(WORDS), min(number, most)))]


async def streamed(call: Any, events: Iterator[tuple[int, Any]], end: str = "") -> AsyncIterator[str]:
    """The events of a stream, each with the words so far; what was sent by then is charged, also if the client goes."""
    words = 0
    try:
        for number, event in events:
            words = number
            name = f"event: {event['type']}\n" if "type" in event else ""
            yield f"{name}data: {json.dumps(event)}\n\n"
        if end:
            yield f"data: {end}\n\n"
    finally:
        call.settle(words)


def client_of(request: Request) -> str:
    """The key of a client, in the header of Anthropic or that of most others."""
    return request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
