"""What is measured: one peer over one store, under one quota."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Literal, cast

from starlette.types import ASGIApp

Where = Literal["none", "memory", "redis"]
Period = Literal["second", "minute", "hour"]
SECONDS: dict[Period, int] = {"second": 1, "minute": 60, "hour": 3600}
BOTH: tuple[Where, ...] = ("memory", "redis")


@dataclass(frozen=True, slots=True)
class Quota:
    """``limit`` requests for each client and ``period``; an idle client may send them all at once."""

    limit: int
    period: Period

    @property
    def seconds(self) -> int:
        return SECONDS[self.period]

    def __str__(self) -> str:
        return f"{self.limit}/{self.period}"


OPEN = Quota(10_000_000, "minute")
"""No benchmark uses it up."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A limiter, or a bare app. The module of its name in ``benchmarks.peers`` has ``build(where, url, quota)``.

    ``base`` is the bare app that it protects; ``note`` says what it lacks, and what else it does.
    """

    name: str
    title: str
    distribution: str
    stores: tuple[Where, ...] = BOTH
    base: str = "bare"
    note: str = ""

    def build(self, where: Where, url: str, quota: Quota) -> ASGIApp:
        """Build the app, limited for each client address. Raises what the peer raises."""
        return cast("ASGIApp", import_module(f"benchmarks.peers.{self.name}").build(where, url, quota))


PEERS = {
    peer.name: peer
    for peer in (
        Peer("bare", "bare Starlette", "starlette", ("none",)),
        Peer("bare_headers", "bare Starlette, with the same headers", "starlette", ("none",)),
        Peer("bare_fastapi", "bare FastAPI", "fastapi", ("none",), "bare_fastapi"),
        Peer("ours", "ours", "asgi-ratelimit-pacer"),
        Peer("ours_no_headers", "ours, no headers", "asgi-ratelimit-pacer", note="no headers but Retry-After"),
        Peer("ours_fastapi", "ours on FastAPI", "asgi-ratelimit-pacer", BOTH, "bare_fastapi"),
        Peer("plain", "plain EVALSHA", "redis", ("redis",), note="no headers; the caller's clock"),
        Peer("asgi_ratelimit_peer", "asgi-ratelimit", "asgi-ratelimit", note="no headers but Retry-After"),
        Peer(
            "fastapi_limiter",
            "fastapi-limiter",
            "fastapi-limiter",
            base="bare_fastapi",
            note="one bucket for all clients; no headers",
        ),
        Peer(
            "fastapi_redis_sdk",
            "fastapi-redis-sdk",
            "fastapi-redis-sdk",
            ("redis",),
            "bare_fastapi",
            "no memory store; needs Redis 7.4; refuses when its pool has no connection left",
        ),
        Peer(
            "limits", "limits", "limits", note="no middleware of its own; no headers, because they need a second query"
        ),
        Peer("pyrate_limiter", "pyrate-limiter", "pyrate-limiter", note="no middleware of its own; no headers"),
        Peer("slowapi", "slowapi", "slowapi", note="blocks the event loop while it waits for Redis"),
        Peer(
            "throttled",
            "throttled-py",
            "throttled-py",
            base="bare_fastapi",
            note="answers 503 when its pool has no connection left",
        ),
    )
}
"""All of them, by name, in the order of the tables."""

OURS = {"bare": "ours", "bare_fastapi": "ours_fastapi"}
"""What a peer is compared with, by its bare app."""
NOT_OTHERS = {*OURS.values(), "ours_no_headers", "plain"}


@dataclass(frozen=True, slots=True)
class Subject:
    """One row of the tables: a peer over a store. A Redis subject has a Redis of its own, at ``url``."""

    peer: Peer
    where: Where
    url: str = ""

    @property
    def name(self) -> str:
        return _name(self.peer.name, self.where)

    @property
    def title(self) -> str:
        return self.peer.title if self.where == "none" else f"{self.peer.title}, {self.where}"

    @property
    def base(self) -> str:
        """The name of its bare app."""
        return self.peer.base

    @property
    def ours(self) -> str:
        """The name of ours on the same bare app and store."""
        return _name(OURS[self.peer.base], self.where)

    @property
    def is_of_others(self) -> bool:
        """Whether it is a limiter of another project, and not ours, a bare app or plain EVALSHA."""
        return self.where != "none" and self.peer.name not in NOT_OTHERS


def _name(peer: str, where: Where) -> str:
    return peer if where == "none" else f"{peer} {where}"
