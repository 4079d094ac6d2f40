"""A server that limits its clients as GitHub documents it for REST, and counts how they behave.

* Each resource has a primary limit: ``core`` of ``LIMIT`` requests in ``PERIOD`` seconds, ``search`` (paths under
  ``/search``) of ``SEARCH`` in ``SEARCH_PERIOD``. Every answer has its headers; the reset is in seconds since 1970.
  Above it, the answer is a 403 with nothing remaining.
* A secondary limit, which no header shows, is ``POINTS`` in ``POINTS_PERIOD`` seconds: a GET is 1 point, what writes is
  5. Above it, the answer is a 403 whose message says so, with ``Retry-After`` if ``RETRY_AFTER`` is set.
* ``/counts`` says how many requests were served and refused, and why.

See https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from tests.stand_ins.reporting.answering import Answer, Answering, Window
from tests.support.server import Uvicorn

PRIMARY = "API rate limit exceeded for user ID 1. If you reach out to GitHub Support for help, please include the ID."
SECONDARY = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
DOCUMENTATION = "https://docs.github.com/rest/overview/resources-in-the-rest-api#rate-limiting"


SETTINGS = {
    "LIMIT": "60",
    "PERIOD": "3600",
    "SEARCH": "10",
    "SEARCH_PERIOD": "60",
    "POINTS": "900",
    "POINTS_PERIOD": "60",
    "RETRY_AFTER": "1",
}


class GitHub(Answering):
    """The server."""

    def __init__(self, settings: Mapping[str, str] = SETTINGS, now: Callable[[], float] = time.time) -> None:
        super().__init__({**SETTINGS, **settings}, now)
        self.resources = {"core": self._window("LIMIT", "PERIOD"), "search": self._window("SEARCH", "SEARCH_PERIOD")}
        self.points = self._window("POINTS", "POINTS_PERIOD")

    def _window(self, limit: str, period: str) -> Window:
        return Window(float(self.settings[limit]), float(self.settings[period]))

    def answer_at(self, method: str, path: str, now: float) -> Answer:
        resource = "search" if path.startswith("/search") else "core"
        window = self.resources[resource]
        window.begin(now)
        if not self.points.takes(1 if method in ("GET", "HEAD", "OPTIONS") else 5, now):
            self.counts["refused secondary"] += 1
            wait = {"retry-after": str(math.ceil(self.points.end - now))} if self.settings["RETRY_AFTER"] else {}
            return 403, {**headers(resource, window), **wait}, message(SECONDARY)
        if not window.takes(1, now):
            self.counts["refused primary"] += 1
            return 403, headers(resource, window), message(PRIMARY)
        return 200, headers(resource, window), {"id": 1}


def headers(resource: str, window: Window) -> dict[str, str]:
    """The headers of every answer."""
    return {
        "x-ratelimit-limit": f"{window.limit:.0f}",
        "x-ratelimit-remaining": str(window.left),
        "x-ratelimit-used": f"{window.used:.0f}",
        "x-ratelimit-reset": str(math.ceil(window.end)),
        "x-ratelimit-resource": resource,
        "x-github-request-id": "0400:1A2B:3C4D5E:6F7A8B:65A1B2C3",
    }


def message(text: str) -> dict[str, Any]:
    """The body of an error."""
    return {"message": text, "documentation_url": DOCUMENTATION, "status": "403"}


def github_server(**settings: object) -> Uvicorn:
    """The server as a process: ``limit=``, ``period=``, ``search=``, ``points=``, ``retry_after=`` and so on."""
    env = {name.upper(): str(value) for name, value in settings.items()}
    return Uvicorn("tests.stand_ins.reporting.github_server:app", "--lifespan", "off", env=env)


app = GitHub(os.environ)
