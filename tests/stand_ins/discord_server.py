"""A server that limits its clients as Discord documents it, and counts how they behave.

* Each route has a bucket of ``LIMIT`` requests in ``PERIOD`` seconds, for each channel; its name is in the answers.
  With ``SLIDING``, requests come back one by one, as on Discord since 2022, else all at the end of a window.
* All requests together are limited to ``GLOBAL`` a second; such a refusal has no limit, no remaining and no reset.
* ``/channels/{id}/shared`` refuses its second request as a shared resource does: with requests remaining, and a
  ``Retry-After`` that is much longer than the reset.
* ``/counts`` says how many requests were served and refused, and why.

See https://discord.com/developers/docs/topics/rate-limits. Nothing of the package is used here.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping

from tests.stand_ins.counting_server import Bucket
from tests.stand_ins.reporting.answering import Answer, Answering, Window
from tests.support.server import Uvicorn

SETTINGS = {"LIMIT": "5", "PERIOD": "1.0", "SLIDING": "", "GLOBAL": "50", "SHARED_WAIT": "1337"}


class Sliding(Bucket):
    """So many requests at once; they come back one by one."""

    def __init__(self, limit: int, period: float) -> None:
        super().__init__(limit / period, limit)

    @property
    def left(self) -> int:
        """The requests that remain."""
        return int(self.tokens + 1e-6)

    @property
    def end(self) -> float:
        """When all of them are back."""
        return self.last + (self.burst - self.tokens) / self.rate


class Discord(Answering):
    """The server: what it answers at a time, by ``now()``."""

    def __init__(self, settings: Mapping[str, str] = SETTINGS, now: Callable[[], float] = time.time) -> None:
        settings = {**SETTINGS, **settings}
        super().__init__(settings, now)
        self.limit, self.period = int(settings["LIMIT"]), float(settings["PERIOD"])
        self.kind: type[Window] | type[Sliding] = Sliding if settings["SLIDING"] else Window
        self.shared_wait = float(settings["SHARED_WAIT"])
        self.global_limit = int(settings["GLOBAL"])
        self.recent: deque[float] = deque()
        self.buckets: dict[tuple[str, str], Window | Sliding] = {}
        self.by_path: Counter[str] = Counter()
        self.times: list[tuple[float, str, int]] = []

    def answer_at(self, method: str, path: str, now: float) -> Answer:
        """The status, the headers and the body of an answer."""
        self.by_path[path] += 1
        status, headers, body = self._answer(method, path, now)
        self.times.append((now, path, status))
        return status, {**headers, "via": "1.1 google"}, body

    def _answer(self, method: str, path: str, now: float) -> Answer:
        while self.recent and self.recent[0] <= now - 1.0:
            self.recent.popleft()
        if len(self.recent) >= self.global_limit:
            self.counts["refused global"] += 1
            return refusal(self.recent[0] + 1.0 - now, {"x-ratelimit-global": "true", "x-ratelimit-scope": "global"})
        self.recent.append(now)
        _, _, channel, kind = f"{path}///".split("/")[:4]
        name = hashlib.md5(f"{method} {kind}".encode(), usedforsecurity=False).hexdigest()
        bucket = self.buckets.setdefault((name, channel), self.kind(self.limit, self.period))
        if kind == "shared" and self.by_path[path] == 2:
            self.counts["refused shared"] += 1
            headers = {**limits(10, 9, 64.57, name, now), "x-ratelimit-scope": "shared"}
            return refusal(self.shared_wait, headers)
        wait = bucket.wait(now)
        headers = limits(self.limit, bucket.left, bucket.end - now, name, now)
        if wait > 0.0:
            self.counts["refused user"] += 1
            return refusal(wait, {**headers, "x-ratelimit-scope": "user"})
        return 200, headers, {"id": "1"}


def limits(limit: int, remaining: int, after: float, bucket: str, now: float) -> dict[str, str]:
    """The headers of every answer that is limited."""
    return {
        "x-ratelimit-limit": str(limit),
        "x-ratelimit-remaining": str(remaining),
        "x-ratelimit-reset": f"{now + after:.3f}",
        "x-ratelimit-reset-after": f"{after:.3f}",
        "x-ratelimit-bucket": bucket,
    }


def refusal(wait: float, headers: Mapping[str, str]) -> Answer:
    """A 429. The header has whole seconds; the body has fractions."""
    body = {"message": "You are being rate limited.", "retry_after": math.ceil(wait * 1000 - 1e-6) / 1000}
    return 429, {**headers, "retry-after": str(math.ceil(wait))}, {**body, "global": "x-ratelimit-global" in headers}


def discord_server(**settings: object) -> Uvicorn:
    """The server as a process: ``limit=``, ``period=``, ``sliding=``, ``global_=``, ``shared_wait=``."""
    env = {name.strip("_").upper(): str(value) for name, value in settings.items()}
    return Uvicorn("tests.stand_ins.discord_server:app", "--lifespan", "off", env=env)


app = Discord(os.environ)
