"""What is measured: one peer over one store, and the quota that it is to keep."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Literal, Protocol, cast

from starlette.types import ASGIApp

Where = Literal["none", "memory", "redis"]
Period = Literal["second", "minute", "hour"]
SECONDS: dict[Period, int] = {"second": 1, "minute": 60, "hour": 3600}

PEERS = (
    "bare",
    "bare_fastapi",
    "ours",
    "plain",
    "asgi_ratelimit_peer",
    "fastapi_limiter",
    "fastapi_redis_sdk",
    "limits",
    "pyrate_limiter",
    "slowapi",
    "throttled",
)
"""The modules of ``benchmarks.peers``."""


@dataclass(frozen=True, slots=True)
class Quota:
    """``limit`` requests for each client and ``period``, at once if the client was idle."""

    limit: int
    period: Period

    @property
    def seconds(self) -> int:
        return SECONDS[self.period]

    def __str__(self) -> str:
        return f"{self.limit}/{self.period}"


OPEN = Quota(10_000_000, "minute")
"""One that no benchmark uses up."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One row of the tables. A Redis subject has a Redis of its own, at ``url``."""

    peer: str
    where: Where
    url: str = ""

    @property
    def name(self) -> str:
        return self.peer if self.where == "none" else f"{self.peer} {self.where}"


class Peer(Protocol):
    """What a module of ``benchmarks.peers`` has."""

    TITLE: str
    """The distribution, with what of it is used."""
    STORES: tuple[Where, ...]
    BASE: str
    """The peer that is the bare app it stands on."""
    NOTE: str
    """What it cannot do that the others do, and what it does besides."""
    DISTRIBUTION: str

    def build(self, where: Where, url: str, quota: Quota) -> ASGIApp:
        """The app, limited for each client address."""


def peer(name: str) -> Peer:
    """The module of a peer; ``ImportError`` where it does not work with what is installed."""
    return cast("Peer", import_module(f"benchmarks.peers.{name}"))


def working(name: str) -> Peer | None:
    """The same, or ``None`` if it cannot be imported; its process then tells the error in its rows."""
    try:
        return peer(name)
    except Exception:  # noqa: BLE001  # peers break in many ways
        return None


def base_of(name: str) -> str:
    """The peer that is the bare app a peer stands on."""
    found = working(name)
    return found.BASE if found else "bare"
