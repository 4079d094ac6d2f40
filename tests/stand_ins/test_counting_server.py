"""Services that count for themselves, on a real server: paced calls are never refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from asgi_ratelimit import pace
from tests.stand_ins.counted_calls import call_async, call_from_processes, call_sync, counts_of
from tests.stand_ins.counting_server import counting_server

LONG = pytest.mark.long


SERVICES: list[Any] = [
    pytest.param("bucket", 50, 1, "50/s burst 50", {"burst": 50}, id="bucket"),
    pytest.param("spaced", 50, 1, "50/s", {"tolerance": 2}, id="spaced"),
    pytest.param("fixed", 50, 10, "50 per 10 seconds fixed", {}, id="fixed"),
    pytest.param("rolling", 50, 10, "50 per 10 seconds rolling", {}, id="rolling"),
]


@LONG
@pytest.mark.parametrize("kind", ["async", "sync"])
@pytest.mark.parametrize(("service", "limit", "period", "quota", "settings"), SERVICES)
def test_no_call_is_refused(
    service: str, limit: int, period: int, quota: str, settings: dict[str, int], kind: str
) -> None:
    """Two hundred calls at the limit of the service. On a machine that is busy with other work, some may be late."""
    with counting_server(service, limit, period, **settings) as server:
        if kind == "async":
            asyncio.run(call_async(server.url, 200, pace(quota)))
        else:
            call_sync(server.url, 200, pace(quota))
        counts = counts_of(server)
    assert (counts.served, counts.refused) == (200, 0)


@LONG
@pytest.mark.parametrize(
    ("service", "limit", "period", "quota", "settings"), [each for each in SERVICES if each.id != "spaced"]
)
def test_four_processes_are_not_refused(
    redis_url: str, service: str, limit: int, period: int, quota: str, settings: dict[str, int]
) -> None:
    """With a margin of two percent, and one Redis. A service that wants even spacing refuses some: each process has
    its own jitter, as docs/outbound.md says.
    """
    with counting_server(service, limit, period, **settings) as server:
        call_from_processes(server, redis_url, quota, 0.02, 200, 4)
        counts = counts_of(server)
    assert (counts.served, counts.refused) == (200, 0)
