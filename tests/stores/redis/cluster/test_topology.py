"""What a cluster reports about its slots: nothing, nonsense, or not all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from asgi_ratelimit import Charge, RedisStore, Take, TokenBucket
from asgi_ratelimit.errors import StoreError
from asgi_ratelimit.stores.redis.outage import breaker

pytestmark = pytest.mark.anyio

TAKE = Take((Charge(TokenBucket(10, 3600), "key"),))
NO_SLOTS = b"*0\r\n"


class Reporter:
    """A server that answers every command with ``report``, or else closes the connection, and counts connections."""

    def __init__(self, report: bytes | None) -> None:
        self.report = report
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the commands of one connection."""
        self.connections += 1
        while self.report is not None and (commands := await reader.read(65536)):
            writer.write(self.report * commands.count(b"*"))
        writer.close()


@asynccontextmanager
async def store_on(reporter: Reporter) -> AsyncIterator[RedisStore]:
    """A store on a cluster with this one node."""
    server = await asyncio.start_server(reporter.serve, "127.0.0.1", 0)
    store = RedisStore(f"redis+cluster://127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout=30)
    yield store
    await store.aclose()
    server.close()


async def is_degraded(store: RedisStore) -> bool:
    """Whether a take is decided without the cluster."""
    (decision,) = await store.take([TAKE])
    return decision.degraded


@pytest.mark.parametrize("report", [None, NO_SLOTS])
async def test_a_cluster_without_slots_is_not_called_for_each_take(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, report: bytes | None
) -> None:
    """Takes are decided here at once, until the next probe is due; the log says so, once."""
    monkeypatch.setattr(breaker, "PROBE_INTERVAL_US", 3_600e6)
    reporter = Reporter(report)
    async with store_on(reporter) as store:
        assert await is_degraded(store)
        called = reporter.connections
        for _ in range(3):
            assert await is_degraded(store)
        assert reporter.connections == called
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def all_slots_at(redis_url: str) -> bytes:
    """The report of a cluster with one node, which is a single Redis."""
    return b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n" % (urlsplit(redis_url).port or 0)


async def test_a_slot_that_a_node_owns_again(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The cluster decides again, and the log says that it is back."""
    monkeypatch.setattr(breaker, "PROBE_INTERVAL_US", 0.0)
    reporter = Reporter(NO_SLOTS)
    async with store_on(reporter) as store:
        for _ in range(3):
            assert await is_degraded(store)
        reporter.report = all_slots_at(redis_url)
        assert not await is_degraded(store)
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


async def test_closing_charges_nodes_that_were_never_called(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what was admitted before any of them was known, if one reports by then who owns the slot."""
    monkeypatch.setattr(breaker, "PROBE_INTERVAL_US", 0.0)
    reporter = Reporter(NO_SLOTS)
    async with store_on(reporter) as store:
        assert await is_degraded(store)
        reporter.report = all_slots_at(redis_url)
    store = RedisStore(redis_url, timeout=30)
    assert (await store.peek(TAKE)).remaining == 9
    await store.aclose()


@pytest.mark.parametrize(
    "report",
    [
        b":1\r\n",
        b"+OK\r\n",
        b"$-1\r\n",
        b"*1\r\n:1\r\n",
        b"*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\n\xff\r\n:1\r\n",
        b"*1\r\n*3\r\n:0\r\n:99999\r\n*2\r\n$1\r\na\r\n:1\r\n",
        b"*1\r\n*3\r\n:-1\r\n:16383\r\n*2\r\n$1\r\na\r\n:1\r\n",
    ],
)
async def test_a_report_that_makes_no_sense(caplog: pytest.LogCaptureFixture, report: bytes) -> None:
    """It counts as no answer: takes are decided here, and a peek raises a ``StoreError``."""
    async with store_on(Reporter(report)) as store:
        assert await is_degraded(store)
        with pytest.raises(StoreError):
            await store.peek(TAKE)
    assert "makes no sense" in caplog.text
