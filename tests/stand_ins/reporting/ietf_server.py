"""A server that says its limits as the newest IETF draft wants it (in the syntax of draft 11), and counts.

* All requests share two policies: ``burst``, ``BURST`` requests in ``BURST_WINDOW`` seconds, and ``daily``, ``DAILY``
  requests in ``DAILY_WINDOW``. Every answer has ``RateLimit-Policy`` and ``RateLimit``, in one field each; ``t`` is the
  time until there is more.
* Above either, the answer is a 429 with ``Retry-After`` and problem details that name the policy (RFC 9457).
* ``/busy`` answers every other request with a 503 for the reason of reduced capacity, which violates no policy.
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

TYPE = "https://iana.org/assignments/http-problem-types#"
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
        self.busy = 0

    def answer_at(self, _method: str, path: str, now: float) -> Answer:
        for window in self.policies.values():
            window.begin(now)
        if path == "/busy":
            self.busy += 1
            if self.busy % 2:
                return problem(503, "temporary-reduced-capacity", "Busy", self.headers(now), 1, [])
        violated = [name for name, window in self.policies.items() if window.left < 1]
        if violated:
            wait = max(self.policies[name].end - now for name in violated)
            return problem(429, "quota-exceeded", "Too Many Requests", self.headers(now), math.ceil(wait), violated)
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


def problem(status: int, kind: str, title: str, headers: dict[str, str], wait: int, violated: list[str]) -> Answer:
    """A refusal."""
    body = {"type": f"{TYPE}{kind}", "title": title, "status": status}
    more = {"violated-policies": violated} if violated else {}
    return status, {**headers, "content-type": "application/problem+json", "retry-after": str(wait)}, {**body, **more}


def ietf_server(**settings: object) -> Uvicorn:
    """The server as a process: ``burst=``, ``burst_window=``, ``daily=``, ``daily_window=``."""
    env = {name.upper(): str(value) for name, value in settings.items()}
    return Uvicorn("tests.stand_ins.reporting.ietf_server:app", "--lifespan", "off", env=env)


def __getattr__(name: str) -> Ietf:
    """The app, made when uvicorn asks for it: only then is there an environment for it."""
    if name == "app":
        app = globals()["app"] = Ietf(os.environ)
        return app
    raise AttributeError(name)
