"""A server that says its limits as the newest IETF draft wants it (in the syntax of draft 11), and counts.

* All requests share two policies: ``burst``, ``BURST`` requests in ``BURST_WINDOW`` seconds, and ``daily``, ``DAILY``
  requests in ``DAILY_WINDOW``. Every answer has ``RateLimit-Policy`` and ``RateLimit``, in one field each; ``t`` is the
  time until there is more.
* Above either, the answer is a 429 with ``Retry-After`` and problem details that name the policy (RFC 9457).
* ``/counts`` says how many requests were served and refused.

See https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping

from tests.stand_ins.reporting.answering import Answer, Answering, Window
from tests.support.server import Uvicorn

TYPE = "https://iana.org/assignments/http-problem-types#quota-exceeded"
KEY = ":c3RhbmQtaW4=:"


SETTINGS = {"BURST": "10", "BURST_WINDOW": "1", "DAILY": "1000", "DAILY_WINDOW": "86400"}


class Ietf(Answering):
    """The server."""

    def __init__(self, settings: Mapping[str, str] = SETTINGS, now: Callable[[], float] = time.time) -> None:
        super().__init__({**SETTINGS, **settings}, now)
        self.policies = {
            name: Window(float(self.settings[name.upper()]), float(self.settings[f"{name.upper()}_WINDOW"]))
            for name in ("burst", "daily")
        }

    def answer_at(self, _method: str, _path: str, now: float) -> Answer:
        for window in self.policies.values():
            window.begin(now)
        violated = [name for name, window in self.policies.items() if window.left < 1]
        if violated:
            wait = max(self.policies[name].end - now for name in violated)
            return refusal(self.headers(now), math.ceil(wait), violated)
        for window in self.policies.values():
            window.takes(1, now)
        return 200, self.headers(now), {"id": 1}

    def headers(self, now: float) -> dict[str, str]:
        """The two fields of every answer."""
        policies = [f'"{name}";q={each.limit:.0f};w={each.period:.0f};pk={KEY}' for name, each in self.policies.items()]
        limits = [
            f'"{name}";r={each.left};t={math.ceil(each.end - now)};pk={KEY}' for name, each in self.policies.items()
        ]
        return {"ratelimit-policy": ", ".join(policies), "ratelimit": ", ".join(limits)}


def refusal(headers: dict[str, str], wait: int, violated: list[str]) -> Answer:
    """A 429 with problem details."""
    body = {"type": TYPE, "title": "Too Many Requests", "status": 429, "violated-policies": violated}
    return 429, {**headers, "content-type": "application/problem+json", "retry-after": str(wait)}, body


def ietf_server(**settings: object) -> Uvicorn:
    """The server as a process: ``burst=``, ``burst_window=``, ``daily=``, ``daily_window=``."""
    env = {name.upper(): str(value) for name, value in settings.items()}
    return Uvicorn("tests.stand_ins.reporting.ietf_server:app", "--lifespan", "off", env=env)


app = Ietf(os.environ)
